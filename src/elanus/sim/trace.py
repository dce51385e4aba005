"""The events of a run, in order, and counted.

Two runs that differ have traces of different hashes; a finding is reported with the events about its rows;
the counts make the summary.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable

from elanus.sim.scenario import Fault


class Trace:
    """Events in virtual time. ``keys``: the primary keys an event is about."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._events: list[tuple[float, str, Iterable[int]]] = []
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._events)

    def note(self, text: str, keys: Iterable[int] = ()) -> None:
        self._events.append((self._now_s(), text, keys))

    def met(self, fault: Fault) -> None:
        """Record that a fault has struck."""
        self.faults[fault.kind] += 1
        target = f" {fault.target}" if fault.target else ""
        self.note(f"FAULT {fault.kind}{target}")

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def digest(self) -> str:
        text = "".join(f"{at_s:.6f} {text}\n" for at_s, text, _ in self._events)
        return hashlib.sha256(text.encode()).hexdigest()

    def story(self, keys: Iterable[int], events_max: int = 200) -> list[str]:
        """The last events about these keys or about no key (crashes, commits, versions)."""
        wanted = frozenset(keys)
        relevant = [event for event in self._events if not event[2] or not wanted.isdisjoint(event[2])]
        return [f"{at_s:9.4f} s  {text}" for at_s, text, _ in relevant[-events_max:]]
