"""The parts of a collection that a query node holds, and the snapshot of them that reads take.

All changes happen on the loop thread, each in one step between two awaits, and end with `publish`, which
replaces the snapshot. So a version switch (sealed segments come online, the growing copies they replace are
released) is one assignment, and no read sees half of it. Rows that arrive change one vchannel only, and end
with `publish_rows`: an insert into many shards publishes once for each of them. A tick alone changes nothing
here: the service time is looked up in the tick lines of the vchannels when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import chain

from elanus.api.query_channel import MissingSegment
from elanus.api.querynode import LoadCollection
from elanus.core.errors import ElanusError, NotReady
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.querynode.block import Block
from elanus.querynode.coverage import Coverage
from elanus.querynode.followed_vchannel import FollowedVchannel, gaps_of
from elanus.querynode.follower import Follower
from elanus.querynode.growing import GrowingSegment
from elanus.querynode.held_segments import HeldSegments
from elanus.querynode.index_specs import index_specs
from elanus.querynode.loaded_fields import Unloaded, held_schema
from elanus.querynode.log_troubles import LogTroubles
from elanus.querynode.sealed import SealedSegment
from elanus.querynode.sealed_servings import SealedServings
from elanus.querynode.sealed_views import SealedViews
from elanus.querynode.service_clock import ServiceClock
from elanus.querynode.snapshot import Snapshot, SnapshotSegment

Blocks = tuple[Block, ...]


class HeldCollection:
    """The vchannels and segments of a collection, and the snapshot of them.

    ``written_schema``: that of the log; ``schema``: that of what is held. ``wanted``: the rows that the load
    asks for. ``leads``: the vchannels whose growing rows are served. ``on_release``: called with the blocks
    that a change released; reads may still hold them. ``on_growth``: called at the end of each step that
    changes anything here, with the change of ``growing_bytes``, which may be 0. ``on_leading``: called with
    the change of ``leading``.
    """

    def __init__(
        self,
        request: LoadCollection,
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
        self._on_growth = on_growth
        self._on_leading = on_leading
        self._version = 0
        self._given_up = 0  # the version in which a vchannel failed last
        self._partitions = self._wanted_partitions()
        self._growing: dict[str, tuple[SnapshotSegment, ...]] = {}
        """The growing segments of each led vchannel, as the snapshot has them."""
        self._published = _Published(self._take_snapshot(NO_TIMESTAMP))
        self.growing_bytes = 0
        """Bytes that grow with the log: growing rows, packs that have not been applied yet, and deletes kept
        for segments loaded later."""
        self._weights: dict[str, int] = {}
        """The same for each vchannel."""
        self.leading = 0
        """The number of led vchannels that are followed."""

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
        self._published = _Published(self._take_snapshot(served))
        self._served = (served, counting)
        self._count_leading()
        self._weigh()
        if self.clock.stopped and self._version and all(c.joined and c.failure is None for c in channels):
            self.clock.go_on()
        self.clock.rewatch()

    def publish_rows(self, channel: FollowedVchannel) -> None:
        """Publish the growing segments of one vchannel: as `publish`, when only they have changed."""
        if channel.vchannel in self.leads:
            self._growing[channel.vchannel] = self._growing_of(channel)
            self._published = _Published(self._published.with_segments(self._segments()))
        self._weigh_one(channel)

    def _count_leading(self) -> None:
        """Update ``leading``."""
        followed = (v for v in self.leads if self.channels[v].follower is not None)
        leading = sum(1 for _ in followed) if self.closed is None else 0
        if leading != self.leading:
            self._on_leading(leading - self.leading)
            self.leading = leading

    def _weigh(self) -> None:
        """Update ``growing_bytes``."""
        is_open = self.closed is None
        self._weights = {v: weight_bytes(c) for v, c in self.channels.items()} if is_open else {}
        now_bytes = sum(self._weights.values())
        self._on_growth(now_bytes - self.growing_bytes)
        self.growing_bytes = now_bytes

    def _weigh_one(self, channel: FollowedVchannel) -> None:
        """Update ``growing_bytes`` after a change in one vchannel, of those that are held."""
        if self.closed is not None:
            return
        before_bytes = self._weights.get(channel.vchannel, 0)
        self._weights[channel.vchannel] = now_bytes = weight_bytes(channel)
        self._on_growth(now_bytes - before_bytes)
        self.growing_bytes += now_bytes - before_bytes

    def close(self, error: ElanusError) -> None:
        """Stop serving and release everything. Everyone who waits gets the error."""
        self.closed = error
        self.clock.close(error)
        self._views.changed()
        self._let_go(self._held.drop_all())
        for channel in self.channels.values():
            for follower in channel.followers():
                follower.retire()
                self._let_go(follower.growing.clear())
            channel.gone()
        self._published = _Published(self._take_snapshot(NO_TIMESTAMP))
        self._count_leading()
        self._weigh()

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

    def growing_segments(self) -> list[GrowingSegment]:
        """Return the growing segments of the followers that are served."""
        channels = [self.channels[vchannel] for vchannel in self.channels if vchannel in self.leads]
        followers = [c.follower for c in channels if c.follower is not None]
        return [segment for follower in followers for segment in follower.growing.values()]

    def _serves(self, partition_id: PartitionID) -> bool:
        return self._partitions is None or partition_id in self._partitions

    def _wanted_partitions(self) -> frozenset[PartitionID] | None:
        return None if self.wanted.whole else self.wanted.named

    def _let_go(self, segments: Collection[SealedSegment | GrowingSegment]) -> None:
        self.servings.forget(segments)
        blocks = tuple(block for segment in segments for block in segment.blocks)
        if blocks:
            self._on_release(blocks)

    def propose(self, channel: FollowedVchannel, follower: Follower) -> None:
        """Register a follower that prepares to start: the log is needed from its checkpoint on."""
        channel.propose(follower)
        self._weigh()

    def settle(self, channel: FollowedVchannel) -> None:
        """Let a successor take over if it can."""
        done_with = channel.settle()
        if done_with is not None:
            self._let_go(done_with.growing.clear())
            done_with.retire()

    def _drop_sealed(self, goes: Callable[[SealedSegment], bool]) -> None:
        gone = self._held.drop(goes)
        if gone:
            self._views.changed()
            self._let_go(gone)


def weight_bytes(channel: FollowedVchannel) -> int:
    """Return the part of a collection's ``growing_bytes`` that one vchannel has."""
    return channel.deletes.memory_bytes + sum(f.growing_bytes for f in channel.followers())


def coverage_of(request: LoadCollection) -> Coverage:
    return Coverage(request.whole_collection, frozenset(request.partition_ids))


class _Published:
    """A snapshot, and the same as of the last service time that was asked for: most reads share one.

    For any thread: two that ask for different times both get what they asked for.
    """

    __slots__ = ("_last", "version")

    def __init__(self, snapshot: Snapshot) -> None:
        self.version = snapshot.version
        self._last = snapshot

    def with_segments(self, segments: tuple[SnapshotSegment, ...]) -> Snapshot:
        """Return the same with other segments."""
        return replace(self._last, segments=segments)

    def at(self, service_ts: Timestamp) -> Snapshot:
        last = self._last
        if last.service_ts != service_ts:
            last = self._last = replace(last, service_ts=service_ts)
        return last
