"""Where a call runs: in the thread that reads the queue, or in the pool of workers.

A call in the reading thread costs least, but holds up all others. So a kind of call runs there only when
calls of its kind were short. Calls of a kind that is not known yet run in the pool, where they
are measured. The time that counts is that of the processor: how long a call takes in the pool says more
about the other calls there. A call that waits, or holds up the reading thread, sends the next ones of its
kind to the pool, twice as many each time.

Pure: it has no clock and no thread. Estimates may be updated from several threads at once; a lost update
changes an estimate a little, and nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

_SHORT_S = 0.001
_SHORT_ON_FEW_S = 0.002
_FEW_PROCESSORS = 2
_WEIGHT = 0.25
"""The share of the newest call in the mean of its kind."""
_AWAY_MIN = 16
_AWAY_MAX = 1024
_KINDS_MAX = 4096


def short_s(processors: int) -> float:
    """Return up to which mean a kind of call runs in the reading thread of a machine with so many processors.

    Longer ones are left to the pool, where several threads compute at a time. With few processors that wins
    little, since the clients need one of them: there, searches of 1 to 1.8 ms had 7 to 13 % more answers
    from the reading thread, at 5 to 12 % less processor time (four clients, rounds in turn).
    """
    return _SHORT_ON_FEW_S if processors <= _FEW_PROCESSORS else _SHORT_S


@dataclass(slots=True)
class _Kind:
    mean_s: float
    away: int = 0
    """How many of the next calls go to the pool, whatever the mean."""
    penalty: int = 0


class Placement:
    """Remembers up to ``kinds_max`` kinds of calls, which are any hashable values.

    ``short_s``: see the function.
    """

    def __init__(self, short_s: float = _SHORT_S, kinds_max: int = _KINDS_MAX) -> None:
        self._short_s = short_s
        self._kinds_max = kinds_max
        self._kinds: dict[Hashable, _Kind] = {}

    def is_short(self, kind: Hashable) -> bool:
        """Whether the next call of this kind may run in the reading thread."""
        known = self._kinds.get(kind)
        if known is None:
            return False
        if known.away > 0:
            known.away -= 1
            return False
        return known.mean_s <= self._short_s

    def ran(self, kind: Hashable, busy_s: float, held_up: bool) -> None:
        """Note that a call took ``busy_s`` of processor time. ``held_up``: it waited, or was overtaken."""
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) >= self._kinds_max:
                self._kinds.clear()  # rare, and every kind is known again after one call
            known = self._kinds[kind] = _Kind(busy_s)
        else:
            known.mean_s += (busy_s - known.mean_s) * _WEIGHT
        if held_up:
            known.penalty = min(max(2 * known.penalty, _AWAY_MIN), _AWAY_MAX)
            known.away = known.penalty
        elif known.penalty and not known.away:
            known.penalty -= 1
