"""A loaded collection: how loads, packs, segments and versions change what is held.

Each change is one step on the loop thread (`elanus.querynode.held_collection`). Deletes are the exception:
many of them take long, and are applied in threads. No read sees them before they have been applied to every
segment, because only then does the vchannel's tick move past them.

Imported rows have no growing copy, and are served some time after the commit from which they count. Reads in
between may have been answered without them. The version says from which timestamp on reads see them, the same
on all nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from elanus.api.querynode import LoadCollection, LoadSegment, SealedSegmentsChange
from elanus.core.errors import NotReady, PartitionNotLoaded, SegmentNotFound
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.querynode.coverage import Coverage
from elanus.querynode.delete_applier import DeleteApplier
from elanus.querynode.deletes import DeleteBatch, DeleteBuffer
from elanus.querynode.followed_vchannel import FollowedVchannel
from elanus.querynode.follower import Follower, PackEffect
from elanus.querynode.growing import GrowingBlock, GrowingSegment
from elanus.querynode.held_collection import Blocks, HeldCollection, coverage_of
from elanus.querynode.index_specs import check_same_indexes
from elanus.querynode.key_ranges import Visits, visits_to
from elanus.querynode.sealed import SealedSegment
from elanus.querynode.search_interest import SearchInterest

_LOADS_MAX = 2
"""How many loads of one collection run at a time: the others' loads find a free thread."""


class LoadedCollection(HeldCollection):
    """A loaded collection. Implements `elanus.querynode.follower.Absorber`.

    ``applier``: applies deletes. ``on_drop``: called when the collection's drop is read in its log.
    ``on_release``, ``on_growth`` and ``on_leading``: see `HeldCollection`.
    """

    def __init__(
        self,
        request: LoadCollection,
        applier: DeleteApplier,
        on_drop: Callable[[CollectionID], None],
        on_release: Callable[[Blocks], None],
        on_growth: Callable[[int], None],
        on_leading: Callable[[int], None],
    ) -> None:
        super().__init__(request, on_release, on_growth, on_leading)
        self.loads = asyncio.Semaphore(_LOADS_MAX)
        self._loop = asyncio.get_running_loop()
        self.searches = SearchInterest(lambda: self._loop.call_soon_threadsafe(self._searched))
        self._applier = applier
        self._on_drop = on_drop

    # searches

    def is_searched(self) -> bool:
        """Whether the collection was searched lately. On the loop thread."""
        return self.searches.is_recent(self._loop.time())

    def _searched(self) -> None:
        for channel in self.channels.values():
            for follower in channel.followers():
                follower.searched()

    # what is wanted

    def want(self, request: LoadCollection) -> None:
        """Apply a repeated load request. Raises `IndexConflict` for another index of a loaded field."""
        check_same_indexes(self.specs, request)
        self.wanted = coverage_of(request)

    def set_partitions(self, partition_ids: Sequence[PartitionID]) -> None:
        """See `QueryNodeApi.set_partitions`."""
        chosen = self.wanted if self.wanted.whole else Coverage.of(partition_ids)
        for channel in self.channels.values():
            if channel.follower is not None and not channel.holds(chosen):
                raise PartitionNotLoaded(
                    f"not all rows of {sorted(chosen.named)} were taken in on vchannel {channel.vchannel}: "
                    "watch it again first"
                )
        if not self.wanted.whole:
            gone = [
                segment
                for channel in self.channels.values()
                if channel.rows
                for f in channel.followers()
                for segment in f.restrict(f.coverage.narrowed(partition_ids))
            ]
            self._let_go(gone)
            self._drop_sealed(lambda s: s.partition_id not in chosen.named)
        partitions = None if self.wanted.whole else chosen.named
        if partitions != self._partitions:
            self._partitions = partitions
            self._views.changed()
        self.publish()

    def covers_for_follower(self, channel: FollowedVchannel) -> Coverage:
        """Return what a follower that starts now must take in: what is wanted, and what is served."""
        if not channel.rows:
            return Coverage.nothing()
        served = self._partitions
        if self.wanted.whole or served is None:
            return Coverage.everything()
        return Coverage.of(self.wanted.named | served)

    def unwatch(self, vchannel: str) -> list[Follower]:
        """Forget a vchannel; return its followers, to be stopped. See `QueryNodeApi.unwatch_vchannel`."""
        channel = self.channels.get(vchannel)
        if channel is None:
            return []
        needing = self._held.of_vchannel(vchannel)
        if vchannel in self.leads or needing:
            why = f"segments {needing} need its deletes" if needing else "this node leads it"
            raise NotReady(
                f"vchannel {vchannel} cannot be let go: {why}; announce a version without them before"
            )
        self.channels[vchannel] = FollowedVchannel(vchannel)
        channel.gone()
        self.publish()
        return channel.followers()

    def give_up(self, vchannel: str) -> list[Follower]:
        """See `QueryNodeApi.give_up_vchannel`. Returns the followers, to be stopped."""
        channel = self.channels.get(vchannel)
        followers = channel.followers() if channel is not None and channel.failure is not None else []
        if channel is None or not followers:
            return []
        gone: list[SealedSegment | GrowingSegment] = [*self._held.drop(lambda s: s.vchannel == vchannel)]
        gone += self._held.withdraw()
        for follower in followers:
            follower.retire()
            gone += follower.growing.clear()
        channel.gone()
        self.channels[vchannel] = FollowedVchannel(vchannel)
        # The version in force does not name the segments that were flushed since: only a later one does.
        self._given_up = max(self._given_up, self._version)
        self._version = 0
        self._served = NO_TIMESTAMP, ()
        self._views.changed()
        self._let_go(gone)
        self.publish()
        return followers

    # packs

    async def absorb(self, follower: Follower, effect: PackEffect) -> None:
        """Apply the effect of packs that a follower has taken in, and publish it: its tick moves after this.

        No follower takes over from another meanwhile (`FollowedVchannel.settle`).
        """
        channel = self.channels[follower.vchannel]
        deletes = await self._applier.sort(effect.deleting, self.schema.primary_field.name)
        if not self._follows(channel, follower):
            return
        late = channel.writes.of_later_rows(follower.tick)
        visits = follower.growing.concerned([*deletes, *late])
        if channel.follower is follower:
            channel.deletes.keep(effect.tick, deletes)
            visits += self._delete(channel.vchannel, deletes)
        await self._applier.apply(visits)
        if self._follows(channel, follower):
            self._finish(channel, follower, effect)

    def _follows(self, channel: FollowedVchannel, follower: Follower) -> bool:
        return self.closed is None and follower in channel.followers()

    def _delete(self, vchannel: str, deletes: Sequence[DeleteBatch]) -> list[Visits]:
        """Return the visits by which deletes reach the vchannel's sealed segments."""
        return self._held.concerned(vchannel, deletes)

    def _finish(self, channel: FollowedVchannel, follower: Follower, effect: PackEffect) -> None:
        """The effect's deletes have been applied: do the rest of it."""
        if effect.dropped_partitions:
            self._let_go(follower.restrict(follower.coverage))
        if channel.follower is follower:
            self._drop_partitions(channel.vchannel, effect.dropped_partitions)
            if effect.drops_collection:
                self._on_drop(self.collection_id)
                return
        if effect.dropped_partitions:
            self.publish()
        else:
            self.publish_rows(channel)

    def queued(self, follower: Follower) -> None:
        """A follower has taken packs that it applies later: they are held in memory meanwhile."""
        channel = self.channels[follower.vchannel]
        if self._follows(channel, follower):
            self._weigh_one(channel)

    def exchanged(self, follower: Follower, gone: Sequence[GrowingBlock]) -> None:
        """A larger block has taken the place of these blocks; none: their segment had been released."""
        channel = self.channels[follower.vchannel]
        if not self._follows(channel, follower):
            return
        if gone:
            self._on_release(tuple(gone))
            self.publish_rows(channel)
        else:
            self._weigh_one(channel)

    def absorbed(self, follower: Follower) -> None:
        """A follower's tick has moved past an effect: wake who waits for that."""
        channel = self.channels[follower.vchannel]
        if not self._follows(channel, follower):
            return
        if channel.successor is not None or not channel.joined:
            self.settle(channel)
            self.publish()
        else:
            self._weigh_one(channel)
        self.clock.rewatch_soon()

    def ticked(self, follower: Follower) -> bool:
        """A follower's tick may have moved without an effect.

        Returns whether to call this at the next tick: until the vchannel has caught up and no follower waits
        to take over.
        """
        channel = self.channels[follower.vchannel]
        if not self._follows(channel, follower):
            return False
        self.settle(channel)
        self.publish()
        return channel.failure is None and not (channel.joined and channel.successor is None)

    def failed(self, follower: Follower) -> None:
        """Nothing more comes from a follower: its reading has ended in an error."""
        channel = self.channels[follower.vchannel]
        if self._follows(channel, follower):
            self.settle(channel)
            if channel.failure is not None:
                channel.gone()
                self.log_troubles.failed(follower)
                if text := self.log_troubles.texts.get(follower.vchannel):
                    self.clock.stop(text)
            self.publish()

    def forget_deletes(self, vchannel: str, before: Timestamp) -> None:
        """See `QueryNodeApi.forget_deletes`.

        A follower that lags has yet to read rows that a write's deletes concern, although the checkpoint has
        passed both.
        """
        channel = self.channels.get(vchannel)
        if channel is not None:
            channel.deletes.forget(before)
            read = min((follower.tick for follower in channel.followers()), default=NO_TIMESTAMP)
            channel.writes.forget(min(before, read))
            self._weigh_one(channel)

    def _drop_partitions(self, vchannel: str, dropped: frozenset[PartitionID]) -> None:
        if dropped:
            self._drop_sealed(lambda s: s.vchannel == vchannel and s.partition_id in dropped)

    # sealed segments

    def check_loadable(self, request: LoadSegment) -> FollowedVchannel:
        """Return the vchannel whose deletes the segment needs. Raises as `QueryNodeApi.load_segment` does."""
        self.check_open()
        manifest = request.manifest
        channel = self.channels.get(manifest.vchannel)
        if channel is None or channel.follower is None:
            raise NotReady(
                f"segment {manifest.segment_id} needs vchannel {manifest.vchannel}: watch it before"
            )
        if request.checkpoint.ts < channel.deletes.floor:
            raise NotReady(
                f"segment {manifest.segment_id} is to be loaded as of {request.checkpoint.ts}, but deletes "
                f"of {manifest.vchannel} are kept only since {channel.deletes.floor}: use a newer checkpoint"
            )
        if not self._takes(channel.follower, manifest.partition_id):
            raise PartitionNotLoaded(f"partition not loaded[partition={manifest.partition_id}]")
        return channel

    def _takes(self, follower: Follower, partition_id: PartitionID) -> bool:
        """Whether sealed segments of the partition may be served together with what the follower takes in."""
        if self.channels[follower.vchannel].rows:
            return follower.coverage.takes(partition_id)
        return partition_id not in follower.coverage.dropped and self.wanted.takes(partition_id)

    async def stage(self, segment: SealedSegment, request: LoadSegment) -> None:
        """Keep a loaded segment for the version that will name it, with all deletes up to now applied.

        Raises as `check_loadable` does.
        """
        channel = self.check_loadable(request)
        deletes = channel.deletes
        self._held.join(segment)
        try:
            since = [*deletes.since(request.checkpoint.ts), *channel.writes.in_effect()]
            await self._applier.apply(visits_to([segment], since))
            self._check_still_loadable(segment, channel, deletes)
        except BaseException:
            self._held.leave((segment,))
            raise
        self._let_go(self._held.stage(segment))

    def _check_still_loadable(
        self, segment: SealedSegment, channel: FollowedVchannel, deletes: DeleteBuffer
    ) -> None:
        """Raise if the segment may have missed deletes while its own were applied, or is not wanted now."""
        self.check_open()
        current = self.channels.get(segment.vchannel)
        if current is not channel or channel.follower is None or channel.deletes is not deletes:
            raise NotReady(
                f"segment {segment.segment_id} was loaded while vchannel {segment.vchannel} was given up: "
                "watch the vchannel and load the segment again"
            )
        if not self._takes(channel.follower, segment.partition_id):
            raise PartitionNotLoaded(f"partition not loaded[partition={segment.partition_id}]")

    def unstage(self, segment_ids: Iterable[SegmentID]) -> None:
        """Release loaded segments that no version will name here."""
        self._let_go(self._held.unstage(segment_ids))

    async def take_version(self, change: SealedSegmentsChange) -> None:
        """As `announce`, after the deletes of writes that take effect with the version have been applied.

        Reads do not see them before the version's moments, which leave time for this. The views of segments
        that come online are made before as well, so that the switch itself is short.
        """
        if change.version > self._version:
            coming = [segment for s in change.online if (segment := self.copy_of(s)) is not None]
            await self._views.prepare(coming, change.visible_from)
        if change.deletes and change.version > self._version:
            self._check(change)
            for channel in self.channels.values():
                deletes = channel.writes.announced(change.deletes)
                visits = self._delete(channel.vchannel, deletes)
                for follower in channel.followers():
                    visits += follower.growing.concerned(deletes)
                await self._applier.apply(visits)
        self.announce(change)

    def announce(self, change: SealedSegmentsChange) -> None:
        """See `QueryNodeApi.announce`."""
        if change.version <= self._version:
            return
        leads = self._check(change)
        gone: list[SealedSegment | GrowingSegment] = [*self._held.put_online(change.online)]
        self._views.set_visible_from(change.online, change.visible_from)
        gone += self._held.release(change.offline)
        replaced = {*change.online, *change.offline, *change.elsewhere}
        serving = self.serving
        replaced.update(parent for segment_id in change.online for parent in serving[segment_id].parents)
        for channel in self.channels.values():
            gone += channel.release(replaced)
        was_served = self._version or self._given_up
        lost = self.leads - leads if was_served else ()  # before a first version nothing was led
        self._version = change.version
        self._missing = change.missing
        self._views.changed()
        self.leads = leads
        gone += self._stop_leading(lost)
        self._let_go(gone)
        self.publish()

    def _check(self, change: SealedSegmentsChange) -> frozenset[str]:
        """Return the vchannels that are led under the version. Raises as `QueryNodeApi.announce` does."""
        if change.version <= self._given_up:
            raise NotReady(f"a vchannel was given up under version {self._given_up}: a later one is awaited")
        staged, serving = self.staged, self.serving
        missing = [s for s in change.online if s not in staged and s not in serving]
        if missing:
            raise SegmentNotFound(
                f"version {change.version} names segments that are not ready here: {missing}"
            )
        leads = self.leads if change.leads is None else frozenset(change.leads)
        self._check_followed(change, leads)
        return leads

    def _check_followed(self, change: SealedSegmentsChange, leads: frozenset[str]) -> None:
        """Raise `NotReady` if the version needs a vchannel that has not caught up."""
        if change.leads is not None:
            for vchannel in change.leads:
                channel = self.channels.get(vchannel)
                if channel is None or not channel.joined or not (channel.rows and channel.holds(self.wanted)):
                    raise NotReady(
                        f"vchannel {vchannel} is to be led, but its rows are not here: watch it before"
                    )
        behind = {v for v, channel in self.channels.items() if v not in leads and not channel.joined}
        for segment_id in change.online if behind else ():
            held = self.copy_of(segment_id)
            if held is not None and held.vchannel in behind:
                raise NotReady(
                    f"segment {segment_id} needs vchannel {held.vchannel}, which has not caught up"
                )

    def _stop_leading(self, vchannels: Iterable[str]) -> list[GrowingSegment]:
        """Follow these vchannels only for their deletes from now on; return their growing segments."""
        gone: list[GrowingSegment] = []
        for vchannel in vchannels:
            channel = self.channels[vchannel]
            channel.rows = False
            for follower in channel.followers():
                gone += follower.restrict(follower.coverage.narrowed(()))
        return gone
