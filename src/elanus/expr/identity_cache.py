"""A small cache for values that each belong to one object, such as the rows a filter matches.

The proxy keeps the templates of recent searches and the plans of recent filters, so every repetition of a
read has the same objects: comparing by identity is enough, and avoids hashing a tree.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
_lock = threading.RLock()
"""It is held for less than a microsecond, and each segment has several caches. Reentrant: what an evicted
value frees may use a cache."""


class _Entry(Generic[Key, Value]):
    __slots__ = ("key", "used", "value")

    def __init__(self, key: Key, value: Value) -> None:
        self.key = key  # keeps the object, and with it its id
        self.value = value
        self.used = False


class IdentityCache(Generic[Key, Value]):
    """At most ``capacity`` values, looked up by the identity of the object they were made for.

    Safe for many threads. `get` takes no lock. `put` takes one that all caches share, and evicts entries by
    the clock rule (F. J. Corbató, 1968): an entry that was found since the hand last passed gets another
    round.
    """

    __slots__ = ("_capacity", "_entries")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: dict[int, _Entry[Key, Value]] = {}

    def get(self, key: Key) -> Value | None:
        entry = self._entries.get(id(key))
        if entry is None:
            return None
        entry.used = True
        return entry.value

    def put(self, key: Key, value: Value) -> None:
        with _lock:
            self._entries.pop(id(key), None)
            while len(self._entries) >= self._capacity:
                oldest = self._entries.pop(next(iter(self._entries)))
                if oldest.used:
                    oldest.used = False
                    self._entries[id(oldest.key)] = oldest
            self._entries[id(key)] = _Entry(key, value)

    def values(self) -> list[Value]:
        """Return what is cached."""
        with _lock:
            return [entry.value for entry in self._entries.values()]

    def __len__(self) -> int:
        return len(self._entries)
