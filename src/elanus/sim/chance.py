"""Everything random in a run: how long things take, and the armed faults that calls and jobs can meet.

There is one stream of random numbers per purpose, all derived from the seed, so that leaving a fault out
disturbs the rest as little as possible. A stream is seeded by a string through SHA-512, never by ``hash``.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable

from elanus.sim.scenario import AT_ONCE, OF_CALLS, Fault, FaultKind, Scenario


class Delays:
    """How long things take without a fault: anything up to ``usual_s``."""

    def __init__(self, random_: random.Random, usual_s: float) -> None:
        self._draw = random_.random
        self._usual_s = usual_s

    def next_s(self) -> float:
        return self._draw() * self._usual_s


class Chance:
    """The randomness of one run. ``note`` is called with each fault that strikes; ``now_s`` is virtual
    time."""

    def __init__(self, scenario: Scenario, now_s: Callable[[], float], note: Callable[[Fault], None]) -> None:
        self._seed = scenario.seed
        self._now_s = now_s
        self._note = note
        self._waiting: dict[FaultKind, dict[str, deque[Fault]]] = {}
        self._next_s: dict[FaultKind, float] = {}
        self._next_of_calls_s: dict[str, float] = {}
        for fault in scenario.faults:
            if fault.kind not in AT_ONCE:
                self.arm(fault)

    def arm(self, fault: Fault) -> None:
        """Add a fault. It must be later than those of the same kind and target."""
        self._waiting.setdefault(fault.kind, {}).setdefault(fault.target, deque()).append(fault)
        self._next_s[fault.kind] = min(fault.at_s, self._next_s.get(fault.kind, math.inf))
        if fault.kind in OF_CALLS:
            known_s = self._next_of_calls_s.get(fault.target, math.inf)
            self._next_of_calls_s[fault.target] = min(fault.at_s, known_s)

    def stream(self, purpose: str) -> random.Random:
        return random.Random(f"{self._seed}/{purpose}")

    def delays(self, purpose: str, usual_s: float) -> Delays:
        return Delays(self.stream(purpose), usual_s)

    def quiet(self) -> None:
        """Disarm all faults."""
        self._next_s.clear()
        self._next_of_calls_s.clear()

    def lies_in_wait(self, method: str) -> bool:
        """Whether `meets` could find a fault of `OF_CALLS` for this call. A cheap check; most calls meet
        none."""
        now_s, next_s = self._now_s(), self._next_of_calls_s
        return next_s.get("", math.inf) <= now_s or next_s.get(method, math.inf) <= now_s

    def meets(self, kind: FaultKind, target: str = "") -> Fault | None:
        """Return the fault of this kind that is due, for any target or for this one. A fault strikes once."""
        if self._now_s() < self._next_s.get(kind, math.inf):
            return None
        waiting = self._waiting[kind]
        for queue in (waiting.get(""), waiting.get(target)):
            if queue and queue[0].at_s <= self._now_s():
                fault = queue.popleft()
                self._next_s[kind] = min((q[0].at_s for q in waiting.values() if q), default=math.inf)
                if kind in OF_CALLS:
                    self._next_of_calls_s[fault.target] = self._next_of_calls(fault.target)
                self._note(fault)
                return fault
        return None

    def _next_of_calls(self, target: str) -> float:
        queues = [queue for kind in OF_CALLS if (queue := self._waiting.get(kind, {}).get(target))]
        return min((queue[0].at_s for queue in queues), default=math.inf)
