"""Record the counts of the proxy and of the job ledger in the metrics."""

from __future__ import annotations

from functools import cache

from elanus.core.jobs import JobEntry
from elanus.metrics import Metrics


class RequestMeasures:
    """Counts answered requests. The labeled children are cached: a lookup costs as much as counting."""

    def __init__(self, metrics: Metrics) -> None:
        self._count = cache(lambda rpc, code: metrics.requests.labels(rpc, str(code)).inc)
        self._time = cache(lambda rpc: metrics.request_seconds.labels(rpc).observe)

    def observe(self, rpc: str, code: int, seconds: float) -> None:
        self._count(rpc, code)()
        self._time(rpc)(seconds)


class MetricMeasures:
    """Implements `elanus.proxy.role.measures.Measures`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.inserted = metrics.rows_inserted.inc
        self.deleted = metrics.rows_deleted.inc
        self.searched = metrics.search_vectors.inc
        self.waited_for_guarantee = metrics.guarantee_wait_seconds.observe

    def embedded(self, provider: str, outcome: str, seconds: float) -> None:
        self._metrics.embedding_seconds.labels(provider, outcome).observe(seconds)

    def held_back(self, action: str) -> None:
        self._metrics.writes_held_back.labels(action).inc()


class JobMeasures:
    """Counts ended jobs, by kind."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def ended(self, entry: JobEntry) -> None:
        metrics, kind = self._metrics, entry.kind.value
        metrics.jobs.labels(kind, entry.state.value).inc()
        metrics.job_rows.labels(kind).inc(entry.rows)
        metrics.job_bytes.labels(kind).inc(entry.size_bytes)
        if entry.started_s:
            metrics.job_seconds.labels(kind).observe(entry.duration_ms(entry.ended_s) / 1000)
