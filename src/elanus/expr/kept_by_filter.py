"""Values that belong to a filter, such as the rows that it matches, kept for reads that repeat the filter.

A cache keeps its filters alive, and a filter may be as large as a request. So caches hold long filters
weakly, and the last few of them are held here, for all caches of the process: within one request, and for an
iterator, whose pages share the rest of their filter, they are found again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TypeVar
from weakref import ref

from elanus.expr.filter import BoundFilter
from elanus.expr.identity_cache import IdentityCache

FILTERS_KEPT = 16
"""The filters of a cache, and the long ones of the process."""
LONG_KEPT_BYTES = 64 << 20
"""The long filters of the process take no more, apart from the last one."""

Value = TypeVar("Value")


class LongFilters:
    """The last long filters. Safe for many threads."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, BoundFilter] = OrderedDict()
        self._lock = threading.Lock()

    def hold(self, used: BoundFilter) -> None:
        """Keep a filter alive until others have been used after it."""
        released = []  # freed without the lock: what that frees may use a cache
        with self._lock:
            self._held[id(used)] = used
            self._held.move_to_end(id(used))
            while self._are_too_many():
                released.append(self._held.popitem(last=False))

    def _are_too_many(self) -> bool:
        held_bytes = sum(held.size_bytes for held in self._held.values())
        return len(self._held) > (1 if held_bytes > LONG_KEPT_BYTES else FILTERS_KEPT)


long_filters = LongFilters()


class KeptByFilter(IdentityCache[BoundFilter, Value]):
    """Values by their filter. Safe for many threads."""

    __slots__ = ("_long",)

    def __init__(self) -> None:
        super().__init__(FILTERS_KEPT)
        self._long: dict[int, tuple[ref[BoundFilter], Value]] = {}

    def get(self, key: BoundFilter) -> Value | None:
        if not key.is_long:
            return super().get(key)
        found = self._long.get(id(key))
        return found[1] if found is not None and found[0]() is key else None

    def put(self, key: BoundFilter, value: Value) -> None:
        if not key.is_long:
            super().put(key, value)
            return
        long_filters.hold(key)
        number, kept = id(key), self._long
        kept[number] = ref(key, lambda _: kept.pop(number, None)), value

    def values(self) -> list[Value]:
        return [*super().values(), *(value for _, value in list(self._long.values()))]

    def __len__(self) -> int:
        return super().__len__() + len(self._long)
