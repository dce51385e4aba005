"""Which data node owns how much, among the metrics."""

from __future__ import annotations

from collections import Counter

from elanus.core.ids import NO_NODE, NodeID
from elanus.metrics import Metrics
from elanus.server.gauges import Gauges


def shown(metrics: Metrics) -> dict[str, float]:
    (family,) = metrics.owned_vchannels.collect()
    return {sample.labels["node"]: sample.value for sample in family.samples}


def test_a_data_node_is_shown_as_long_as_it_owns_something() -> None:
    metrics = Metrics()
    gauges = Gauges(None, None, metrics)  # type: ignore[arg-type]
    gauges.show_owners(Counter({NodeID(7): 2, NO_NODE: 1}))
    assert shown(metrics) == {"7": 2, "0": 1}
    gauges.show_owners(Counter({NodeID(7): 1, NodeID(8): 2}))
    assert shown(metrics) == {"7": 1, "8": 2}
