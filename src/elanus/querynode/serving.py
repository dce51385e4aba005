"""A query node on a query channel: reads and version changes, processed in the order of the channel.

A read belongs to the version that is in force at its position in the channel. It takes the collection's
snapshot as soon as its timestamp is served, and is answered from that snapshot, in another thread unless it
is small. A change waits for the snapshots of the reads before it, and reads after it wait for the change. So
all nodes of a replica answer a read under the same version, and a slow node is only slower. The change waits
for a short time only: a read that still has no snapshot then is returned to its proxy, which sends it again
behind the change. So a read ahead of a node that lags delays no other read for long.

A node that cannot take part in a version (it lacks a segment that the version places there) reports this in
its answers and in its status, until a later version that it can serve; it never answers from less. Segments
that go offline or move elsewhere in a version that it could not serve do so in the next version that it
serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import structlog

from elanus.api.query_channel import (
    PAYLOAD_MAX_BYTES,
    ChannelReader,
    DqRequest,
    DqResult,
    QueryChannelInfo,
    QueryChannels,
    ReadPayloads,
    SealedSegmentsChangeInfo,
    decode_message,
    encode_result,
)
from elanus.api.querynode import NodeSearch, NodeStatistics, SealedSegmentsChange
from elanus.channels.read_codec import (
    Answer,
    NodeCount,
    NodeProbe,
    Read,
    decode_read,
    encode_answer,
    read_ts_of,
)
from elanus.core.errors import ChannelLost, ElanusError, Internal, Unavailable, VersionChanged
from elanus.core.explanation import NodeReport
from elanus.core.ids import NodeID, SegmentID
from elanus.core.offload import Offload
from elanus.core.timestamps import Timestamp
from elanus.expr.filter_cache import FilterCache
from elanus.querynode.explaining import followed_part
from elanus.querynode.inline_reads import is_small
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.query import count, query
from elanus.querynode.recall import RecallSampler
from elanus.querynode.search import search
from elanus.querynode.snapshot import Snapshot
from elanus.querynode.text_search import statistics
from elanus.rpc.serving.waiting import serves
from elanus.rpc.tracing import untraced

_REFUSALS_S = 1.0
"""How long a node that leaves a channel tries to report this to the proxies whose reads it has."""
_CHANGE_WAIT_S = 0.5
"""How long a version change waits for the reads before it to get their snapshots."""
_log = structlog.get_logger("querynode")


@dataclass(frozen=True, slots=True)
class _Part:
    """This node's part of a version: the vchannels it leads, its segments, and those of all nodes."""

    leads: tuple[str, ...] = ()
    segments: tuple[SegmentID, ...] = ()
    sealed: tuple[SegmentID, ...] = ()


@dataclass(frozen=True, slots=True)
class _ReadyRead:
    """A read that has its snapshot: nothing later on the channel affects it.

    ``waited_s``: how long it waited for the snapshot. ``is_late``: whether the proxy waits no longer; any
    thread may call it.
    """

    request: DqRequest
    read: Read
    snapshot: Snapshot
    part: _Part
    waited_s: float
    is_late: Callable[[], bool]


class ChannelServing:
    """Serves one replica of one collection on its channel. Belongs to the node's loop.

    ``offload``: runs a read in a thread. ``proxies``: finds a proxy for payloads outside the channel.
    ``threads``: cores that one long search may use. ``on_end``: called when the channel is not
    followed any more.
    """

    def __init__(
        self,
        node_id: NodeID,
        collection: LoadedCollection,
        info: QueryChannelInfo,
        channels: QueryChannels,
        proxies: Callable[[NodeID], ReadPayloads],
        offload: Offload,
        threads: int,
        recall: RecallSampler | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._node_id = node_id
        self._collection = collection
        self._info = info
        self._channels = channels
        self._proxies = proxies
        self._offload = offload
        self._threads = threads
        self._recall = recall
        self._on_end = on_end
        self._sealed: dict[SegmentID, NodeID] = {}
        self._version = 0
        self._part = _Part()
        self._unable: ElanusError | None = None
        self._overdue: set[SegmentID] = set()
        self._overdue_deletes: dict[str, Timestamp] = {}
        self._waiting: dict[asyncio.Task[None], DqRequest] = {}
        self._answering: dict[asyncio.Task[None], DqRequest] = {}
        self._reader: ChannelReader | None = None
        self._task: asyncio.Task[None] | None = None
        self._filters = FilterCache(collection.written_schema)

    @property
    def channel(self) -> str:
        return self._info.channel

    @property
    def lost(self) -> bool:
        """Whether the channel is lost; querycoord then makes another."""
        return self._task is not None and self._task.done()

    @property
    def refused(self) -> int:
        """The latest version of the channel if this node cannot serve it, otherwise 0."""
        return self._version if self._unable is not None else 0

    async def start(self) -> None:
        """Apply the version of the `QueryChannelInfo`, and follow the channel. Raises `ChannelLost`."""
        info = self._info
        self._reader = reader = await self._channels.open_reader(info.channel, info.seek_position)
        try:
            await self._take_version(
                SealedSegmentsChangeInfo(
                    info.collection_id,
                    info.version,
                    info.sealed,
                    {},
                    info.vchannels,
                    visible_from=info.visible_from,
                    missing=info.missing,
                    deletes=info.deletes,
                )
            )
        except BaseException:  # the call may be given up while deletes are applied
            await self._close_reader()
            raise
        self._task = untraced(self._follow(reader), f"query channel {self.channel}")

    async def stop(self) -> None:
        """Stop, and refuse the reads in progress: nobody else would notify their proxies."""
        under_way = self._waiting | self._answering
        tasks = [t for t in (self._task, *under_way) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._close_reader()  # a task that never ran has not
        error = ChannelLost(f"query node {self._node_id} left the query channel; retry")
        refusals = [self._refuse(request, error) for task, request in under_way.items() if task.cancelled()]
        with contextlib.suppress(TimeoutError):  # if the broker is unavailable, proxies check themselves
            async with asyncio.timeout(_REFUSALS_S):
                await asyncio.gather(*refusals, return_exceptions=True)

    async def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    async def _follow(self, reader: ChannelReader) -> None:
        try:
            while True:
                _, data = await reader.next()
                message = decode_message(data)
                if isinstance(message, SealedSegmentsChangeInfo):
                    await self._end_waits(message.version)
                    await self._take_version(message)
                elif message.collection_id == self._collection.collection_id:
                    self._begin(message)
        except ElanusError as error:
            _log.info("query channel lost", channel=self.channel, error=error.message)
        finally:
            await self._close_reader()
            self._on_end()  # the task ends in the same step

    async def _end_waits(self, version: int) -> None:
        """Return when no read waits for a snapshot, after giving up those that wait for too long."""
        if self._waiting:
            await asyncio.wait(self._waiting, timeout=_CHANGE_WAIT_S)
        error = VersionChanged(f"query node {self._node_id} changed to version {version} meanwhile; retry")
        await self._refuse_waiting(error)

    async def pause(self) -> None:
        """Refuse reads until the next version: the node cannot serve the one in force any more."""
        error = Unavailable(f"query node {self._node_id} recovers a vchannel that it could not follow; retry")
        self._unable = error
        await self._refuse_waiting(error)

    async def _refuse_waiting(self, error: ElanusError) -> None:
        given_up = dict(self._waiting)
        for task in given_up:
            task.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        for task, request in given_up.items():
            if task.cancelled():
                self._spawn(request, self._refuse(request, error))

    # versions

    async def _take_version(self, change: SealedSegmentsChangeInfo) -> None:
        if change.version <= self._version:
            _log.info("version ignored: late", version=change.version, in_force=self._version)
            return
        self._version = change.version
        for segment_id in change.offline:
            self._sealed.pop(segment_id, None)
        self._sealed |= change.online
        here = tuple(s for s, node_id in change.online.items() if node_id == self._node_id)
        leaving = {s for s, node_id in change.offline.items() if node_id == self._node_id}
        leads = tuple(sorted(v for v, node_id in change.vchannels.items() if node_id == self._node_id))
        unplaced = {s for s in self._collection.serving if self._sealed.get(s) != self._node_id}
        mine = tuple(s for s, node_id in self._sealed.items() if node_id == self._node_id)
        self._part = _Part(leads, mine, tuple(self._sealed))
        self._overdue |= {*leaving, *change.replaced}
        try:
            await self._collection.take_version(
                SealedSegmentsChange(
                    collection_id=change.collection_id,
                    version=change.version,
                    online=here,
                    offline=tuple(sorted((leaving | unplaced) - set(here))),
                    elsewhere=(*(s for s, n in self._sealed.items() if n != self._node_id), *self._overdue),
                    leads=leads,
                    visible_from=change.visible_from,
                    missing=change.missing,
                    deletes={**self._overdue_deletes, **change.deletes},
                )
            )
        except ElanusError as error:
            _log.warning("version not served", version=change.version, error=error.message)
            self._unable = error
            self._overdue_deletes |= change.deletes
        else:
            self._unable = None
            self._overdue.clear()
            self._overdue_deletes.clear()

    # reads

    def _begin(self, request: DqRequest) -> None:
        """Start a read. If its timestamp is served, it gets its snapshot at once, without a waiting task."""
        read: Read | None = None
        if request.read and self._unable is None:
            try:
                read = self._decoded(request.read)
            except Exception as error:  # noqa: BLE001 - any error must be reported to the proxy
                self._spawn(request, self._refuse(request, error))
                return
            if self._collection.clock.has_reached(read_ts_of(read)):
                self._spawn(request, self._answer(self._ready(request, read, 0.0)))
                return
        snapped = asyncio.create_task(self._take_snapshot(request, read), name=f"read {request.request_id}")
        self._waiting[snapped] = request
        snapped.add_done_callback(self._waiting.pop)

    async def _take_snapshot(self, request: DqRequest, read: Read | None) -> None:
        """Wait for the read's snapshot, then start to answer.

        A change waits for the snapshot (see `_end_waits`), but not for the answer.
        """
        collection, waited_s = self._collection, 0.0
        try:
            if self._unable is not None:
                raise Unavailable(
                    collection.clock.stopped
                    or f"query node {self._node_id} cannot serve this version: {self._unable.message}"
                )
            if read is None:
                read = await self._read_of(request)
            if self._part.leads or self._part.segments:
                began_s = time.monotonic()
                await collection.clock.reached(read_ts_of(read), request.timeout_s)
                waited_s = time.monotonic() - began_s
            work = self._answer(self._ready(request, read, waited_s))
        except Exception as error:  # noqa: BLE001 - any error must be reported to the proxy
            work = self._refuse(request, error)
        self._spawn(request, work)

    def _ready(self, request: DqRequest, read: Read, waited_s: float) -> _ReadyRead:
        snapshot = self._collection.snapshot
        if not (self._part.leads or self._part.segments):
            # a node with nothing of the collection has nothing to wait for
            snapshot = replace(snapshot, service_ts=read_ts_of(read))
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + request.timeout_s - waited_s
        return _ReadyRead(request, read, snapshot, self._part, waited_s, lambda: now_s() > until_s)

    def _spawn(self, request: DqRequest, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._answering[task] = request
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        del self._answering[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.warning("answer not delivered", error=f"{type(error).__name__}: {error}")

    async def _read_of(self, request: DqRequest) -> Read:
        if request.read:
            return self._decoded(request.read)
        # A read that does not fit into a request has long lists or sets in its filter, or many vectors.
        fetched = await self._proxies(request.proxy).fetch_read(request.request_id)
        return await self._offload(self._decoded, fetched)

    def _decoded(self, data: bytes) -> Read:
        return decode_read(data, self._filters.filter)

    async def _answer(self, ready: _ReadyRead) -> None:
        request, part = ready.request, ready.part
        try:
            if is_small(ready.snapshot, ready.read):
                answer, report = self._followed(ready)
            else:
                answer, report = await self._offload(self._attended, ready)
            if len(answer) > PAYLOAD_MAX_BYTES:
                await self._proxies(request.proxy).give_answer(request.request_id, self._node_id, answer)
                answer = b""
        except Exception as error:  # noqa: BLE001 - any error must be reported to the proxy
            await self._refuse(request, error)
            return
        result = DqResult(
            request_id=request.request_id,
            node_id=self._node_id,
            version=ready.snapshot.version,
            vchannels=part.leads,
            segments=part.segments,
            sealed=part.sealed,
            service_ts=ready.snapshot.service_ts,
            answer=answer,
            waited_s=ready.waited_s,
            report=report,
        )
        await self._channels.hand_over(request.results, encode_result(result))

    def _attended(self, ready: _ReadyRead) -> tuple[bytes, NodeReport | None]:
        serves(ready.is_late)
        try:
            return self._followed(ready)
        finally:
            serves(None)

    def _followed(self, ready: _ReadyRead) -> tuple[bytes, NodeReport | None]:
        read = ready.read.query if isinstance(ready.read, NodeCount) else ready.read
        if not ready.request.is_followed or isinstance(read, NodeProbe | NodeStatistics):
            return self._work(ready.snapshot, ready.read), None
        return followed_part(
            self._node_id,
            ready.snapshot,
            read,
            ready.waited_s,
            lambda: self._work(ready.snapshot, ready.read),
        )

    def _work(self, snapshot: Snapshot, read: Read) -> bytes:
        answer: Answer
        if isinstance(read, NodeSearch):
            self._collection.searches.note()
            if self._recall is not None:
                read = self._recall.aimed(read)
            answer = search(snapshot, read, self._threads)
            if self._recall is not None:
                self._recall.offer(snapshot, read, answer)
        elif isinstance(read, NodeCount):
            answer = count(snapshot, read.query)
        elif isinstance(read, NodeStatistics):
            answer = statistics(snapshot, read)
        elif isinstance(read, NodeProbe):
            answer = 0
        else:
            answer = query(snapshot, read)
        return encode_answer(answer)

    async def _refuse(self, request: DqRequest, error: Exception) -> None:
        if not isinstance(error, ElanusError):
            _log.error("read failed", exc_info=error)
            error = Internal(f"query node {self._node_id}: {type(error).__name__}: {error}")
        failure = (type(error).__name__, error.message)
        version = self._collection.snapshot.version
        result = DqResult(request.request_id, self._node_id, version, (), (), (), 0, failure)
        await self._channels.hand_over(request.results, encode_result(result))
