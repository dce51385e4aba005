"""Gauges with labels: what is gone is shown no longer."""

from __future__ import annotations

from collections import Counter

from elanus.core.ids import NO_NODE, NodeID
from elanus.core.timestamps import compose
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


def test_the_lag_of_a_pchannel_is_shown_as_long_as_it_is_in_use() -> None:
    """One whose log was lost lags until its collections are dropped, and then gets no ticks."""
    metrics = Metrics()
    gauges = Gauges(None, None, metrics)  # type: ignore[arg-type]
    gauges.show_lags({"dml_0": compose(1000), "dml_1": compose(4000)}, 5000)
    gauges.show_lags({"dml_1": compose(5000)}, 6000)
    (family,) = metrics.channel_lag_ms.collect()
    assert {s.labels["pchannel"]: s.value for s in family.samples} == {"dml_1": 1000}
