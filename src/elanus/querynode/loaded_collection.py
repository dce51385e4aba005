"""A collection that is loaded: what a query node holds of it, and the snapshot of that which reads take.

All changes happen on the loop thread, each in one step between two awaits, and end with `publish`, which
replaces the snapshot. So a version switch (sealed segments come online, the growing copies they replace are
released) is one assignment, and no read sees half of it. Rows that arrive (`elanus.querynode.pack_absorber`)
change one vchannel only, and end with `publish_rows`: an insert into many shards publishes once for each of
them. A tick alone changes nothing here: the service time is looked up in the tick lines of the vchannels when
it is asked for.

Imported rows have no growing copy, and are served some time after the commit from which they count. Reads in
between may have been answered without them. The version says from which timestamp on reads see them, the same
on all nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain

from elanus.api.query_channel import MissingSegment
from elanus.api.querynode import LoadCollection, LoadSegment, SealedSegmentsChange
from elanus.core.errors import ElanusError, NotReady, PartitionNotLoaded
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.querynode.block import Block
from elanus.querynode.coverage import Coverage
from elanus.querynode.delete_applier import DeleteApplier
from elanus.querynode.deletes import DeleteBatch
from elanus.querynode.followed_vchannel import FollowedVchannel, gaps_of
from elanus.querynode.follower import Follower
from elanus.querynode.growing import GrowingSegment
from elanus.querynode.growth import Growth
from elanus.querynode.held_segments import HeldSegments
from elanus.querynode.index_specs import check_same_indexes, index_specs
from elanus.querynode.key_ranges import Visits, visits_to
from elanus.querynode.load_checks import check_still_loadable, loadable
from elanus.querynode.loaded_fields import Unloaded, held_schema
from elanus.querynode.log_troubles import LogTroubles
from elanus.querynode.sealed import SealedSegment
from elanus.querynode.sealed_servings import SealedServings
from elanus.querynode.sealed_views import SealedViews
from elanus.querynode.search_interest import SearchInterest
from elanus.querynode.service_clock import ServiceClock
from elanus.querynode.snapshot import PublishedSnapshot, Snapshot, SnapshotSegment
from elanus.querynode.version_checks import check_segments, check_vchannels

Blocks = tuple[Block, ...]
_LOADS_MAX = 2
"""How many loads of one collection run at a time: the others' loads find a free thread."""


class LoadedCollection:
    """A loaded collection: its vchannels and segments, and the snapshot of them.

    ``written_schema``: that of the log; ``schema``: that of what is held. ``wanted``: the rows that the load
    asks for. ``leads``: the vchannels whose growing rows are served. ``applier``: applies deletes.
    ``on_drop``: called when the collection's drop is read in its log. ``on_release``: called with the blocks
    that a change released; reads may still hold them. ``on_growth``: called at the end of each step that
    changes anything here, with the change of ``growing_bytes``, which may be 0. ``on_leading``: called with
    the change of ``leading``.
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
        self.collection_id: CollectionID = request.collection_id
        self.written_schema = request.schema
        self.schema = held_schema(request.schema, request.left_out)
        self._unloaded = Unloaded.of(request.schema, request.left_out)
        self.specs = index_specs(request)
        self.warmed = request.warmed
        self.channels = {vchannel: FollowedVchannel(vchannel) for vchannel in request.vchannels}
        self.wanted = coverage_of(request)
        self.leads = frozenset(request.vchannels)
        self._held = HeldSegments()
        self._views = SealedViews()
        self.servings = SealedServings(request.collection_id)
        self._missing: Mapping[SegmentID, MissingSegment] = {}
        self._served: tuple[Timestamp, tuple[FollowedVchannel, ...]] = (NO_TIMESTAMP, ())
        """The vchannels whose lowest tick is the service time, and the service time if there are none."""
        self.clock = ServiceClock(self._service_time, self._watch_ticks)
        self.log_troubles = LogTroubles()
        self.closed: ElanusError | None = None
        self._on_release = on_release
        self._on_leading = on_leading
        self._version = 0
        self._given_up = 0  # the version in which a vchannel failed last
        self._partitions = None if self.wanted.whole else self.wanted.named
        self._growing: dict[str, tuple[SnapshotSegment, ...]] = {}
        """The growing segments of each led vchannel, as the snapshot has them."""
        self._published = PublishedSnapshot(self._take_snapshot(NO_TIMESTAMP))
        self._growth = Growth(on_growth)
        self.leading = 0
        """The number of led vchannels that are followed."""
        self.loads = asyncio.Semaphore(_LOADS_MAX)
        self._loop = asyncio.get_running_loop()
        self.searches = SearchInterest(lambda: self._loop.call_soon_threadsafe(self._searched))
        self.applier = applier
        self.on_drop = on_drop

    @property
    def serving(self) -> Mapping[SegmentID, SealedSegment]:
        """The sealed segments of the version in force."""
        return self._held.serving

    @property
    def staged(self) -> Mapping[SegmentID, SealedSegment]:
        """The sealed segments that are loaded for a version to come."""
        return self._held.staged

    @property
    def sealed_views(self) -> tuple[SnapshotSegment, ...]:
        """The sealed segments that are served, as reads see them; the same tuple while none changes."""
        return self._views.of(self.serving, self._partitions)

    @property
    def version(self) -> int:
        return self._published.version

    @property
    def snapshot(self) -> Snapshot:
        """The current state, at the current service time. May be taken by any thread."""
        service_ts = NO_TIMESTAMP if self.closed is not None else self.clock.time
        return self._published.at(service_ts)  # after the time was read: it has everything up to it

    def check_current(self, channel: FollowedVchannel) -> None:
        """Raise if the collection was closed, or the vchannel was given up or unwatched."""
        self.check_open()
        if self.channels.get(channel.vchannel) is not channel:
            raise NotReady(f"vchannel {channel.vchannel} was let go meanwhile: watch it again")

    def check_open(self) -> None:
        """Raise the error that the collection was closed with, if it was."""
        if self.closed is not None:
            raise type(self.closed)(self.closed.message)

    def copy_of(self, segment_id: SegmentID) -> SealedSegment | None:
        """Return the newest copy of a sealed segment, served or not."""
        return self._held.newest(segment_id)

    def publish(self) -> None:
        """Publish the current state to reads."""
        before = self._service_time()
        for channel in self.channels.values():
            if channel.follower is not None and self.log_troubles.is_proven(channel.follower):
                channel.join(before)
            if channel.follower is not None and channel.joined and channel.failure is None:
                self.log_troubles.joined(channel.follower)
        # before a first version nothing is served
        channels = self.channels.values() if self._version else ()
        counting = tuple(c for c in channels if c.joined or c.vchannel in self.leads)
        served = min((channel.tick for channel in counting), default=before)
        assert served >= before, f"TT3: service time would go back from {before} to {served}"
        self._published = PublishedSnapshot(self._take_snapshot(served))
        self._served = (served, counting)
        self._count_leading()
        self._weigh_all()
        if self.clock.stopped and self._version and all(c.joined and c.failure is None for c in channels):
            self.clock.go_on()
        self.clock.rewatch()

    def publish_rows(self, channel: FollowedVchannel) -> None:
        """Publish the growing segments of one vchannel: as `publish`, when only they have changed."""
        if channel.vchannel in self.leads:
            self._growing[channel.vchannel] = self._growing_of(channel)
            self._published = PublishedSnapshot(self._published.with_segments(self._segments()))
        self.weigh(channel)

    def _count_leading(self) -> None:
        """Update ``leading``."""
        followed = (v for v in self.leads if self.channels[v].follower is not None)
        leading = sum(1 for _ in followed) if self.closed is None else 0
        if leading != self.leading:
            self._on_leading(leading - self.leading)
            self.leading = leading

    @property
    def growing_bytes(self) -> int:
        """Bytes that grow with the log (`elanus.querynode.growth`)."""
        return self._growth.total_bytes

    def weigh(self, channel: FollowedVchannel) -> None:
        """Update ``growing_bytes`` after a change in one vchannel."""
        if self.closed is None:
            self._growth.weigh(channel)

    def _weigh_all(self) -> None:
        self._growth.weigh_all(self.channels.values() if self.closed is None else ())

    def close(self, error: ElanusError) -> None:
        """Stop serving and release everything. Everyone who waits gets the error."""
        self.closed = error
        self.clock.close(error)
        self._views.changed()
        self.release_segments(self._held.drop_all())
        for channel in self.channels.values():
            for follower in channel.followers():
                follower.retire()
                self.release_segments(follower.growing.clear())
            channel.gone()
        self._published = PublishedSnapshot(self._take_snapshot(NO_TIMESTAMP))
        self._count_leading()
        self._weigh_all()

    def _service_time(self) -> Timestamp:
        """Return the lowest tick of the vchannels whose rows are served here or whose deletes are needed."""
        served, counting = self._served
        return min((channel.tick for channel in counting), default=served)

    def _watch_ticks(self, watcher: Callable[[], bool]) -> None:
        """Have ``watcher`` called when the service time may have moved. May be called by any thread."""
        for channel in self._served[1]:
            channel.watch(watcher)

    def _take_snapshot(self, service_ts: Timestamp) -> Snapshot:
        led = (channel for vchannel, channel in self.channels.items() if vchannel in self.leads)
        self._growing = {channel.vchannel: self._growing_of(channel) for channel in led}
        missing = {**self._missing, **gaps_of(self.channels[vchannel] for vchannel in self.leads)}
        return Snapshot(
            collection_id=self.collection_id,
            schema=self.schema,
            unloaded=self._unloaded,
            specs=self.specs,
            version=self._version,
            service_ts=service_ts,
            partitions=self._partitions,
            segments=self._segments(),
            missing={s: gap for s, gap in missing.items() if self._serves(gap.partition_id)},
        )

    def _growing_of(self, channel: FollowedVchannel) -> tuple[SnapshotSegment, ...]:
        """Return the growing segments of a led vchannel, as reads see them."""
        segments = () if channel.follower is None else channel.follower.growing.values()
        return tuple(
            SnapshotSegment(s.segment_id, s.partition_id, sealed=False, blocks=s.blocks)
            for s in segments
            if self._serves(s.partition_id)
        )

    def _segments(self) -> tuple[SnapshotSegment, ...]:
        return (*self.sealed_views, *chain.from_iterable(self._growing.values()))

    def _serves(self, partition_id: PartitionID) -> bool:
        return self._partitions is None or partition_id in self._partitions

    def release_segments(self, segments: Collection[SealedSegment | GrowingSegment]) -> None:
        """Release the blocks of segments that are not held any more."""
        self.servings.forget(segments)
        self.release_blocks([block for segment in segments for block in segment.blocks])

    def release_blocks(self, blocks: Sequence[Block]) -> None:
        if blocks:
            self._on_release(tuple(blocks))

    def propose(self, channel: FollowedVchannel, follower: Follower) -> None:
        """Register a follower that prepares to start: the log is needed from its checkpoint on."""
        channel.propose(follower)
        self._weigh_all()

    def settle(self, channel: FollowedVchannel) -> None:
        """Let a successor take over if it can."""
        done_with = channel.settle()
        if done_with is not None:
            self.release_segments(done_with.growing.clear())
            done_with.retire()

    def drop_sealed(self, goes: Callable[[SealedSegment], bool]) -> None:
        """Release the sealed segments for which ``goes`` is true, served or not."""
        gone = self._held.drop(goes)
        if gone:
            self._views.changed()
            self.release_segments(gone)

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
            led = [channel for channel in self.channels.values() if channel.rows]
            self.release_segments([segment for channel in led for segment in channel.narrow(partition_ids)])
            self.drop_sealed(lambda s: s.partition_id not in chosen.named)
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
        followers = channel.followers()
        for follower in followers:  # all of them now: the caller may be cancelled while it waits for one
            follower.retire()
        return followers

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
        self.release_segments(gone)
        self.publish()
        return followers

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
            self.weigh(channel)

    # sealed segments

    def sealed_visits(self, vchannel: str, deletes: Sequence[DeleteBatch]) -> list[Visits]:
        """Return the visits by which deletes reach the vchannel's sealed segments."""
        return self._held.concerned(vchannel, deletes)

    def check_loadable(self, request: LoadSegment) -> FollowedVchannel:
        """Return the vchannel whose deletes the segment needs. Raises as `QueryNodeApi.load_segment` does."""
        self.check_open()
        return loadable(request, self.channels, self.wanted)

    async def stage(self, segment: SealedSegment, request: LoadSegment) -> None:
        """Keep a loaded segment for the version that will name it, with all deletes up to now applied.

        Raises as `check_loadable` does.
        """
        channel = self.check_loadable(request)
        deletes = channel.deletes
        self._held.join(segment)
        try:
            since = [*deletes.since(request.checkpoint.ts), *channel.writes.in_effect()]
            await self.applier.apply(visits_to([segment], since))
            self.check_open()
            check_still_loadable(segment, channel, deletes, self.channels, self.wanted)
        except BaseException:
            self._held.leave((segment,))
            raise
        self.release_segments(self._held.stage(segment))

    def unstage(self, segment_ids: Iterable[SegmentID]) -> None:
        """Release loaded segments that no version will name here."""
        self.release_segments(self._held.unstage(segment_ids))

    # versions

    async def take_version(self, change: SealedSegmentsChange) -> None:
        """As `announce`, after the deletes of writes that take effect with the version have been applied.

        Reads do not see them before the version's moments, which leave time for this. The views of segments
        that come online are made before as well, so that the switch itself is short.
        """
        if change.version > self._version:
            coming = [segment for s in change.online if (segment := self.copy_of(s)) is not None]
            await self._views.prepare(coming, change.visible_from)
            if change.deletes:
                self._check(change)
                for channel in self.channels.values():
                    channel.writes.announced(change.deletes)
            await self.apply_writes()
        self.announce(change)

    async def apply_writes(self) -> None:
        """Apply the deletes of writes that have come into effect to everything that is held.

        Rows that are loaded, recovered or read from the log meanwhile get them there. May be interrupted: the
        next call applies what is left.
        """
        for channel in tuple(self.channels.values()):
            unapplied = channel.writes.unapplied()
            if unapplied:
                deletes = [batch for batches in unapplied.values() for batch in batches]
                await self.applier.apply(self.sealed_visits(channel.vchannel, deletes))
                for follower in channel.followers():
                    await follower.between_packs(partial(self._delete_growing, follower, deletes))
                channel.writes.applied(unapplied)

    async def _delete_growing(self, follower: Follower, deletes: Sequence[DeleteBatch]) -> None:
        await self.applier.apply(follower.growing.concerned(deletes))

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
        for vchannel in lost:
            gone += self.channels[vchannel].stop_leading()
        self.release_segments(gone)
        self.publish()

    def _check(self, change: SealedSegmentsChange) -> frozenset[str]:
        """Return the vchannels that are led under the version. Raises as `QueryNodeApi.announce` does."""
        if change.version <= self._given_up:
            raise NotReady(f"a vchannel was given up under version {self._given_up}: a later one is awaited")
        leads = self.leads if change.leads is None else frozenset(change.leads)
        check_segments(change, self._held)
        check_vchannels(change, leads, self._held, self.channels, self.wanted)
        return leads


def coverage_of(request: LoadCollection) -> Coverage:
    return Coverage(request.whole_collection, frozenset(request.partition_ids))
