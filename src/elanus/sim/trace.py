"""What happened in a run, in order: for the hash that tells two runs apart, and for the story of a row."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable


class Trace:
    """Events in virtual time. ``keys``: the primary keys an event is about."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: list[tuple[float, str, frozenset[int]]] = []
        self._hash = hashlib.sha256()

    def __len__(self) -> int:
        return len(self._events)

    def note(self, text: str, keys: Iterable[int] = ()) -> None:
        now_s = self._loop.time()
        self._hash.update(f"{now_s:.6f} {text}\n".encode())
        self._events.append((now_s, text, frozenset(keys)))

    def digest(self) -> str:
        return self._hash.hexdigest()

    def story(self, keys: Iterable[int], events_max: int = 200) -> list[str]:
        """The events about these keys, and those about no key (crashes, commits, versions); the last ones."""
        wanted = frozenset(keys)
        told = [event for event in self._events if not event[2] or event[2] & wanted]
        return [f"{at_s:9.4f} s  {text}" for at_s, text, _ in told[-events_max:]]
