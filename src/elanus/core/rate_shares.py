"""How proxies share a rate: each gets the part of it that it needs most. Pure.

Every proxy reports its demand, the amount a second that its clients ask for, admitted or not. Its share is
in proportion to that, except for `FLOOR`, which is divided equally: a proxy whose clients have just come may
admit some of their requests before its demand is known. The shares of all proxies add up to one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from elanus.core.ids import NodeID

FLOOR = 0.05
_SMOOTHING_S = 0.4
_DEMAND_MIN = 0.5
"""A smaller demand is none: its limit is no longer reported."""

Demand = Mapping[str, float]
"""By limit: the bytes, query vectors or queries a second that are asked for."""


class RateShares:
    """The last demands of the proxies. The work for a report depends on the limits that it names."""

    def __init__(self) -> None:
        self._demands: dict[NodeID, Demand] = {}

    def report(self, node_id: NodeID, demand: Demand) -> None:
        """Replace a proxy's demand."""
        if demand:
            self._demands[node_id] = demand
        else:
            self._demands.pop(node_id, None)

    def forget(self, node_ids: Iterable[NodeID]) -> None:
        for node_id in node_ids:
            self._demands.pop(node_id, None)

    def of(self, node_id: NodeID, proxies: int) -> dict[str, float]:
        """Return a proxy's share of each limit that it has demand for. ``proxies``: how many are live."""
        shares = {}
        for limit, demand in self._demands.get(node_id, {}).items():
            total = sum(other.get(limit, 0.0) for other in self._demands.values())
            shares[limit] = FLOOR / max(1, proxies) + (1 - FLOOR) * demand / total
        return shares


class DemandMeter:
    """The demand for one limit: an average over less than a second."""

    __slots__ = ("_asked", "_at_s", "_average")

    def __init__(self, now_s: float) -> None:
        self._asked = 0.0
        self._average = 0.0
        self._at_s = now_s

    def ask(self, amount: float) -> None:
        self._asked += amount

    def look(self, now_s: float) -> float:
        """Return the demand a second, 0.0 for one that is as good as none. Called at every report."""
        passed_s = now_s - self._at_s
        if passed_s > 0:
            weight = 1 - math.exp(-passed_s / _SMOOTHING_S)
            self._average += weight * (self._asked / passed_s - self._average)
            self._asked, self._at_s = 0.0, now_s
        average = max(self._average, _DEMAND_MIN if self._asked else 0.0)  # just asked for: no average yet
        return average if average >= _DEMAND_MIN else 0.0
