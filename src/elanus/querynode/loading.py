"""Loading: the blocking work by which segments and growing rows come from files, off the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from elanus.api.querynode import LoadSegment, WatchVchannel
from elanus.core.errors import FieldNotFound, SegmentUnreadable
from elanus.core.ids import FieldID
from elanus.core.offload import Offload
from elanus.core.segments import BinlogFile
from elanus.index.spec import IndexSpec
from elanus.log.dispatcher import Dispatcher
from elanus.querynode.arrivals import Intake
from elanus.querynode.deletes import WriteMoments
from elanus.querynode.delta_logs import DeltaLogs, ThreadLock
from elanus.querynode.followed_vchannel import FollowedVchannel
from elanus.querynode.follower import Follower
from elanus.querynode.interim import Interim
from elanus.querynode.load_batches import LoadBatches
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.pack_absorber import PackAbsorber
from elanus.querynode.pinned_files import PinnedSegments
from elanus.querynode.recovery import Recovered, recover_growing, unreadable
from elanus.querynode.sealed import SealedSegment, load_sealed
from elanus.querynode.write_deletes import Batches, read_write
from elanus.storage.mapped_columns import forget_name
from elanus.storage.port import CorruptObject, ObjectMissing, ObjectStore

_DELTA_LOGS_KEPT_S = 30.0
"""How long after a load the deletes of its vchannel are kept, if they are more than may be kept for long."""


class Loading:
    """For the loop thread. ``offload``: where files are read. ``scratch``: its own directory, for copies of
    index files and of columns, emptied at the start.

    ``on_load``: called with the bytes of each loaded segment. ``interim``: makes what joins a follower's
    growing blocks, given what to call when a block is made. ``held``: the sealed segments whose files may
    still be read. ``shared``, ``new_lock``: see `elanus.querynode.node.QueryNodePolicy`.
    """

    def __init__(
        self,
        store: ObjectStore,
        offload: Offload,
        scratch: Path,
        dispatcher: Dispatcher,
        fetches_max: int,
        on_load: Callable[[int], None],
        interim: Callable[..., Interim],
        shared: Path | None = None,
        new_lock: Callable[[], ThreadLock] = threading.Lock,
    ) -> None:
        self._shared = shared
        self.offload = offload
        self.held = PinnedSegments()
        self.delta_logs = DeltaLogs(store, fetches_max, new_lock)
        self._batches = LoadBatches()
        self._store = store
        self._scratch = scratch
        self._dispatcher = dispatcher
        self._on_load = on_load
        self._interim = interim
        self._trimming: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        await self.offload(self._empty_scratch)

    def _empty_scratch(self) -> None:
        """Remove what a killed process left while it copied or mapped a file, and the names it gave."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        for left in self._scratch.iterdir():
            forget_name(left, self._shared or self._scratch)

    def stop(self) -> None:
        if self._trimming is not None:
            self._trimming.cancel()

    async def read_writes(
        self, collection: LoadedCollection, channel: FollowedVchannel, request: WatchVchannel
    ) -> None:
        """Read the deletes of writes that reach rows otherwise than by the log and by what is loaded.

        Those of the request that are not served yet wait for their version. Those that are served, but later
        than the checkpoint, concern rows that are still to be read from the log. Those that have been served
        without this node are applied to what it holds.
        """
        writes, moments = channel.writes, WriteMoments.of(request.moments)

        async def read(file: BinlogFile) -> Batches:
            batches = await self.offload(read_write, self._store, file, moments)
            collection.check_current(channel)
            return batches

        writes.listed(request)
        missed = writes.missed(request) if channel.followers() else []
        late = [log.file for log in request.delta_logs if log.file.ts_max > request.checkpoint.ts]
        for file in missed:
            if writes.unread([file]):
                writes.serve(file, await read(file))
            writes.catch_up(file)
        for file in writes.unread(late):
            writes.serve(file, await read(file))
        for file in writes.unread(log.file for log in request.unserved):
            writes.wait(file, await read(file), request.checkpoint.ts)
        writes.know(request)
        await collection.apply_writes()

    async def watch(
        self,
        collection: LoadedCollection,
        channel: FollowedVchannel,
        request: WatchVchannel,
        intake: Intake,
    ) -> None:
        """Follow a vchannel from the request's checkpoint on, and return when it is served."""
        channel.check_alive()
        collection.check_open()
        follower = Follower(
            request,
            collection.schema,
            collection.specs,
            collection.covers_for_follower(channel).without(request.leaving),
            PackAbsorber(collection),
            intake,
            partial(self._interim, is_wanted=collection.is_searched),
            collection.written_schema,
        )
        collection.propose(channel, follower)
        try:
            async with collection.loads:
                recovered = await self.offload(
                    recover_growing,
                    request,
                    collection.schema,
                    collection.specs,
                    follower.coverage,
                    self._store,
                    self.delta_logs,
                )
            await self._delete_by_writes(channel, recovered)
            collection.check_current(channel)
            if channel.holds(collection.wanted) and recovered.damaged == channel.unrecovered():
                channel.withdraw(follower)  # nothing that could not be recovered before can be now
                return
            follower.start(self._dispatcher, recovered)
        except BaseException:
            channel.withdraw(follower)
            raise
        collection.settle(channel)
        collection.publish()
        await channel.taken_over(follower)

    async def _delete_by_writes(self, channel: FollowedVchannel, recovered: Recovered) -> None:
        """Apply the deletes of writes that a version has named, or names meanwhile, to recovered rows."""
        applied = 0
        while recovered.segments and channel.writes.changes != applied:
            applied = channel.writes.changes
            await self.offload(_delete, recovered, channel.writes.in_effect())

    async def load(self, collection: LoadedCollection, request: LoadSegment) -> None:
        """Load a sealed segment and stage it. Raises as `QueryNodeApi.load_segment` does."""
        collection.check_loadable(request)
        with self.held.loading(request.manifest.segment_id):
            try:
                read = self._reader(collection)
                segment = await self._batches.load(collection, request, read, self.offload)
            except (CorruptObject, ObjectMissing, FieldNotFound) as error:
                raise SegmentUnreadable(unreadable(request.manifest, error)) from error
            self.held.keep(segment.segment_id, segment.blocks)
        self._on_load(segment.memory_bytes)
        self._trim_delta_logs_later()
        await collection.stage(segment, request)

    def _reader(self, collection: LoadedCollection) -> Callable[[LoadSegment], SealedSegment]:
        """Return what reads a segment of the collection. For a worker thread."""
        schema, specs, warmed = collection.schema, self._specs(collection), collection.warmed

        def read_segment(request: LoadSegment) -> SealedSegment:
            return load_sealed(
                request, schema, specs, self._store, self.delta_logs, self._scratch, warmed, self._shared
            )

        return read_segment

    def _specs(self, collection: LoadedCollection) -> Mapping[FieldID, IndexSpec]:
        if self._shared is None:
            return collection.specs
        return {field: replace(spec, memory_mapped=True) for field, spec in collection.specs.items()}

    def _trim_delta_logs_later(self) -> None:
        self.stop()
        loop = asyncio.get_running_loop()
        self._trimming = loop.call_later(_DELTA_LOGS_KEPT_S, self.delta_logs.trim)


def _delete(recovered: Recovered, deletes: Batches) -> None:
    for segment in recovered.segments:
        segment.delete([batch for batch in deletes if batch.concerns(segment.partition_id)])
