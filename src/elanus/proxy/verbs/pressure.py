"""Back-pressure: writes are slowed, then refused, before memory or disk run out.

Datacoord seals segments for memory when the growing data of a query node passes the soft limit, and the
pipeline flushes them. Back-pressure is for rows that arrive faster than that, or while the pipeline is down.
Between the soft and the hard limit of growing data each write is delayed, longer the closer the data is to
the hard limit. Above the hard limit, or when the write would use the disk's reserve, it is refused with an
error that says what it waits for. Reads and deletes continue.

**Collections share the limits.** A collection that keeps within its equal part of the soft limit is not
slowed. The last eighth of the room between the limits is for collections that keep within their equal part of
the hard limit. So one collection's load does not keep the small writes of the others out.

**A delayed write holds a thread of the server**, so only some may be delayed at a time. Further writes get
`RateLimited`: Milvus clients repeat them after a pause of their own, which holds no thread here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from elanus.core.errors import DiskFull, MemoryFull, RateLimited
from elanus.core.ids import CollectionID
from elanus.proxy.role.measures import Measures

_DELAY_MAX_S = 1.0
_RESERVED_PART = 8


@dataclass(frozen=True, slots=True)
class PressureLimits:
    """``delayed_writers_max``: how many writes may be delayed at a time."""

    growing_soft_bytes: int
    growing_hard_bytes: int
    disk_reserve_bytes: int
    delayed_writers_max: int

    @property
    def reserved_bytes(self) -> int:
        """The room below the hard limit for collections that keep within their share."""
        return (self.growing_hard_bytes - self.growing_soft_bytes) // _RESERVED_PART


@dataclass(frozen=True, slots=True)
class GrowingData:
    """The growing data of the query node that has the most of it.

    ``collections``: its bytes by collection, and ``flushing_bytes``: how much of it is sealed and on its way
    out of memory. Both are some seconds old, and need not be known below the soft limit.
    """

    total_bytes: int
    collections: Mapping[CollectionID, int] = field(default_factory=dict)
    flushing_bytes: int = 0

    def is_within_share(self, collection_id: CollectionID, size_bytes: int, limit_bytes: int) -> bool:
        """Whether the collection stays within its part of the limit when it takes that many bytes more.

        One that has all growing data shares the limit with one that may come. While nothing is known of
        collections, each counts as having all of it.
        """
        own_bytes = self.collections.get(collection_id, 0) if self.collections else self.total_bytes
        sharing = max(2, len(self.collections) + (collection_id not in self.collections))
        return (own_bytes + size_bytes) * sharing <= limit_bytes


def write_delay_s(growing_bytes: int, limits: PressureLimits) -> float:
    """Return how long a write has to wait: 0 up to the soft limit, rising to one second at the hard limit."""
    if growing_bytes <= limits.growing_soft_bytes:
        return 0.0
    room = max(1, limits.growing_hard_bytes - limits.growing_soft_bytes)
    return _DELAY_MAX_S * min(1.0, (growing_bytes - limits.growing_soft_bytes) / room)


def admitted_after_s(
    growing: GrowingData, collection_id: CollectionID, size_bytes: int, limits: PressureLimits
) -> float:
    """Return how long a write of that size to the collection has to wait. Raises `MemoryFull`."""
    after_bytes = growing.total_bytes + size_bytes
    if after_bytes <= limits.growing_soft_bytes:
        return 0.0
    hard_bytes = limits.growing_hard_bytes
    admitted_bytes = hard_bytes
    if not growing.is_within_share(collection_id, size_bytes, hard_bytes):
        admitted_bytes -= limits.reserved_bytes
    if after_bytes > admitted_bytes:
        raise MemoryFull(
            f"memory quota exceeded: {after_bytes} bytes of growing data, backpressure.growing_hard_mb "
            f"allows {admitted_bytes} of {hard_bytes} to this collection; {_awaited(growing.flushing_bytes)}"
        )
    if growing.is_within_share(collection_id, size_bytes, limits.growing_soft_bytes):
        return 0.0
    return write_delay_s(after_bytes, limits)


def _awaited(flushing_bytes: int) -> str:
    if flushing_bytes:
        return (
            f"{flushing_bytes} bytes are being flushed: retry when they are. If that lasts, the pipeline is "
            "down or too slow (elanus status): restart it, give it more cores, or raise the setting"
        )
    return (
        "none of it is being flushed yet: retry in some seconds. If that lasts, the pipeline is down "
        "(elanus status): start it, or raise the setting"
    )


class Pressure:
    """``growing`` and ``disk_free_bytes`` are read at each write; they must be cheap. Thread-safe."""

    def __init__(
        self,
        limits: PressureLimits,
        growing: Callable[[], GrowingData],
        disk_free_bytes: Callable[[], int],
        sleep: Callable[[float], None],
        measures: Measures,
    ) -> None:
        self._limits = limits
        self._growing = growing
        self._disk_free_bytes = disk_free_bytes
        self._sleep = sleep
        self._measures = measures
        self._delays = threading.BoundedSemaphore(limits.delayed_writers_max)

    def before_write(self, collection_id: CollectionID, size_bytes: int) -> None:
        """Block until a write of that size may proceed. Raises `MemoryFull`, `DiskFull`, `RateLimited`."""
        try:
            delay_s = self._allowed_after_s(collection_id, size_bytes)
        except (DiskFull, MemoryFull):
            self._measures.held_back("refused")
            raise
        if delay_s:
            self._delay(delay_s)

    def _delay(self, delay_s: float) -> None:
        if not self._delays.acquire(blocking=False):
            self._measures.held_back("turned away")
            raise RateLimited(
                f"rate limit exceeded: {self._limits.delayed_writers_max} writes are being slowed already "
                "(backpressure.delayed_writers_max), because growing data is above "
                f"backpressure.growing_soft_mb ({self._limits.growing_soft_bytes} bytes); retry after a pause"
            )
        try:
            self._measures.held_back("slowed")
            self._sleep(delay_s)
        finally:
            self._delays.release()

    def _allowed_after_s(self, collection_id: CollectionID, size_bytes: int) -> float:
        free_bytes, reserve_bytes = self._disk_free_bytes(), self._limits.disk_reserve_bytes
        if free_bytes - size_bytes < reserve_bytes:
            raise DiskFull(
                f"disk quota exceeded: the write has {size_bytes} bytes, {free_bytes} bytes are free, and "
                f"backpressure.disk_reserve_mb keeps {reserve_bytes} of them, on the disk of the data "
                "directory, of the log or of the objects: free disk space, then retry"
            )
        return admitted_after_s(self._growing(), collection_id, size_bytes, self._limits)
