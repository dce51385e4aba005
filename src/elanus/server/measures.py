"""The proxy's counts, put into the metrics."""

from __future__ import annotations

from elanus.metrics import Metrics


class MetricMeasures:
    """Implements `elanus.proxy.measures.Measures`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.inserted = metrics.rows_inserted.inc
        self.deleted = metrics.rows_deleted.inc
        self.searched = metrics.search_vectors.inc
        self.waited_for_guarantee = metrics.guarantee_wait_seconds.observe

    def held_back(self, action: str) -> None:
        self._metrics.writes_held_back.labels(action).inc()
