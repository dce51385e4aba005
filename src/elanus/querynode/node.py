"""The query node role: the control calls it receives (loads, versions, releases), and the reads it answers.

The two sides share only immutable snapshots. Control is asynchronous, on one event loop, and every call may
be repeated. Reads are synchronous functions that any thread may call: they take the collection's snapshot and
work on it, with no lock and no hop to the loop.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from elanus.api.query_channel import QueryChannelInfo, QueryChannels, ReadPayloads
from elanus.api.querynode import (
    DamagedFile,
    LoadCollection,
    LoadSegment,
    NodeHits,
    NodeQuery,
    NodeSearch,
    NodeStatistics,
    QueryNodePulse,
    QueryNodeStatus,
    SealedSegmentsChange,
    UnrecoveredSegment,
    WatchVchannel,
)
from elanus.core.errors import (
    CollectionNotLoaded,
    Internal,
    NotReady,
    NotSupported,
)
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.core.offload import Offload, Pools
from elanus.core.term_statistics import TermStatistics
from elanus.core.timestamps import Timestamp
from elanus.log.dispatcher import Dispatcher
from elanus.log.shared_reader import LogSource
from elanus.querynode.arrivals import INLINE_ROWS_MAX, Intake
from elanus.querynode.delete_applier import DeleteApplier, DeleteLimits
from elanus.querynode.delta_logs import ThreadLock
from elanus.querynode.explaining import reported
from elanus.querynode.interim import Interim, InterimRules
from elanus.querynode.invariants import check_collection
from elanus.querynode.kept_pulse import KeptPulse
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.loading import Loading
from elanus.querynode.memory import MemoryReturn
from elanus.querynode.query import count, query
from elanus.querynode.recall import RecallSampler
from elanus.querynode.sealed import files_of
from elanus.querynode.search import search
from elanus.querynode.serving import ChannelServing
from elanus.querynode.single_flight import SingleFlight
from elanus.querynode.status import UsedMemory, collection_status, node_status, prepare
from elanus.querynode.text_search import statistics
from elanus.rpc.tracing import untraced
from elanus.storage.port import ObjectStore

_LOADS_END_S = 20.0
"""How long a stopping node waits for loads in progress; it continues to serve meanwhile."""


@dataclass(frozen=True, slots=True)
class QueryNodePolicy:
    """``search_threads``: cores that one long search may use, as they are spare.

    ``capacity_bytes``: the memory that the node may fill with segments, 0 if unspecified.

    ``delete_limits``: how many deletes are applied on the loop, and how many at a time elsewhere.
    ``inline_rows_max``: how many arriving rows are prepared on the loop. ``interim``: which growing rows get
    interim indexes.

    ``fetches_max``: how many small files a load fetches at a time.

    ``shared``: a directory for columns that further processes map, too. Index files are then mapped whatever
    the collection says. None: there are no such processes.

    ``new_lock``: makes locks for threads that load; a simulator's threads wait in another way.
    """

    search_threads: int = 1
    capacity_bytes: int = 0
    delete_limits: DeleteLimits = field(default_factory=DeleteLimits)
    inline_rows_max: int = INLINE_ROWS_MAX
    interim: InterimRules = field(default_factory=InterimRules)
    fetches_max: int = 16
    shared: Path | None = None
    new_lock: Callable[[], ThreadLock] = threading.Lock


@dataclass(frozen=True, slots=True)
class ChannelReads:
    """How reads reach a node that is not in its proxies' process.

    ``proxies``: finds a proxy, for payloads outside the channel. ``offload``: where the reads run, so that
    they do not wait for segments that are being loaded.
    """

    channels: QueryChannels
    proxies: Callable[[NodeID], ReadPayloads]
    offload: Offload


_POLICY = QueryNodePolicy()


class QueryNode:
    """Implements `QueryNodeApi` and `QueryNodeReads` of `elanus.api.querynode`.

    ``scratch``: the node's own directory for files that the store does not have locally. ``channel_reads``:
    None if only this process reads. ``recall``: measures the recall of searches; None: nobody does.
    """

    def __init__(
        self,
        node_id: NodeID,
        log: LogSource,
        store: ObjectStore,
        pools: Pools,
        *,
        scratch: Path,
        policy: QueryNodePolicy = _POLICY,
        channel_reads: ChannelReads | None = None,
        recall: RecallSampler | None = None,
    ) -> None:
        self._node_id = node_id
        self._incarnation = uuid.uuid4().hex
        self._dispatcher = Dispatcher(log, spawn=untraced)
        self._used = UsedMemory(lambda: asyncio.get_running_loop().time())
        self._collections: dict[CollectionID, LoadedCollection] = {}
        self._serving: dict[CollectionID, ChannelServing] = {}
        self._pulse = KeptPulse(
            node_id, self._incarnation, self._dispatcher, self._collections, self._serving
        )
        self._memory = MemoryReturn(pools.loading)
        self._loading = Loading(
            store,
            pools.loading,
            scratch,
            self._dispatcher,
            policy.fetches_max,
            self._on_load,
            partial(Interim, policy.interim, pools.interim),
            policy.shared,
            policy.new_lock,
        )
        self._search_threads = policy.search_threads
        self._recall = recall
        self._capacity_bytes = policy.capacity_bytes
        self._channel_reads = channel_reads
        self._applier = DeleteApplier(pools.deletes, policy.delete_limits)
        self._intake = Intake(pools.arrivals, policy.inline_rows_max)
        self._growing_bytes = 0
        self._leading = 0
        self._flights = SingleFlight()
        self._background: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._memory.start()
        await self._loading.start()

    async def stop(self) -> None:
        """Release everything; return when nothing runs any more.

        Loads in progress cannot be aborted, and until the node's session ends, others rely on the node: it
        continues to serve meanwhile.
        """
        await self._flights.settle(_LOADS_END_S)
        self._memory.close()
        self._loading.stop()
        for collection_id in tuple(self._collections):
            await self.release_collection(collection_id)
        await self._flights.settle()
        await self._dispatcher.close()
        await self._memory.stop()
        await asyncio.gather(*self._background, return_exceptions=True)

    # control

    async def load_collection(self, request: LoadCollection) -> None:
        while (collection := self._collections.get(request.collection_id)) is not None:
            if collection.written_schema.is_read_as(request.schema):
                collection.want(request)
                return
            await self.release_collection(request.collection_id)  # a release did not reach this node
        grew = partial(self._grew, request.collection_id)
        self._collections[request.collection_id] = LoadedCollection(
            request, self._applier, self._dropped, self._memory.release, grew, self._leads
        )
        self._pulse.changed(request.collection_id)

    async def watch_vchannel(self, request: WatchVchannel) -> tuple[UnrecoveredSegment, ...]:
        collection = self._loaded(request.collection_id)
        channel = collection.channels.get(request.vchannel)
        if channel is None:
            raise Internal(f"{request.vchannel} is none of collection {request.collection_id}'s vchannels")
        await self._loading.read_writes(collection, channel, request)
        channel.rows = channel.rows or request.rows
        again = any(s.segment_id in request.again for s in channel.unrecovered())
        while again or not channel.holds(collection.wanted):
            again = False
            await self._flights.join(
                (collection, request.vchannel),  # not its id: work for a former load ends in an error
                lambda: self._loading.watch(collection, channel, request, self._intake),
            )
        await channel.caught_up()
        return channel.unrecovered()

    async def unwatch_vchannel(self, collection_id: CollectionID, vchannel: str) -> None:
        for follower in self._loaded(collection_id).unwatch(vchannel):
            await follower.stop()

    async def give_up_vchannel(self, collection_id: CollectionID, vchannel: str) -> None:
        collection = self._loaded(collection_id)
        followers = collection.give_up(vchannel)
        serving = self._serving.get(collection_id)
        if followers and serving is not None:
            await serving.pause()
        for follower in followers:
            await follower.stop()

    async def load_segment(self, request: LoadSegment) -> tuple[DamagedFile, ...]:
        collection = self._loaded(request.collection_id)
        segment_id = request.manifest.segment_id
        key = (collection, segment_id, files_of(request))
        held = collection.copy_of(segment_id)
        if held is None or held.files != files_of(request):
            await self._flights.join(key, lambda: self._loading.load(collection, request))
            held = collection.copy_of(segment_id)
        wanted = {file.path for file in request.indexes}
        return () if held is None else tuple(file for file in held.damaged if file.path in wanted)

    async def unload_segments(self, collection_id: CollectionID, segment_ids: Sequence[SegmentID]) -> None:
        self._loaded(collection_id).unstage(segment_ids)

    async def announce(self, change: SealedSegmentsChange) -> None:
        if change.incarnation not in ("", self._incarnation):
            raise NotReady(
                f"version {change.version} of collection {change.collection_id} was meant for query node "
                f"{self._node_id} as it was before its restart: read its status again"
            )
        await self._loaded(change.collection_id).take_version(change)

    async def forget_deletes(self, collection_id: CollectionID, vchannel: str, before: Timestamp) -> None:
        self._loaded(collection_id).forget_deletes(vchannel, before)

    async def set_partitions(self, collection_id: CollectionID, partition_ids: Sequence[PartitionID]) -> None:
        self._loaded(collection_id).set_partitions(partition_ids)

    async def add_query_channel(self, info: QueryChannelInfo) -> None:
        reads = self._channel_reads
        if reads is None:
            raise NotSupported("this query node answers its own process only: it takes no query channel")
        before = self._serving.get(info.collection_id)
        if before is not None and before.channel == info.channel and not before.lost:
            return
        collection = self._loaded(info.collection_id)
        serving = ChannelServing(
            self._node_id,
            collection,
            info,
            reads.channels,
            reads.proxies,
            reads.offload,
            self._search_threads,
            self._recall,
            partial(self._pulse.changed, info.collection_id),
        )
        await self._leave_channel(info.collection_id)
        await serving.start()
        try:
            while info.collection_id in self._serving:  # another call was faster
                await self._leave_channel(info.collection_id)
            collection.check_open()  # or a release was
        except BaseException:
            await serving.stop()
            raise
        self._serving[info.collection_id] = serving
        self._pulse.changed(info.collection_id)

    async def _leave_channel(self, collection_id: CollectionID) -> None:
        serving = self._serving.pop(collection_id, None)
        self._pulse.changed(collection_id)
        if serving is not None:
            await serving.stop()

    async def release_collection(self, collection_id: CollectionID) -> None:
        collection = self._collections.pop(collection_id, None)
        if collection is not None:  # at once: what is loaded or joined meanwhile is another
            collection.close(_not_loaded(collection_id))
        if self._recall is not None:
            self._recall.forget(collection_id)
        await self._leave_channel(collection_id)
        if collection is None:
            return
        for channel in collection.channels.values():
            for follower in channel.followers():
                await follower.stop()
                channel.withdraw(follower)
        if collection_id not in self._collections:  # else it is loaded again, and needs them
            self._loading.delta_logs.forget(collection.channels)

    async def status(self, collection_id: CollectionID = CollectionID(0)) -> QueryNodeStatus:
        collections = self._collections
        if collection_id:
            used_bytes = await self._used.of(collections)
            if collection_id in collections:
                await prepare([collections[collection_id]])
            status = collection_status(
                self._node_id,
                collections,
                collection_id,
                self._serving,
                used_bytes,
                self.growing_bytes,
                self._leading,
            )
        else:
            used_bytes = await self._used.now(collections)
            await prepare(collections.values())
            held = self._loading.held()
            whole = node_status(self._node_id, collections, self._serving, used_bytes, self.growing_bytes)
            status = replace(whole, held=held)
        return replace(
            status,
            used_bytes=status.used_bytes + self._beyond_segments_bytes(),
            capacity_bytes=self._capacity_bytes,
            incarnation=self._incarnation,
        )

    async def pulse(self) -> QueryNodePulse:
        return self._pulse.take(self.growing_bytes)

    def _beyond_segments_bytes(self) -> int:
        return self._dispatcher.waiting_bytes + self._loading.delta_logs.memory_bytes

    # reads

    @property
    def growing_bytes(self) -> int:
        """Bytes that grow with the log, with what waits for its tick. For any thread, at each write."""
        return self._growing_bytes + self._dispatcher.waiting_bytes

    def service_time(self, collection_id: CollectionID) -> Timestamp:
        return self._loaded(collection_id).clock.time

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, timeout_s: float) -> None:
        self._loaded(collection_id).clock.wait(ts, timeout_s)

    def search(self, request: NodeSearch) -> NodeHits:
        collection = self._loaded(request.collection_id)
        collection.searches.note()
        snapshot = collection.snapshot
        if self._recall is not None:
            request = self._recall.aimed(request)
        hits = reported(self._node_id, search, snapshot, request, self._search_threads)
        if self._recall is not None:
            self._recall.offer(snapshot, request, hits)
        return hits

    def query(self, request: NodeQuery) -> Mapping[str, pa.Array]:
        return reported(self._node_id, query, self._loaded(request.collection_id).snapshot, request)

    def statistics(self, request: NodeStatistics) -> TermStatistics:
        return statistics(self._loaded(request.collection_id).snapshot, request)

    def count(self, request: NodeQuery) -> int:
        return reported(self._node_id, count, self._loaded(request.collection_id).snapshot, request)

    # internals

    def invariants(self) -> None:
        """Raise `AssertionError` if the node's state is inconsistent. For tests and the simulator."""
        for collection in self._collections.values():
            check_collection(collection)
        self._pulse.check()
        led = sum(collection.leading for collection in self._collections.values())
        assert self._leading == led, f"LIVE1: {self._leading} vchannels are led, of the collections {led}"

    def _loaded(self, collection_id: CollectionID) -> LoadedCollection:
        collection = self._collections.get(collection_id)
        if collection is None:
            raise _not_loaded(collection_id)
        return collection

    def _dropped(self, collection_id: CollectionID) -> None:
        """Release a collection whose drop was read in the log, by one of the followers that must stop."""
        self._spawn(self.release_collection(collection_id))

    def _grew(self, collection_id: CollectionID, change_bytes: int) -> None:
        self._growing_bytes += change_bytes
        if change_bytes > 0:
            self._memory.arrived(change_bytes)
        self._pulse.changed(collection_id)

    def _on_load(self, size_bytes: int) -> None:
        self._used.add(size_bytes)
        self._memory.loaded(size_bytes)

    def _leads(self, change: int) -> None:
        self._leading += change

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


def _not_loaded(collection_id: CollectionID) -> CollectionNotLoaded:
    return CollectionNotLoaded(f"collection not loaded[collection={collection_id}]")
