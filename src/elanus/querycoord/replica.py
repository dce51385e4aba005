"""One replica of a loaded collection: a group of nodes that serves all of it once.

Level-triggered: it compares what should be served with what the nodes serve, and does what is missing, in an
order that neither loses nor duplicates rows: follow the vchannels, load segments in addition to what is
served, then announce one new version that says where each segment is. The same steps perform the first load,
the handoff of a flushed segment or of a compaction's output (`elanus.querycoord.handoff`), the exchange for
an indexed copy, balancing, and the recovery from a lost node.

Each step has a module: `repair` removes what is in the way, `next_version` decides, `node_loads` has the
nodes load, and `switching` announces the version. The record is persisted before and after each change,
together with the plan for the change (`ReplicaRecord.plan`): a coordinator that takes over continues from
there, with the same placement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

from elanus.api.query_channel import QueryChannelInfo
from elanus.api.querynode import DamagedFile, QueryNodeStatus, SegmentServing
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.core.timestamps import Timestamp
from elanus.querycoord.fleet import Fleet, Pulses, Statuses
from elanus.querycoord.long_rounds import let_others_run
from elanus.querycoord.next_version import NextVersion, plan_next
from elanus.querycoord.node_loads import NodeLoads
from elanus.querycoord.repair import repaired_channel, without_failures, without_strays
from elanus.querycoord.replica_records import ReplicaRecord
from elanus.querycoord.served import Served, is_followed, is_served, named_nodes, served_by
from elanus.querycoord.state import LoadState
from elanus.querycoord.switching import VersionSwitch
from elanus.querycoord.target import Target
from elanus.querycoord.unreadable import UnreadableSegments, UnrecoveredSegments
from elanus.querycoord.visible_from import Settled

_FRESH_S = 1.0
"""If loading took longer than this, node status is fetched again before switching versions."""


class Replica:
    """One replica.

    ``record``: its persisted state. ``stamp``: allocates a timestamp. ``rebuild``: has an index built again
    whose file is damaged. ``check_wanted``: see `NodeLoads`.
    """

    def __init__(
        self,
        record: ReplicaRecord,
        fleet: Fleet,
        state: LoadState,
        stamp: Callable[[], Awaitable[Timestamp]],
        rebuild: Callable[[DamagedFile], Awaitable[None]],
        check_wanted: Callable[[Target, bool], None],
    ) -> None:
        self._fleet = fleet
        self._loads = NodeLoads(record.info.collection_id, fleet, rebuild, check_wanted)
        self._version = VersionSwitch(record, fleet, state, stamp)
        self.stood_in_for: frozenset[SegmentID] = frozenset()
        """Segments that cannot be read, but whose rows something else serves."""
        self._readable = None if record.partitions is None else frozenset(record.partitions)
        """The partitions that its nodes were last ordered to serve; None: all."""

    @property
    def record(self) -> ReplicaRecord:
        return self._version.record

    @property
    def info(self) -> QueryChannelInfo:
        return self.record.info

    @property
    def collection_id(self) -> CollectionID:
        return self.info.collection_id

    @property
    def unreadable(self) -> UnreadableSegments:
        return self._loads.unreadable

    @property
    def unrecovered(self) -> UnrecoveredSegments:
        return self._loads.unrecovered

    # what is served

    def named(self) -> set[NodeID]:
        """Return the nodes that the version in force names."""
        return named_nodes(self.info)

    def served(self, statuses: Statuses) -> Served:
        """Return what the replica serves now, for `reconcile`."""
        return served_by(self.record, statuses)

    def serving(self, statuses: Statuses) -> dict[SegmentID, SegmentServing]:
        """Return the sealed segments that are served on the node where the version in force places them."""
        return self.served(statuses).sealed

    def here(self, statuses: Statuses) -> set[SegmentID]:
        """Return the sealed segments that its nodes have ready, whether or not a version names them yet."""
        loaded = [statuses[n].loaded.get(self.collection_id, ()) for n in self.record.nodes if n in statuses]
        ready = {s for segment_ids in loaded for s in segment_ids}
        return ready | self.serving(statuses).keys()

    def is_served(self, statuses: Pulses) -> bool:
        """Whether every node the version names is alive, serves that version, and follows its vchannels."""
        return is_served(self.info, statuses)

    def is_followed(self, statuses: Pulses) -> bool:
        """See `served.is_followed`."""
        return is_followed(self.info, statuses)

    def reads(self, partition_ids: Collection[PartitionID]) -> bool:
        """Whether its nodes have been ordered to serve these partitions."""
        return self._readable is None or self._readable.issuperset(partition_ids)

    def narrow(self, partition_ids: Collection[PartitionID]) -> None:
        """Its nodes are about to be ordered to serve these partitions only."""
        self._readable = frozenset(partition_ids)

    # reconciliation

    async def reconcile(
        self,
        target: Target,
        whole: bool,
        before: Served,
        statuses: Statuses,
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
        target = replace(target, writes=moments.writes)
        places = {**self.info.sealed, **self.record.plan, **moves}
        statuses = await self._repair(target, statuses, places)
        await let_others_run(target.segments)
        planned = await self._plan(target, before, statuses, places)
        await let_others_run(target.segments)
        if not await self._load(planned, target, whole):
            return True  # to be brought up without the segments that failed
        await let_others_run(target.segments)
        is_complete = await self._switch(planned, target, whole, statuses, moments)
        return bool(planned.handoff.late) or not is_complete

    async def _repair(
        self, target: Target, statuses: Statuses, places: Mapping[SegmentID, NodeID]
    ) -> dict[NodeID, QueryNodeStatus]:
        """Repair the channel and clear the nodes; return their statuses then."""
        info = await repaired_channel(self.info, self._fleet, statuses)
        await self._version.persist(replace(self.record, info=info))
        statuses = await without_failures(self._fleet, statuses, target.collection)
        wanted = target.segments.keys() | target.damaged.keys()
        return await without_strays(info, self._fleet, statuses, wanted, places)

    async def _plan(
        self, target: Target, before: Served, statuses: Statuses, places: Mapping[SegmentID, NodeID]
    ) -> NextVersion:
        """Decide the next version, and persist the plan for it."""
        now = self.served(statuses)
        before = before.still(now)
        await let_others_run(target.segments)
        now_s = asyncio.get_running_loop().time()
        unreadable = self.unreadable.waiting_with(target.segments, target.damaged, now_s)
        planned = await plan_next(self.info, target, before, now, statuses, places, unreadable)
        await self._version.persist(replace(self.record, nodes=tuple(statuses), plan=planned.named))
        return planned

    async def _load(self, planned: NextVersion, target: Target, whole: bool) -> bool:
        """Get the nodes ready for the version. Returns whether all segments could be read."""
        await self._loads.follow(planned.layout, target, whole)
        began_s = asyncio.get_running_loop().time()
        if not await self._loads.load(planned.online, planned.layout.nodes(), target):
            return False
        self.stood_in_for = planned.stood_in_for
        if asyncio.get_running_loop().time() > began_s + _FRESH_S:
            await self._loads.check_ready(planned.online)
        return True

    async def _switch(
        self, planned: NextVersion, target: Target, whole: bool, statuses: Statuses, moments: Settled
    ) -> bool:
        """Announce the version, and wait until it is served.

        Returns whether every node that it does not name has released the collection.
        """
        version = self._version
        info = await version.announce(planned, target, statuses, moments)
        partitions = None if whole else target.partition_ids
        await version.persist(replace(self.record, info=info, plan={}, stamps={}, partitions=partitions))
        await let_others_run(target.segments)
        readable = self._readable
        is_complete = await version.complete(planned.layout, target, statuses)
        if self._readable is readable:  # else the nodes were ordered to serve fewer meanwhile
            self._readable = None if whole else frozenset(target.partition_ids)
        return is_complete
