"""One replica of a loaded collection: a group of nodes that serves all of it once.

Level-triggered: it looks at what should be served and at what the nodes serve, and does what is missing, in
the order that loses and doubles nothing: follow the vchannels, load segments beside what is served, then
announce one new version that says where each is (seed 5). The same steps are the first load, a handoff of
a flushed segment or of a compaction's output (`elanus.querycoord.handover`), the exchange for an indexed
copy, a balance, and the recovery from a lost node.

What was announced last is persisted before and after each change, with what is about to be done (`Plan`):
a coordinator that takes over goes on from there, with the same places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from elanus.core.errors import NotReady
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.placement import NodeRoom, Piece, place, place_channels
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, plus_ms
from elanus.querycoord.fleet import Fleet
from elanus.querycoord.handover import Handover, Served, decide
from elanus.querycoord.repair import mended_channel, without_failures, without_strays
from elanus.querycoord.state import LoadState, ReplicaRecord
from elanus.querycoord.target import Target
from elanus.querycoord.visibility import LEAD_MS, Settled, decide_moments
from elanus.rpc.querychannel import QueryChannelInfo, SealedSegmentsChangeInfo
from elanus.rpc.querynode import (
    FieldIndexSpec,
    LoadCollection,
    LoadSegment,
    QueryNodeApi,
    QueryNodeStatus,
    SegmentServing,
    WatchVchannel,
)

_SWITCH_WAIT_S = 30.0
_SWITCH_LOOK_S = 0.02
_FRESH_S = 1.0
"""How long loads may take for the nodes to be taken for having what was loaded still."""
_UNBOUNDED_BYTES = 2**62
_log = structlog.get_logger("querycoord")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is to be: each segment's node, and the node that leads each vchannel.

    ``kept``: of the segments, those that only wait for their successors, each with its vchannel.
    """

    segments: Mapping[SegmentID, NodeID]
    vchannels: Mapping[str, NodeID]
    kept: Mapping[SegmentID, str]

    def nodes(self) -> set[NodeID]:
        return {*self.segments.values(), *self.vchannels.values()}


class Replica:
    """``record`` is what is persisted of it. ``stamp`` allocates a timestamp."""

    def __init__(
        self,
        record: ReplicaRecord,
        fleet: Fleet,
        state: LoadState,
        stamp: Callable[[], Awaitable[Timestamp]],
    ) -> None:
        self.record = record
        self._fleet = fleet
        self._state = state
        self._stamp = stamp

    @property
    def info(self) -> QueryChannelInfo:
        return self.record.info

    @property
    def collection_id(self) -> CollectionID:
        return self.info.collection_id

    def named(self) -> set[NodeID]:
        """The nodes that the version in force names."""
        return {*self.info.sealed.values(), *self.info.vchannels.values()}

    def serving(self, statuses: Mapping[NodeID, QueryNodeStatus]) -> dict[SegmentID, SegmentServing]:
        """The sealed segments that the version in force names, where it says they are."""
        return {s: serving for s, (_, serving) in self._found(statuses).items()}

    def _found(
        self, statuses: Mapping[NodeID, QueryNodeStatus]
    ) -> dict[SegmentID, tuple[NodeID, SegmentServing]]:
        """As `serving`, each with its node.

        What was about to be announced may be in force already: a node has heard of it, and its answer was
        lost. Such a segment is served as much as any other.
        """
        return {
            s.segment_id: (node_id, s)
            for places in (self.record.plan, self.info.sealed)
            for node_id, status in statuses.items()
            for s in status.segments
            if s.sealed and s.collection_id == self.collection_id
            if places.get(s.segment_id) == node_id
        }

    def served(self, statuses: Mapping[NodeID, QueryNodeStatus]) -> Served:
        """What it serves now, for `reconcile`."""
        growing = {
            s.segment_id: s.vchannel
            for node_id, status in statuses.items()
            for s in status.segments
            if not s.sealed and s.collection_id == self.collection_id
            if self.info.vchannels.get(s.vchannel) == node_id
        }
        sealed = self.serving(statuses)
        named = tuple(dict.fromkeys((*self.info.sealed, *sealed)))
        return Served(named, sealed, growing, self._ticks(statuses))

    def _ticks(self, statuses: Mapping[NodeID, QueryNodeStatus]) -> dict[str, Timestamp]:
        """Of each vchannel, as the node that leads it has followed it.

        A node that serves no version counts as following nothing. It may have begun to, in a look that
        failed; but no reads are answered there, and no inputs are served that an output could wait for.
        """
        return {
            vchannel: self._tick(statuses[node_id], vchannel)
            for vchannel, node_id in self.info.vchannels.items()
            if node_id in statuses
        }

    def _tick(self, status: QueryNodeStatus, vchannel: str) -> Timestamp:
        is_serving = status.versions.get(self.collection_id, 0) > 0
        return status.service_times.get(vchannel, NO_TIMESTAMP) if is_serving else NO_TIMESTAMP

    def here(self, statuses: Mapping[NodeID, QueryNodeStatus]) -> set[SegmentID]:
        """The sealed segments that its nodes have ready, whether a version names them yet or not."""
        loaded = [statuses[n].loaded.get(self.collection_id, ()) for n in self.record.nodes if n in statuses]
        ready = {s for segment_ids in loaded for s in segment_ids}
        return ready | self.serving(statuses).keys()

    def is_served(self, statuses: Mapping[NodeID, QueryNodeStatus]) -> bool:
        """Whether every node the version names is there, serves that version, and follows its vchannels."""
        info = self.info
        for node_id in self.named():
            status = statuses.get(node_id)
            if status is None or status.versions.get(self.collection_id, 0) != info.version:
                return False
            if status.query_channels.get(self.collection_id, "") != info.channel:
                return False
            if any(vchannel in status.failures for vchannel in info.vchannels):
                return False
        return bool(info.version)

    async def reconcile(
        self,
        target: Target,
        whole: bool,
        before: Served,
        statuses: Mapping[NodeID, QueryNodeStatus],
        moves: Mapping[SegmentID, NodeID],
        moments: Settled,
    ) -> bool:
        """``before``: as `served` had it before the target was looked up. ``statuses``: of the replica's
        nodes. ``moves``: segments that are to go elsewhere. ``moments``: see `elanus.querycoord.visibility`.

        The answer is whether something waits for a node to read on: look again soon. Raises
        `InsufficientMemory`, `NotReady`, and what the nodes raise.
        """
        info = await mended_channel(self.info, self._fleet, statuses)
        await self._remember(replace(self.record, info=info))
        places = {**self.info.sealed, **self.record.plan, **moves}
        statuses = await without_failures(self._fleet, statuses, target.collection)
        statuses = await without_strays(self.info, self._fleet, statuses, target.segments, places)
        service_ts = min(self._ticks(statuses).values(), default=NO_TIMESTAMP)
        served = self.serving(statuses)
        before = self._still(before, statuses)
        handover = decide(target.segments, before, target.recovery.successors, target.unbuilt, service_ts)
        layout = self._layout(target, handover, statuses, places)
        online = {
            segment_id: node_id
            for segment_id, node_id in layout.segments.items()
            if segment_id not in layout.kept
            if self.info.sealed.get(segment_id) != node_id or not target.is_served(served.get(segment_id))
        }
        unnamed = {s: layout.segments[s] for s in layout.kept if s not in self.info.sealed}
        await self._remember(replace(self.record, nodes=tuple(statuses), plan={**online, **unnamed}))
        await asyncio.gather(*(self._prepare(n, layout, target, whole) for n in layout.nodes()))
        began_s = asyncio.get_running_loop().time()
        await asyncio.gather(
            *(self._load(n, [s for s, at in online.items() if at == n], target) for n in layout.nodes())
        )
        if asyncio.get_running_loop().time() > began_s + _FRESH_S:
            await self._check_ready(online)
        info = await self._switch(layout, {**online, **unnamed}, handover.retired, target, statuses, moments)
        partitions = None if whole else target.partition_ids
        await self._remember(replace(self.record, info=info, plan={}, stamps={}, partitions=partitions))
        is_settled = await self._settle(layout, target, statuses)
        return bool(handover.late) or not is_settled

    def _still(self, before: Served, statuses: Mapping[NodeID, QueryNodeStatus]) -> Served:
        """What of it the nodes have still: one may have begun anew since, and then it follows from behind all
        flushed rows."""
        now = self.served(statuses)
        return replace(
            before,
            sealed={s: serving for s, serving in before.sealed.items() if s in now.sealed},
            growing={s: vchannel for s, vchannel in before.growing.items() if s in now.growing},
            ticks={v: tick for v, tick in before.ticks.items() if now.ticks.get(v, NO_TIMESTAMP)},
        )

    # where

    def _layout(
        self,
        target: Target,
        handover: Handover,
        statuses: Mapping[NodeID, QueryNodeStatus],
        places: Mapping[SegmentID, NodeID],
    ) -> Layout:
        wanted = [s for s in target.segments if s not in handover.held]
        placed = {s: places[s] for s in wanted if places.get(s) in statuses}
        rooms = [self._room(n, status, placed, target) for n, status in statuses.items()]
        new = place([target.piece(s) for s in wanted if s not in placed], rooms)
        found = self._found(statuses)
        kept = {s: found[s][0] for s in handover.kept}
        channels = {
            n: sum(v not in target.collection.vchannels for v in status.leads)
            for n, status in statuses.items()
        }
        leads = place_channels(target.collection.vchannels, self.info.vchannels, channels)
        return Layout({**placed, **new, **kept}, leads, handover.kept)

    def _room(
        self,
        node_id: NodeID,
        status: QueryNodeStatus,
        placed: Mapping[SegmentID, NodeID],
        target: Target,
    ) -> NodeRoom:
        """The node as a place: with what it holds, and what is on its way to it."""
        room = room_of(node_id, status)
        held = {piece.segment_id for piece in room.pieces}
        coming = [target.piece(s) for s, at in placed.items() if at == node_id and s not in held]
        used_bytes = room.used_bytes + sum(piece.size_bytes for piece in coming)
        return replace(room, used_bytes=used_bytes, pieces=(*room.pieces, *coming))

    # what each node needs before

    async def _prepare(
        self,
        node_id: NodeID,
        layout: Layout,
        target: Target,
        whole: bool,
    ) -> None:
        """Follow the vchannels whose rows are led there, and those whose deletes its segments need."""
        node = self._fleet.node(node_id)
        await node.load_collection(load_request(target, whole))
        for vchannel in _vchannels_of(node_id, layout, target):
            recovery = target.vchannel(vchannel)
            growing = tuple(m for m in recovery.growing if m.partition_id in target.partition_ids)
            await node.watch_vchannel(
                WatchVchannel(
                    self.collection_id,
                    vchannel,
                    recovery.checkpoint,
                    growing,
                    recovery.excluded,
                    recovery.delta_logs,
                    rows=layout.vchannels[vchannel] == node_id,
                    leaving=target.collection.leaving,
                )
            )

    async def _load(self, node_id: NodeID, segment_ids: list[SegmentID], target: Target) -> None:
        for segment_id in segment_ids:
            manifest = target.segments[segment_id]
            recovery = target.vchannel(manifest.vchannel)
            await self._fleet.node(node_id).load_segment(
                LoadSegment(
                    self.collection_id,
                    manifest,
                    target.files.get(segment_id, ()),
                    recovery.delta_logs,
                    recovery.checkpoint,
                )
            )

    async def _check_ready(self, online: Mapping[SegmentID, NodeID]) -> None:
        """Raises `NotReady` where a node has let a segment go since that was loaded.

        It does when the partition is dropped or released. A version that named the segment would keep all
        reads waiting for the next one.
        """
        for node_id in sorted(set(online.values())):
            status = await self._fleet.node(node_id).status()
            loaded = status.loaded.get(self.collection_id, ())
            ready = {*loaded, *(s.segment_id for s in status.segments if s.sealed)}
            if gone := sorted(s for s, at in online.items() if at == node_id and s not in ready):
                raise NotReady(f"query node {node_id} has let go of segments {gone} since they were loaded")

    # the version

    async def _visible_from(
        self, online: Mapping[SegmentID, NodeID], target: Target, before: Settled
    ) -> Mapping[SegmentID, Timestamp]:
        """Of the segments that a version brings online, from which moment on reads see them."""
        moments = decide_moments(online, target.segments, target.recovery.successors, before)
        if not moments.open:
            return moments.known
        stamps = dict.fromkeys(moments.open, plus_ms(await self._stamp(), LEAD_MS))
        await self._remember(replace(self.record, stamps={**moments.known, **stamps}))
        return {**moments.known, **stamps}

    async def _switch(
        self,
        layout: Layout,
        online: Mapping[SegmentID, NodeID],
        retired: Mapping[SegmentID, str],
        target: Target,
        statuses: Mapping[NodeID, QueryNodeStatus],
        moments: Settled,
    ) -> QueryChannelInfo:
        """One new version, when anything is to change, told to every node that it names; the replica then.

        Growing segments that retire go offline where their vchannel is led. Not known here are those that a
        node has taken in and serves in no version yet, or has still to meet in the log: it is told of all
        whose rows compaction has brought into what goes online.

        A node that has not come to the version in force still has what that took from it. It goes there by
        itself; a version that named it once more would take the segment from where it is by now.
        """
        opened = await self._fleet.open_channel(self.info)
        for node_id in sorted(layout.nodes()):
            await self._fleet.join(opened, statuses[node_id])
        info = self.info if opened.channel == self.info.channel else opened
        offline = {s: n for s, n in info.sealed.items() if layout.segments.get(s) != n}
        offline |= {s: info.vchannels[v] for s, v in retired.items() if s not in info.sealed}
        offline |= self._strangers(layout, statuses)
        seen = [status.versions.get(self.collection_id, 0) for status in statuses.values()]
        behind = any(statuses[n].versions.get(self.collection_id, 0) < info.version for n in layout.nodes())
        if online or offline or behind or not info.version or dict(info.vchannels) != dict(layout.vchannels):
            version = self._fleet.version_after(max(info.version, *seen, 0))
            successors = target.recovery.successors
            replaced = tuple(sorted(s for s, successor in successors.items() if successor in online))
            change = SealedSegmentsChangeInfo(
                self.collection_id,
                version,
                dict(online),
                offline,
                dict(layout.vchannels),
                replaced,
                await self._visible_from(online, target, moments),
            )
            info = await self._fleet.announce(info, change, statuses)
            _log.info("version announced", collection=self.collection_id, version=version)
        return info

    def _strangers(
        self, layout: Layout, statuses: Mapping[NodeID, QueryNodeStatus]
    ) -> dict[SegmentID, NodeID]:
        """Sealed segments that a node serves from versions of which no record is left.

        A load that was released and asked for again has a new record, and the node may not have heard of
        the release. By now compaction may have brought the rows of these segments elsewhere.
        """
        return {
            s.segment_id: node_id
            for node_id, status in statuses.items()
            for s in status.segments
            if s.sealed and s.collection_id == self.collection_id
            if s.segment_id not in self.info.sealed and layout.segments.get(s.segment_id) != node_id
        }

    async def _settle(
        self, layout: Layout, target: Target, statuses: Mapping[NodeID, QueryNodeStatus]
    ) -> bool:
        """When all serve the version: the partitions it is complete for, and what nobody needs any more.

        A node that the version does not name is let go when it has read on to it: it answers earlier reads.
        The answer is whether all are that far.
        """
        await self._switched([n for n in sorted(layout.nodes()) if not self._serves(statuses[n])])
        for node_id in sorted(layout.nodes()):
            node = self._fleet.node(node_id)
            await node.set_partitions(self.collection_id, target.partition_ids)
            needed = _vchannels_of(node_id, layout, target)
            for vchannel in target.recovery.vchannels:
                name = vchannel.vchannel
                if name in needed:
                    await node.forget_deletes(self.collection_id, name, vchannel.checkpoint.ts)
                elif name in statuses[node_id].service_times:
                    await node.unwatch_vchannel(self.collection_id, name)
        others = [n for n in statuses.keys() - layout.nodes() if self.collection_id in statuses[n].versions]
        return all([await self._is_let_go(self._fleet.node(node_id)) for node_id in sorted(others)])

    async def _is_let_go(self, node: QueryNodeApi) -> bool:
        """Of a node that has not read on to the version in force: not yet."""
        status = await node.status()
        follows = status.query_channels.get(self.collection_id) == self.info.channel
        if follows and not self._serves(status):
            return False
        await node.release_collection(self.collection_id)
        return True

    def _serves(self, status: QueryNodeStatus) -> bool:
        """Whether a node serves the version in force."""
        return status.versions.get(self.collection_id, 0) >= self.info.version

    async def _switched(self, nodes: Sequence[NodeID]) -> None:
        """Wait until these serve the version.

        Raises `NotReady`, at once where a node cannot serve it. The next look makes a version that it can.
        """
        deadline_s = asyncio.get_running_loop().time() + _SWITCH_WAIT_S
        for node_id in nodes:
            while not self._serves(status := await self._fleet.node(node_id).status()):
                if status.refused.get(self.collection_id, 0) >= self.info.version:
                    raise NotReady(
                        f"query node {node_id} cannot serve version {self.info.version} of collection "
                        f"{self.collection_id}"
                    )
                if asyncio.get_running_loop().time() > deadline_s:
                    raise NotReady(
                        f"query node {node_id} does not serve version {self.info.version} of collection "
                        f"{self.collection_id} yet"
                    )
                await asyncio.sleep(_SWITCH_LOOK_S)

    async def _remember(self, record: ReplicaRecord) -> None:
        if record != self.record:
            await self._state.put_replica(record)
            self.record = record


def load_request(target: Target, whole: bool) -> LoadCollection:
    """What a node is to serve of the collection."""
    collection = target.collection
    return LoadCollection(
        collection.collection_id,
        collection.schema,
        target.partition_ids,
        tuple(FieldIndexSpec(i.field_id, i.index_id, i.params) for i in target.indexes),
        collection.vchannels,
        whole,
    )


def room_of(node_id: NodeID, status: QueryNodeStatus) -> NodeRoom:
    """A node as a place for segments."""
    pieces = tuple(Piece(s.segment_id, s.collection_id, s.memory_bytes) for s in status.segments if s.sealed)
    return NodeRoom(node_id, status.capacity_bytes or _UNBOUNDED_BYTES, status.used_bytes, pieces)


def _vchannels_of(node_id: NodeID, layout: Layout, target: Target) -> list[str]:
    """The vchannels that a node must follow, for their rows or for their deletes."""
    led = [v for v, at in layout.vchannels.items() if at == node_id]
    here = [s for s, at in layout.segments.items() if at == node_id]
    needed = [layout.kept[s] if s in layout.kept else target.segments[s].vchannel for s in here]
    return list(dict.fromkeys((*led, *needed)))
