"""One replica of a loaded collection: a group of nodes that serves all of it once.

Level-triggered: it compares what should be served with what the nodes serve, and does what is missing, in an
order that neither loses nor duplicates rows: follow the vchannels, load segments in addition to what is
served, then announce one new version that says where each segment is. The same steps perform the first load,
the handoff of a flushed segment or of a compaction's output (`elanus.querycoord.handoff`), the exchange for
an indexed copy, balancing, and the recovery from a lost node.

`elanus.querycoord.planned_layout` decides the placement, `elanus.querycoord.node_requests` builds the nodes'
requests, and `elanus.querycoord.switching` announces the version and persists it before and after each
change, together with the plan for the change (`ReplicaRecord.plan`): a coordinator that takes over continues
from there, with the same placement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sized
from dataclasses import replace

from elanus.api.query_channel import MissingSegment, QueryChannelInfo
from elanus.api.querynode import DamagedFile, QueryNodeStatus, SegmentServing, UnrecoveredSegment
from elanus.core.errors import NotReady, SegmentUnreadable
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.querycoord.fleet import Fleet, Pulses
from elanus.querycoord.handoff import Handoff, Served, decide, has_rows, hold_back
from elanus.querycoord.node_requests import load_request, segment_request, watch_request
from elanus.querycoord.planned_layout import Layout, plan_layout
from elanus.querycoord.repair import repaired_channel, without_failures, without_strays
from elanus.querycoord.replica_records import ReplicaRecord
from elanus.querycoord.state import LoadState
from elanus.querycoord.switching import VersionSwitch
from elanus.querycoord.target import Target
from elanus.querycoord.unreadable import Unreadable, UnreadableSegments, UnrecoveredSegments
from elanus.querycoord.visible_from import Settled

_FRESH_S = 1.0
"""If loading took longer than this, node status is fetched again before switching versions."""
_LOADS_AT_ONCE = 32
"""How many loads are requested of a node at the same time. It reads small segments that wait together."""
_LOADS_PER_TASK = 4
"""Fewer segments than this are loaded one after the other."""
LONG_STEP_SEGMENTS = 1000
"""From this many segments on, other tasks run between the parts of a reconciliation."""


class Replica:
    """One replica.

    ``record``: its persisted state. ``stamp``: allocates a timestamp. ``rebuild``: has an index built again
    whose file is damaged.
    """

    def __init__(
        self,
        record: ReplicaRecord,
        fleet: Fleet,
        state: LoadState,
        stamp: Callable[[], Awaitable[Timestamp]],
        rebuild: Callable[[DamagedFile], Awaitable[None]],
    ) -> None:
        self._fleet = fleet
        self._rebuild = rebuild
        self.unreadable = UnreadableSegments()
        self.unrecovered = UnrecoveredSegments()
        self.stood_in_for: frozenset[SegmentID] = frozenset()
        """Segments that cannot be read, but whose rows something else serves."""
        self._version = VersionSwitch(record, fleet, state, stamp)

    @property
    def record(self) -> ReplicaRecord:
        return self._version.record

    @property
    def info(self) -> QueryChannelInfo:
        return self.record.info

    @property
    def collection_id(self) -> CollectionID:
        return self.info.collection_id

    def named(self) -> set[NodeID]:
        """Return the nodes that the version in force names."""
        return {*self.info.sealed.values(), *self.info.vchannels.values()}

    def serving(self, statuses: Mapping[NodeID, QueryNodeStatus]) -> dict[SegmentID, SegmentServing]:
        """Return the sealed segments that are served on the node where the version in force places them."""
        return self.served(statuses).sealed

    def served(self, statuses: Mapping[NodeID, QueryNodeStatus]) -> Served:
        """Return what the replica serves now, for `reconcile`.

        A planned version may already be in force: a node received it and the reply was lost. Its segments
        count as served like any other.
        """
        info, plan = self.info, self.record.plan
        planned: dict[SegmentID, SegmentServing] = {}
        placed: dict[SegmentID, SegmentServing] = {}
        growing: dict[SegmentID, str] = {}
        for node_id, status in statuses.items():
            for one in status.segments:
                segment_id = one.segment_id
                if one.collection_id != info.collection_id:
                    continue
                if not one.sealed:
                    if info.vchannels.get(one.vchannel) == node_id:
                        growing[segment_id] = one.vchannel
                    continue
                if plan and plan.get(segment_id) == node_id:
                    planned[segment_id] = one
                if info.sealed.get(segment_id) == node_id:
                    placed[segment_id] = one
        sealed = {**planned, **placed}
        nodes = {**info.sealed, **{s: plan[s] for s in planned if s not in placed}}
        named = dict.fromkeys((*info.sealed, *sealed)).keys()
        return Served(named, sealed, growing, self._ticks(statuses), nodes)

    def _ticks(self, statuses: Mapping[NodeID, QueryNodeStatus]) -> dict[str, Timestamp]:
        """Return the tick up to which each vchannel's leading node has followed it.

        A node that serves no version counts as following nothing. It may have begun to follow in a
        reconciliation that failed, but it answers no reads and serves no inputs that an output could wait
        for.
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
        """Return the sealed segments that its nodes have ready, whether or not a version names them yet."""
        loaded = [statuses[n].loaded.get(self.collection_id, ()) for n in self.record.nodes if n in statuses]
        ready = {s for segment_ids in loaded for s in segment_ids}
        return ready | self.serving(statuses).keys()

    def is_served(self, statuses: Pulses) -> bool:
        """Whether every node the version names is alive, serves that version, and follows its vchannels."""
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
        """Bring the replica to the target.

        ``before``: the result of `served` from before the target was read. ``statuses``: those of the
        replica's nodes. ``moves``: segments to move, each with its new node. ``moments``: see
        `elanus.querycoord.visible_from`.

        Returns whether something waits for a node to read further, so that the caller should reconcile again
        soon. Raises `InsufficientMemory`, `NotReady`, and what the nodes raise.
        """
        version = self._version
        target = replace(target, writes=moments.writes)
        info = await repaired_channel(self.info, self._fleet, statuses)
        await version.persist(replace(self.record, info=info))
        places = {**self.info.sealed, **self.record.plan, **moves}
        statuses = await without_failures(self._fleet, statuses, target.collection)
        wanted = target.segments.keys() | target.damaged.keys()
        statuses = await without_strays(self.info, self._fleet, statuses, wanted, places)
        service_ts = min(self._ticks(statuses).values(), default=NO_TIMESTAMP)
        await let_others_run(target.segments)
        now = self.served(statuses)
        before = _still(before, now)
        await let_others_run(target.segments)
        heirs = target.recovery.heirs
        handoff = decide(target.segments, before, heirs, target.unbuilt, service_ts)
        now_s = asyncio.get_running_loop().time()
        unreadable = self.unreadable.waiting_with(target.segments, target.damaged, now_s)
        handoff = hold_back(handoff, unreadable, before, heirs)
        await let_others_run(target.segments)
        named = self.info.sealed
        layout = await plan_layout(target, handoff, statuses, places, now.nodes, self.info.vchannels)
        await let_others_run(target.segments)
        online = _coming_online(layout, named, now, target)
        # A planned move may be in force without a record of it: the kept segment is then named where it is.
        unnamed = {s: at for s in layout.kept if (at := layout.segments[s]) != named.get(s)}
        await version.persist(replace(self.record, nodes=tuple(statuses), plan={**online, **unnamed}))
        await let_others_run(target.segments)
        await self._prepare_all(layout, target, whole)
        began_s = asyncio.get_running_loop().time()
        if not await self._load_all(layout, online, target):
            return True  # to be brought up without the segments that failed
        self.unreadable.readable(online)
        missing = self._missing(unreadable, handoff, before, layout)
        self.stood_in_for = frozenset(unreadable) - missing.keys()
        if asyncio.get_running_loop().time() > began_s + _FRESH_S:
            await self._check_ready(online)
        await let_others_run(target.segments)
        info = await version.announce(
            layout,
            {**online, **unnamed},
            handoff.retired,
            target,
            statuses,
            moments,
            missing,
        )
        partitions = None if whole else target.partition_ids
        await version.persist(replace(self.record, info=info, plan={}, stamps={}, partitions=partitions))
        await let_others_run(target.segments)
        is_complete = await version.complete(layout, target, statuses)
        return bool(handoff.late) or not is_complete

    # preparing the nodes

    async def _load_all(self, layout: Layout, online: Mapping[SegmentID, NodeID], target: Target) -> bool:
        """Load these segments, each on its node. Returns whether all nodes have all of theirs."""
        by_node: dict[NodeID, list[SegmentID]] = {node_id: [] for node_id in layout.nodes()}
        for segment_id, node_id in online.items():
            by_node[node_id].append(segment_id)
        failures = await asyncio.gather(*(self._load(n, ids, target) for n, ids in by_node.items()))
        return not any(failures)

    async def _prepare_all(self, layout: Layout, target: Target, whole: bool) -> None:
        """Prepare all nodes, and note the growing segments that could not be recovered."""
        now_s = asyncio.get_running_loop().time()
        again = self.unrecovered.due(now_s)
        needed = layout.vchannels_by_node(target)
        found = await asyncio.gather(
            *(self._prepare(n, layout, needed[n], target, whole, again) for n in layout.nodes())
        )
        answers = {vchannel: segments for of in found for vchannel, segments in of.items()}
        self.unrecovered.found(self.collection_id, answers, now_s)

    async def _prepare(
        self,
        node_id: NodeID,
        layout: Layout,
        needed: Iterable[str],
        target: Target,
        whole: bool,
        again: tuple[SegmentID, ...],
    ) -> dict[str, tuple[UnrecoveredSegment, ...]]:
        """Follow the vchannels that the node leads, and those whose deletes its segments need.

        ``needed``: all of these. ``again``: growing segments to be tried once more. Returns those that could
        not be recovered, by vchannel.
        """
        node = self._fleet.node(node_id)
        await node.load_collection(load_request(target, whole))
        found = {}
        for vchannel in needed:
            leads = layout.vchannels[vchannel] == node_id
            request = watch_request(target, vchannel, leads=leads, again=again)
            segments = await node.watch_vchannel(request)
            if leads:
                found[vchannel] = segments
        return found

    async def _load(self, node_id: NodeID, segment_ids: list[SegmentID], target: Target) -> bool:
        """Load segments. Returns whether some could not be read, which holds up none of the others.

        Some are loaded at the same time. Those of a vchannel follow each other: the node then reads the
        vchannel's deletes once, even if it cannot keep those of several vchannels.
        """
        failed = False
        waiting = iter(sorted(segment_ids, key=lambda segment_id: target.segments[segment_id].vchannel))

        async def load_waiting() -> None:
            nonlocal failed
            for segment_id in waiting:
                try:
                    if not await self._load_one(node_id, segment_id, target):
                        failed = True
                except BaseException:
                    for _ in waiting:  # nobody begins another one
                        pass
                    raise

        at_once = min(_LOADS_AT_ONCE, 1 + len(segment_ids) // _LOADS_PER_TASK)
        outcomes = await asyncio.gather(*(load_waiting() for _ in range(at_once)), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome
        return failed

    async def _load_one(self, node_id: NodeID, segment_id: SegmentID, target: Target) -> bool:
        """Load a segment. Returns whether it could be read."""
        try:
            damaged = await self._fleet.node(node_id).load_segment(segment_request(target, segment_id))
        except SegmentUnreadable as error:
            now_s = asyncio.get_running_loop().time()
            self.unreadable.failed(target.segments[segment_id], error.message, now_s)
            return False
        for file in damaged:
            await self._rebuild(file)
        return True

    def _missing(
        self,
        unreadable: Mapping[SegmentID, Unreadable],
        handoff: Handoff,
        before: Served,
        layout: Layout,
    ) -> dict[SegmentID, MissingSegment]:
        """Return the segments whose rows nobody serves under the layout."""
        stay = {v for v, at in layout.vchannels.items() if self.info.vchannels.get(v) == at}
        growing = {s for s, v in before.growing.items() if v in stay and s not in handoff.retired}
        return {
            s: MissingSegment(found.manifest.partition_id, found.reason)
            for s, found in unreadable.items()
            if not has_rows(found.manifest, handoff, growing)
        }

    async def _check_ready(self, online: Mapping[SegmentID, NodeID]) -> None:
        """Raise `NotReady` if a node has released a segment since it was loaded.

        This happens when the partition is dropped or released. A version that named the segment would keep
        all reads waiting for the next version.
        """
        for node_id in sorted(set(online.values())):
            status = await self._fleet.node(node_id).status(self.collection_id)
            loaded = status.loaded.get(self.collection_id, ())
            ready = {*loaded, *(s.segment_id for s in status.segments if s.sealed)}
            if gone := sorted(s for s, at in online.items() if at == node_id and s not in ready):
                raise NotReady(f"query node {node_id} has released segments {gone} since they were loaded")


async def let_others_run(segments: Sized) -> None:
    """Yield to other tasks between two parts of a reconciliation that look at all of these segments.

    The parts work on statuses and a target that have been read before, and on the replica's record, which
    nothing else changes: what happens in between is for the next reconciliation.
    """
    if len(segments) >= LONG_STEP_SEGMENTS:
        await asyncio.sleep(0)


def _still(before: Served, now: Served) -> Served:
    """Reduce ``before`` to what the nodes still have.

    A node may have started afresh since; it then follows from a position after all flushed rows.
    """
    return replace(
        before,
        sealed={s: serving for s, serving in before.sealed.items() if s in now.sealed},
        growing={s: vchannel for s, vchannel in before.growing.items() if s in now.growing},
        ticks={v: tick for v, tick in before.ticks.items() if now.ticks.get(v, NO_TIMESTAMP)},
    )


def _coming_online(
    layout: Layout, named: Mapping[SegmentID, NodeID], now: Served, target: Target
) -> dict[SegmentID, NodeID]:
    """The segments that a node has to load, and the node: those that it does not serve as the target wants.

    ``named``: where the version in force has each segment.
    """
    return {
        segment_id: node_id
        for segment_id, node_id in layout.segments.items()
        if segment_id not in layout.kept
        if named.get(segment_id) != node_id or not target.is_served(now.sealed.get(segment_id))
    }
