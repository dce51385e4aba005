"""How a proxy reads: the query nodes that answer, and the moment as of which they do.

A read runs in its gRPC thread from end to end. It fixes one read timestamp before it sends any request: the
timestamp that its consistency level demands, or the lowest service time if that is newer. A read that has to
wait requests a tick instead of waiting for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from elanus.api.querynode import NodeHits, NodeQuery, NodeSearch, NodeStatistics
from elanus.core.consistency import (
    ReadConsistency,
    check_moment,
    check_reachable,
    guarantee_timestamp,
    needs_fresh_timestamp,
    oldest_weak_moment,
)
from elanus.core.errors import (
    ChannelRewound,
    DeadlineExceeded,
    DiskFull,
    InvalidFilter,
    InvalidParameter,
)
from elanus.core.ids import CollectionID
from elanus.core.term_statistics import TermStatistics
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.trail import note_wait
from elanus.expr import BoundFilter
from elanus.proxy.fanout.deadline import Patience
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.iterator_pages import Pages
from elanus.proxy.role.measures import Measures
from elanus.proxy.role.own_writes import OwnWrites
from elanus.proxy.role.queues import DqQueue
from elanus.proxy.role.stamps import Stamps

_NO_TICK_WAIT_S = 1.0
"""How long a read waits while no tick can be written, as far as is known: that may just have changed, and a
tick may find room in a full log where rows do not."""


class ReadNodes(Protocol):
    """The query nodes as one: a node in this process, or many over query channels. Lives with its proxy.

    The reads are those of `elanus.api.querynode.QueryNodeReads` and raise the same errors. They also raise
    `DeadlineExceeded` when the ``patience`` is used up.
    """

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def forget(self, collection_id: CollectionID) -> None:
        """Discard what is known about where the collection is served."""
        ...

    def service_time(self, collection_id: CollectionID, patience: Patience) -> Timestamp:
        """Return the newest timestamp known to be served; 0: none yet."""
        ...

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, patience: Patience) -> None:
        """Block until a read as of ``ts`` may be sent and `service_time` is known.

        Nodes over channels wait for ``ts`` themselves, after they have received the read.
        """
        ...

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits: ...
    def query(self, request: NodeQuery, patience: Patience) -> Mapping[str, pa.Array]: ...
    def statistics(self, request: NodeStatistics, patience: Patience) -> TermStatistics: ...
    def count(self, request: NodeQuery, patience: Patience) -> int: ...


class Ticks(Protocol):
    """The time ticks that reads wait for: `elanus.proxy.role.time_ticker.TimeTicker`."""

    @property
    def log_full(self) -> str:
        """Why the log had no room for the latest tick; "" if it had, or is not known."""
        ...

    @property
    def rewound(self) -> Mapping[tuple[str, ...], str]:
        """By the pchannels of a request: why no tick can be written to one of them."""
        ...

    def request(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        """Request an early tick of these pchannels, of ``at_least`` or later. Returns at once."""
        ...


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """``graceful_time_ms``: how far a Bounded read may be behind. ``retention_s``: how far back a read may be
    pinned. ``timeout_s``: the longest that a read takes."""

    graceful_time_ms: int
    retention_s: float
    timeout_s: float


class ReadSlot:
    """A context that holds a slot of the queue, yields a read's patience, and measures the time it waits.

    Entering it raises `TaskQueueFull`. A read whose time is up while the log has no room for time ticks ends
    with `DiskFull`: nodes over channels wait for the tick themselves, and do not know why it does not come.
    """

    __slots__ = ("_measures", "_patience", "_queue", "_ticks")

    def __init__(self, queue: DqQueue, patience: Patience, measures: Measures, ticks: Ticks) -> None:
        self._queue = queue
        self._patience = patience
        self._measures = measures
        self._ticks = ticks

    def __enter__(self) -> Patience:
        self._queue.enter()
        return self._patience

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._queue.leave()
        waited_s = self._patience.waited_s
        if waited_s:
            self._measures.waited_for_guarantee(waited_s)
            note_wait(waited_s)
        waits_in_vain = isinstance(error, DeadlineExceeded) and self._patience.needs_tick
        if waits_in_vain and (why := self._ticks.log_full):
            raise _no_room(why) from None


class ReadPath:
    """The state that the reads of one proxy share, from any thread.

    ``now_s``: the clock by which reads wait.
    """

    def __init__(
        self,
        nodes: ReadNodes,
        queue: DqQueue,
        stamps: Stamps,
        ticks: Ticks,
        measures: Measures,
        own_writes: OwnWrites,
        policy: ReadPolicy,
        now_s: Callable[[], float],
    ) -> None:
        self.nodes = nodes
        self.pages = Pages()
        self._queue = queue
        self._stamps = stamps
        self._ticks = ticks
        self._measures = measures
        self._own_writes = own_writes
        self._policy = policy
        self._now_s = now_s

    def begin(self, timeout_s: float | None = None) -> ReadSlot:
        """Return the context of a read whose client waits for ``timeout_s``."""
        longest_s = self._policy.timeout_s
        if timeout_s is not None:
            longest_s = min(timeout_s, longest_s)
        return ReadSlot(self._queue, Patience(longest_s, self._now_s), self._measures, self._ticks)

    def read_timestamp(
        self, cached: CachedCollection, consistency: ReadConsistency, patience: Patience
    ) -> Timestamp:
        """Return the one timestamp a read is answered at, once the read may be sent.

        A timestamp that a client sent may be ahead of now: the read waits until it is served. Raises
        `CollectionNotLoaded`, `DeadlineExceeded`, `DiskFull` if the log has no room for the tick,
        `ChannelRewound` if it takes none, what `check_moment` raises for a pinned read, and
        `InvalidParameter` for a timestamp so far ahead that the read cannot wait for it.
        """
        level, policy = cached.view.consistency_level, self._policy
        fresh = needs_fresh_timestamp(consistency, level)
        now = self._stamps.now() if fresh else self._stamps.about_now()
        if consistency.moment is not None:
            check_moment(consistency.moment, cached.view.created, now, policy.retention_s)
        own_write = self._own_writes.last(consistency.client, cached.collection_id)
        guarantee = guarantee_timestamp(consistency, level, now, policy.graceful_time_ms, own_write)
        is_pinned = consistency.moment is not None
        if not is_pinned:
            # no read as of now is from before a truncation, or of what compaction has removed since
            guarantee = max(guarantee, cached.view.truncated, oldest_weak_moment(now, policy.retention_s))
        is_fixed = is_pinned or (fresh and guarantee >= now)
        # No node serves the present already, so a strong read need not ask up to where they serve.
        asks = is_pinned or not is_fixed
        served = self.nodes.service_time(cached.collection_id, patience) if asks else NO_TIMESTAMP
        if served >= guarantee:
            return guarantee if is_fixed else served
        if fresh and guarantee > now:
            check_reachable(guarantee, now, patience.left_s())  # no tick can be asked for before its time
        else:
            patience.needs_tick = True
            self._ticks.request(cached.view.pchannels, guarantee)
        self._wait(cached, guarantee, patience)
        if is_fixed:
            return guarantee
        # The wait may have been for a load; a weak guarantee then gets what is served by now.
        return max(guarantee, min(self.nodes.service_time(cached.collection_id, patience), now))

    def _wait(self, cached: CachedCollection, ts: Timestamp, patience: Patience) -> None:
        """Block until ``ts`` is served. If no tick can be written, that is the answer within a second, not
        when the time is up; within two if that was not known when the read began, or later if it becomes so
        while the read waits: it looks again after twice as long."""
        collection_id, pchannels = cached.collection_id, cached.view.pchannels
        ticks = self._ticks
        has_no_tick = ticks.log_full or ticks.rewound.get(pchannels)
        look_s = _NO_TICK_WAIT_S if has_no_tick else 2 * _NO_TICK_WAIT_S
        while True:
            part = patience.at_most(look_s)
            try:
                self.nodes.wait_service_time(collection_id, ts, part)
                return
            except DeadlineExceeded:
                if why := ticks.rewound.get(pchannels):
                    raise ChannelRewound(f"the read waits for a time tick: {why}") from None
                if why := ticks.log_full:
                    raise _no_room(why) from None
                if part.left_s() or not patience.left_s():  # the nodes do not wait so long, or it is over
                    raise
            finally:
                patience.waited_s += part.waited_s
            look_s *= 2


def _no_room(why: str) -> DiskFull:
    return DiskFull(
        f"the read waits for a time tick, which the log cannot take: {why}. Reads of consistency level "
        "Eventually are answered meanwhile"
    )


def check_same_collection(cached: CachedCollection, expected: CollectionID | None) -> None:
    """Raises `InvalidParameter` when the name refers to another collection than for the previous pages."""
    if expected not in (None, cached.collection_id):
        raise InvalidParameter(
            f"alias or database may have been changed: {cached.view.name} is not the collection {expected} "
            "that this iterator began with"
        )


def plan_filter(cached: CachedCollection, text: str, values: Mapping[str, object]) -> BoundFilter:
    """Raises `InvalidFilter`, whose text says that the filter was for a query plan."""
    try:
        return cached.plans.filter(text, values)
    except InvalidFilter as error:
        raise InvalidFilter(f"failed to create query plan: {error.message}", error.position) from error
