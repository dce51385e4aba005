"""Loading: the blocking work by which segments and growing rows come from files, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from elanus.api.querynode import LoadSegment, WatchVchannel
from elanus.core.errors import FieldNotFound, SegmentUnreadable
from elanus.core.offload import Offload
from elanus.log.dispatcher import Dispatcher
from elanus.querynode.arrivals import Intake
from elanus.querynode.delta_logs import DeltaLogs
from elanus.querynode.followed_vchannel import FollowedVchannel
from elanus.querynode.follower import Follower
from elanus.querynode.interim import Interim
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.pinned_files import PinnedSegments
from elanus.querynode.recovery import recover_growing, unreadable
from elanus.querynode.sealed import load_sealed
from elanus.storage.port import CorruptObject, ObjectMissing, ObjectStore

_DELTA_LOGS_KEPT_S = 30.0
"""How long after a load the deletes of its vchannel are kept, if they are more than may be kept for long."""


class Loading:
    """For the loop thread. ``offload``: where files are read. ``scratch``: for copies of index files.

    ``on_load``: called with the bytes of each loaded segment. ``interim``: makes what joins a follower's
    growing blocks, given what to call when a block is made. ``held``: the sealed segments whose files may
    still be read.
    """

    def __init__(
        self,
        store: ObjectStore,
        offload: Offload,
        scratch: Path,
        dispatcher: Dispatcher,
        fetches_max: int,
        on_load: Callable[[int], None],
        interim: Callable[[Callable[[], None]], Interim],
    ) -> None:
        self.offload = offload
        self.held = PinnedSegments()
        self.delta_logs = DeltaLogs(store, fetches_max)
        self._store = store
        self._scratch = scratch
        self._dispatcher = dispatcher
        self._on_load = on_load
        self._interim = interim
        self._trimming: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        await self.offload(lambda: self._scratch.mkdir(parents=True, exist_ok=True))

    def stop(self) -> None:
        if self._trimming is not None:
            self._trimming.cancel()

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
            collection,
            intake,
            self._interim,
        )
        channel.propose(follower)
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

    async def load(self, collection: LoadedCollection, request: LoadSegment) -> None:
        """Load a sealed segment and stage it. Raises as `QueryNodeApi.load_segment` does."""
        async with collection.loads:
            collection.check_loadable(request)
            with self.held.loading(request.manifest.segment_id):
                try:
                    segment = await self.offload(
                        load_sealed,
                        request,
                        collection.schema,
                        collection.specs,
                        self._store,
                        self.delta_logs,
                        self._scratch,
                    )
                except (CorruptObject, ObjectMissing, FieldNotFound) as error:
                    raise SegmentUnreadable(unreadable(request.manifest, error)) from error
                self.held.keep(segment.segment_id, segment.blocks)
            self._on_load(segment.memory_bytes)
            self._trim_delta_logs_later()
            await collection.stage(segment, request)

    def _trim_delta_logs_later(self) -> None:
        self.stop()
        loop = asyncio.get_running_loop()
        self._trimming = loop.call_later(_DELTA_LOGS_KEPT_S, self.delta_logs.trim)
