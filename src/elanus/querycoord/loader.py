"""One loaded collection: reconciles what its replicas serve with what datacoord and indexcoord have.

Level-triggered: woken by every change, it reads the persisted state once (`elanus.querycoord.target`) and has
each replica do what is missing (`elanus.querycoord.replica`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from elanus.api.datacoord import DataCoordApi
from elanus.api.early_ticks import request_early_tick
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.proxy import ProxyApi
from elanus.api.query_channel import QueryChannelInfo
from elanus.api.querycoord import LoadStall, UnreadableSegment
from elanus.api.querynode import DamagedFile
from elanus.api.recovery import VchannelRecovery
from elanus.api.rootcoord import RootCoordApi
from elanus.api.serving import MirrorNode
from elanus.core.errors import ElanusError, NotReady
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.core.nodes import Nodes
from elanus.core.placement import place
from elanus.core.replicas import check_enough
from elanus.core.resource_groups import PlacedReplica
from elanus.core.timestamps import Timestamp
from elanus.meta.tasks import cancel_and_wait
from elanus.querycoord.fleet import Fleet, Pulses, Statuses
from elanus.querycoord.groups import ResourceGroups
from elanus.querycoord.load_limit import check_load_limit
from elanus.querycoord.load_progress import LoadProgress
from elanus.querycoord.long_rounds import let_others_run
from elanus.querycoord.moves import balancing_moves, requested_moves
from elanus.querycoord.node_requests import load_request
from elanus.querycoord.planned_layout import pieces_of, room_of
from elanus.querycoord.reconcile_loop import ReconcileLoop, text_of
from elanus.querycoord.replica import Replica
from elanus.querycoord.replica_records import ReplicaRecord
from elanus.querycoord.replica_set import ReplicaSet
from elanus.querycoord.served import Served
from elanus.querycoord.stalls import Stalls
from elanus.querycoord.state import Load, LoadState
from elanus.querycoord.target import Target, find_target
from elanus.querycoord.visible_from import Settled, settled

_LATE_LOOK_S = 0.1
_log = structlog.get_logger("querycoord")


@dataclass(frozen=True, slots=True)
class QueryDependencies:
    root: RootCoordApi
    data: DataCoordApi
    index: IndexCoordApi
    fleet: Fleet
    proxies: Mapping[NodeID, ProxyApi]
    mirrors: Nodes[MirrorNode] | None = None
    """The nodes that hold all loaded collections for the readers of their processes; None: none ever."""


async def _nobody(collection_id: CollectionID) -> None:
    """There are no mirrors."""


class CollectionLoader:
    """The loader of one collection.

    ``load_ts``: the load is complete when the nodes have caught up with this timestamp. ``reconciled`` is
    called after each attempt to bring the collection to its target: what it should serve, or does, may have
    changed. In ``recovering`` it notes the vchannels that nodes are about to read, from their checkpoints on.
    ``withhold`` returns when no mirror answers reads of the collection (`elanus.querycoord.mirrors`).
    """

    def __init__(
        self,
        load: Load,
        peers: QueryDependencies,
        state: LoadState,
        groups: ResourceGroups,
        load_ts: Timestamp,
        reconciled: Callable[[CollectionID], None],
        recovering: dict[CollectionID, tuple[VchannelRecovery, ...]],
        withhold: Callable[[CollectionID], Awaitable[None]] = _nobody,
    ) -> None:
        self.load = load
        self.is_settled = False
        """Whether a whole round has ended since the load changed or a new moment was decided."""
        self._withhold = withhold
        self._peers = peers
        self._groups = groups
        self._state = state
        self._progress = LoadProgress(load_ts)
        self._replicas = ReplicaSet(load.collection_id, peers.fleet, state, groups, self._replica)
        self._moves: dict[SegmentID, NodeID] = {}
        self._stalls = Stalls()
        self._loop = ReconcileLoop(self.collection_id, self._reconcile_and_note)
        self._reconciled = reconciled
        self._retry: asyncio.TimerHandle | None = None
        self._early_tick: asyncio.Task[None] | None = None
        self._recovering = recovering

    @property
    def collection_id(self) -> CollectionID:
        return self.load.collection_id

    def restore(self, records: Iterable[ReplicaRecord]) -> None:
        """Restore the replicas as they were last announced: they can be read immediately."""
        self._replicas.restore(records)

    def start(self) -> None:
        self._loop.start()

    def wake(self) -> None:
        """Something has changed: reconcile now, or after the shortest pause if the last attempt failed."""
        self._loop.wake()

    def reconcile_again(self) -> None:
        """Reconcile again: what is served is not what it should be. A pause after a failure still applies."""
        self._loop.reconcile_again()

    def change(self, load: Load, load_ts: Timestamp) -> None:
        """Serve another set of partitions from now on."""
        self.is_settled = False
        self.load, self._progress = load, LoadProgress(load_ts)
        self.wake()

    def leave_out(self, load: Load, released: Collection[PartitionID]) -> None:
        """Serve fewer partitions from now on. ``load``: the rest; what is loaded of it stays loaded."""
        self.is_settled = False
        self.load, self._progress = load, self._progress.without(released)
        self.wake()

    def regroup(self, load: Load) -> None:
        """Move replicas to other resource groups; what they serve stays the same."""
        self.load = load
        self._reconciled(self.collection_id)
        self.wake()

    async def narrow(self) -> None:
        """Apply a release of partitions: no read that begins after this sees them.

        A node that does not answer is updated by the next reconciliation.
        """
        target = await self._target(self.load)
        request = load_request(target, self.load.whole)
        for replica in self._replicas:
            replica.narrow(target.partition_ids)
        for node_id in self._replicas.nodes():
            try:
                node = self._peers.fleet.node(node_id)
                await node.load_collection(request)
                await node.set_partitions(self.collection_id, target.partition_ids)
            except ElanusError as error:
                _log.info("release of partitions not delivered", node=node_id, error=error.message)

    async def stop(self) -> None:
        self.is_settled = False
        if self._retry is not None:
            self._retry.cancel()
        await self._loop.stop()
        await cancel_and_wait(self._early_tick)

    async def release(self, alive: Iterable[NodeID]) -> None:
        """Have every node release the collection, and close its channels at every proxy. Call after `stop`.

        A node that does not answer is asked again later, when it is found to hold a collection that is not
        loaded.
        """
        for replica in self._replicas:
            try:
                await self._peers.fleet.close_channel(replica.info)
            except ElanusError as error:  # the broker may be away: nobody will read it
                _log.info("query channel not removed", channel=replica.info.channel, error=error.message)
        for node_id in alive:
            try:
                await self._peers.fleet.node(node_id).release_collection(self.collection_id)
            except ElanusError as error:
                _log.info("release not delivered", node=node_id, error=error.message)
        for node_id, proxy in tuple(self._peers.proxies.items()):  # proxies may join or leave meanwhile
            try:
                await proxy.release_query_channels(self.collection_id)
            except ElanusError as error:  # the proxy will find the channel lost and ask
                _log.info("release not delivered to proxy", proxy=node_id, error=error.message)

    # what is served

    def channels(self) -> tuple[QueryChannelInfo, ...]:
        """Return the replicas that can be read. Raises `CollectionNotFullyLoaded` while there is none."""
        return self._replicas.channels()

    def is_served(self, statuses: Pulses) -> bool:
        """Whether every replica is served by nodes that are alive."""
        return self._replicas.is_served(statuses)

    def is_grouped(self, alive: Collection[NodeID]) -> bool:
        """See `ReplicaSet.is_grouped`."""
        return self._replicas.is_grouped(self.load, alive)

    def can_leave(self, node_id: NodeID) -> bool:
        """See `ReplicaSet.can_leave`."""
        return self._replicas.can_leave(self.load, node_id)

    def placed(self) -> tuple[PlacedReplica, ...]:
        """See `ReplicaSet.placed`."""
        return self._replicas.placed(self.load)

    async def percentages(self, statuses: Statuses) -> dict[PartitionID, int]:
        """Return each partition's load progress in percent: 100 once all replicas answer as of the load."""
        collection = await self._peers.root.collection_by_id(self.collection_id)
        return self._progress.percentages(
            self.load.partitions_of(collection), tuple(self._replicas), statuses
        )

    def unreadable(self) -> tuple[UnreadableSegment, ...]:
        """Return the segments whose files could not be read, of all replicas."""
        return self._replicas.unreadable()

    def stall(self) -> LoadStall | None:
        """Return why the latest attempts got no further; None if nothing held them up."""
        return self._stalls.current()

    def records(self) -> list[ReplicaRecord]:
        """Return the records of the replicas."""
        return self._replicas.records()

    # reconciliation

    async def check_fits(self, load: Load, names: Collection[str], statuses: Statuses) -> None:
        """Check that the load's replicas fit into the resource groups of these names, and that each is within
        the collection's own limit.

        Raises `NodesNotEnough`, `InsufficientMemory`.
        """
        groups, counts = self._groups.view(), Counter(load.resource_groups)
        members = {name: {n: statuses[n] for n in groups[name].nodes if n in statuses} for name in names}
        for name, nodes in members.items():
            check_enough(len(nodes), counts[name], name)
        target = await self._target(load)
        await let_others_run(target.segments)
        await check_load_limit(target)
        for name, nodes in members.items():
            held = {s.segment_id for status in nodes.values() for s in status.segments}
            held.update(s for status in nodes.values() for s in status.loaded.get(self.collection_id, ()))
            pieces = await pieces_of(target, [s for s in target.segments if s not in held])
            await let_others_run(pieces)
            rooms = [room_of(n, status) for n, status in nodes.items()]
            place(pieces * counts[name], rooms, f"in resource group {name}")

    async def _reconcile_and_note(self) -> int:
        try:
            with self._stalls.noted():
                return await self._reconcile()
        finally:
            self._recovering.pop(self.collection_id, None)
            self._reconciled(self.collection_id)

    async def _reconcile(self) -> int:
        """Bring what is served nearer to what the load asks for; return how many segments were looked at."""
        load, progress = self.load, self._progress
        alive = self._peers.fleet.alive()
        groups = await self._replicas.match(load)
        statuses = {n: await self._peers.fleet.node(n).status(self.collection_id) for n in alive}
        await self._replicas.clear_newcomers(groups, statuses)
        # The served segments are read first, so that the target covers what became of each of these segments.
        served = [replica.served(statuses) for replica in self._replicas]
        held = [s for of in served for s in (*of.named, *of.growing)]
        found = {s for of in served for s in of.sealed}
        await let_others_run(found)
        target = await self._target(load, (*held, *progress.segments()))
        self._recovering[self.collection_id] = target.recovery.vchannels
        self._note_progress(load, progress, target, served)
        failures = []
        await let_others_run(target.segments)
        for replica, of in zip(self._replicas, served, strict=True):
            group = groups[replica.info.replica]
            moments = self._settled(found)
            try:
                if group:  # else it waits until a node joins
                    await self._bring_up(replica, group, target, load, of, moments)
            except Exception as error:  # noqa: BLE001 - the next replica may still be readable
                failures.append(error)
        for other in failures[1:]:
            _log.warning("replica incomplete", collection=self.collection_id, error=text_of(other))
        self._retry_unreadable()
        if failures:
            raise failures[0]
        if not await self._replicas.release_leavers(groups, target, statuses):
            asyncio.get_running_loop().call_later(_LATE_LOOK_S, self.reconcile_again)
        self.is_settled = self.load is load
        return len(target.segments)

    def _note_progress(
        self, load: Load, progress: LoadProgress, target: Target, served: Sequence[Served]
    ) -> None:
        """Measure the load's progress by the target, from the first target on."""
        progress.note_heirs(target.recovery.heirs)
        if progress.has_begun:
            progress.update(target, [of.sealed.keys() for of in served])
        elif self.load is load:  # else the next round is the first of another load
            progress.begin(target)
            self._ask_tick(target.collection.vchannels, progress.load_ts)

    def _ask_tick(self, vchannels: Iterable[str], load_ts: Timestamp) -> None:
        """The nodes' replicas answer as of the load once such a tick has come: have it come early."""
        if self._early_tick is not None:
            self._early_tick.cancel()
        request = request_early_tick(self._peers.root, vchannels, load_ts)
        self._early_tick = asyncio.create_task(request, name=f"early tick of load {self.collection_id}")

    def _retry_unreadable(self) -> None:
        """Reconcile again when segments that could not be read are due for another attempt."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        due_s = self._replicas.retry_due_s()
        if due_s is not None:
            self._retry = asyncio.get_running_loop().call_at(due_s, self.reconcile_again)

    async def _bring_up(
        self,
        replica: Replica,
        group: tuple[NodeID, ...],
        target: Target,
        load: Load,
        served: Served,
        moments: Settled,
    ) -> bool:
        """Return whether something waits for a node to read further."""
        statuses = {n: await self._peers.fleet.node(n).status(self.collection_id) for n in group}
        moves = {s: n for s, n in self._moves.items() if n in group}
        is_late = await replica.reconcile(target, load.whole, served, statuses, moves, moments)
        if is_late:
            asyncio.get_running_loop().call_later(_LATE_LOOK_S, self.reconcile_again)
        self._moves = {s: n for s, n in self._moves.items() if s not in moves}
        return is_late

    async def _target(self, load: Load, held: tuple[SegmentID, ...] = ()) -> Target:
        peers = self._peers
        return await find_target(load, peers.root, peers.data, peers.index, tuple(dict.fromkeys(held)))

    def _replica(self, record: ReplicaRecord) -> Replica:
        return Replica(record, self._peers.fleet, self._state, self._stamp, self._rebuild, self._check_wanted)

    def _check_wanted(self, target: Target, whole: bool) -> None:
        """Raise `NotReady` if partitions of the target have been released since the round began: nodes that
        have left them out would serve them again."""
        wanted = self.load.partitions_of(target.collection)
        if (whole and not self.load.whole) or not set(target.partition_ids).issubset(wanted):
            raise NotReady(f"partitions of collection {self.collection_id} were released meanwhile")

    def _settled(self, found: Collection[SegmentID]) -> Settled:
        """``found``: as in `Settled`."""
        return settled(self.records(), found)

    async def _stamp(self) -> Timestamp:
        """Allocate a moment: later than all reads that mirrors answer without what appears then."""
        self.is_settled = False
        await self._withhold(self.collection_id)
        return await self._peers.root.alloc_timestamp(1)

    async def _rebuild(self, file: DamagedFile) -> None:
        await self._peers.index.rebuild(self.collection_id, file.path, file.reason)

    # balance

    def balance(self, statuses: Statuses) -> int:
        """Move segments where that balances the replicas' nodes better; return how many will move."""
        return self._move(balancing_moves(self._replicas, self.collection_id, statuses))

    def _move(self, moves: Mapping[SegmentID, NodeID]) -> int:
        """Have these segments move; return how many."""
        self._moves |= moves
        if moves:
            self.wake()
        return len(moves)

    def move_from(
        self,
        source: NodeID,
        targets: tuple[NodeID, ...],
        segment_ids: tuple[SegmentID, ...],
        statuses: Statuses,
    ) -> int:
        """See `QueryCoordApi.load_balance`. Returns how many segments will move."""
        return self._move(
            requested_moves(self._replicas, self.collection_id, source, targets, segment_ids, statuses)
        )
