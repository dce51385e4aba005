"""Positions of the log that query nodes still need.

A query node reads the log behind the data nodes: it may lag, and before it reads at a checkpoint it loads
what is in binlogs up to there. Querycoord reports where its nodes are. A checkpoint that was just given out
counts as well, until a report can contain it.

Nothing is persisted: querycoord reports again within seconds, and the first trim of a new datacoord comes
later than that. A position that does not move for a long time does not count any more, so neither a node
that reads nothing nor a querycoord that is gone can keep the log forever. Such a node loads its collections
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elanus.api.recovery import LogHold
from elanus.core.clock import Clock
from elanus.core.ids import NodeID

_GIVEN_OUT_S = 30.0
"""How long a checkpoint that was given out counts: several times what a report takes to contain it."""


@dataclass(frozen=True, slots=True)
class _Held:
    position: int
    since_s: float


class LogHolds:
    """``limit_s``: how long a position counts that does not move."""

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._reported: dict[tuple[NodeID, str], _Held] = {}
        self._given_out: dict[str, list[_Held]] = {}

    def report(self, holds: Iterable[LogHold]) -> None:
        """Replace the reported positions. Each holder and pchannel is there once."""
        now_s, before = self._clock.monotonic_s(), self._reported
        self._reported = {}
        for hold in holds:
            key = (hold.holder, hold.pchannel)
            known = before.get(key)
            is_known = known is not None and known.position == hold.position
            self._reported[key] = known if known and is_known else _Held(hold.position, now_s)

    def give_out(self, pchannel: str, position: int) -> None:
        """Note that somebody is about to read the pchannel from this position."""
        given = self._given_out.setdefault(pchannel, [])
        if given and given[-1].position == position:
            given.pop()
        given.append(_Held(position, self._clock.monotonic_s()))

    def lowest(self) -> dict[str, int]:
        """Return the lowest position of each pchannel that must be kept."""
        now_s = self._clock.monotonic_s()
        self._given_out = {
            pchannel: kept
            for pchannel, given in self._given_out.items()
            if (kept := [held for held in given if now_s - held.since_s <= _GIVEN_OUT_S])
        }
        found = {
            pchannel: min(held.position for held in given) for pchannel, given in self._given_out.items()
        }
        for (_, pchannel), held in self._reported.items():
            if now_s - held.since_s <= self._limit_s:
                found[pchannel] = min(found.get(pchannel, held.position), held.position)
        return found
