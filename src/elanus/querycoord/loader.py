"""One loaded collection: brings what its replicas serve to what datacoord and indexcoord have.

Level-triggered: woken by every change, it takes one look at what is persisted (`elanus.querycoord.target`)
and has each replica do what is missing (`elanus.querycoord.replica`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from elanus.core.channels import pchannel_of
from elanus.core.errors import CollectionNotFound, CollectionNotLoaded, ElanusError, InvalidParameter
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.core.placement import NodeRoom, Piece, balance, place
from elanus.core.replicas import check_enough
from elanus.core.resource_groups import PlacedReplica, nodes_of_replicas
from elanus.core.timestamps import Timestamp
from elanus.querycoord.fleet import Fleet, Statuses
from elanus.querycoord.groups import ResourceGroups
from elanus.querycoord.handover import Served
from elanus.querycoord.replica import Replica, load_request, room_of
from elanus.querycoord.state import Load, LoadState, ReplicaRecord
from elanus.querycoord.target import Target, find_target
from elanus.querycoord.visibility import Settled, settled
from elanus.rpc.datacoord import DataCoordApi
from elanus.rpc.indexcoord import IndexCoordApi
from elanus.rpc.proxy import ProxyApi
from elanus.rpc.querychannel import QueryChannelInfo
from elanus.rpc.querynode import QueryNodeStatus
from elanus.rpc.rootcoord import RootCoordApi
from elanus.rpc.tracing import untraced

_RETRY_PAUSE_S = 0.5
_RETRY_PAUSE_MAX_S = 15.0
_LATE_LOOK_S = 0.1
_log = structlog.get_logger("querycoord")


@dataclass(frozen=True, slots=True)
class Peers:
    root: RootCoordApi
    data: DataCoordApi
    index: IndexCoordApi
    fleet: Fleet
    proxies: Mapping[NodeID, ProxyApi]


class CollectionLoader:
    """``load_ts``: the load is complete when the nodes have caught up with this moment."""

    def __init__(
        self, load: Load, peers: Peers, state: LoadState, groups: ResourceGroups, load_ts: Timestamp
    ) -> None:
        self.load = load
        self._peers = peers
        self._groups = groups
        self._state = state
        self._load_ts = load_ts
        self._initial: dict[SegmentID, PartitionID] | None = None
        self._successors: Mapping[SegmentID, SegmentID] = {}
        self._replicas: list[Replica] = []
        self._moves: dict[SegmentID, NodeID] = {}
        self._wake = asyncio.Event()
        self._wake.set()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def collection_id(self) -> CollectionID:
        return self.load.collection_id

    async def restore(self) -> None:
        """Take up the replicas as they were announced last: they can be read at once."""
        records = await self._state.replicas(self.collection_id)
        self._replicas = [self._replica(record) for record in records]

    def start(self) -> None:
        self._task = untraced(self._run(), f"load {self.collection_id}")

    def wake(self) -> None:
        """Something has changed: look now, however often the last looks have failed."""
        self._news.set()
        self._wake.set()

    def look_again(self) -> None:
        """What is served is not what it should be. After a failure this waits for its turn."""
        self._wake.set()

    async def change(self, load: Load, load_ts: Timestamp) -> None:
        """Serve other partitions from now on."""
        self.load, self._load_ts, self._initial = load, load_ts, None
        self.wake()

    def regroup(self, load: Load) -> None:
        """Replicas are to be in other resource groups; what they serve stays the same."""
        self.load = load
        self.wake()

    async def narrow(self) -> None:
        """Partitions were released: no read that begins after this sees them.

        A node that does not answer is told by the next look.
        """
        target = await self._target(self.load)
        request = load_request(target, self.load.whole)
        for node_id in {n for replica in self._replicas for n in replica.record.nodes}:
            try:
                node = self._peers.fleet.node(node_id)
                await node.load_collection(request)
                await node.set_partitions(self.collection_id, target.partition_ids)
            except ElanusError as error:
                _log.info("node not told of released partitions", node=node_id, error=error.message)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def release(self, alive: Iterable[NodeID]) -> None:
        """Have every node let go of the collection, and close its channels at every proxy. After `stop`.

        A node that does not answer is told later, when it is seen to hold what nobody loads.
        """
        for replica in self._replicas:
            await self._peers.fleet.close_channel(replica.info)
        for node_id in alive:
            try:
                await self._peers.fleet.node(node_id).release_collection(self.collection_id)
            except ElanusError as error:
                _log.info("node not told of the release", node=node_id, error=error.message)
        for node_id, proxy in tuple(self._peers.proxies.items()):  # they come and go meanwhile
            try:
                await proxy.release_query_channels(self.collection_id)
            except ElanusError as error:  # it finds the channel lost, and asks
                _log.info("proxy not told of the release", proxy=node_id, error=error.message)

    # what is served

    def channels(self) -> tuple[QueryChannelInfo, ...]:
        """The replicas that can be read. Raises `CollectionNotLoaded` while there is none."""
        infos = tuple(replica.info for replica in self._replicas if replica.info.version)
        if not infos:
            raise CollectionNotLoaded(f"collection not fully loaded[collection={self.collection_id}]; retry")
        return infos

    def is_served(self, statuses: Statuses) -> bool:
        """Whether every replica is served by nodes that are there."""
        return bool(self._replicas) and all(replica.is_served(statuses) for replica in self._replicas)

    def is_grouped(self, alive: Collection[NodeID]) -> bool:
        """Whether the nodes that are alive are in the replicas where they belong, and in no others."""
        grouping = self._grouping()
        return all(
            {n for n in nodes if n in alive} <= set(replica.record.nodes)
            and {n for n in replica.record.nodes if n in alive} <= set(nodes)
            for replica in self._replicas
            if (nodes := grouping.get(replica.info.replica, ()))
        )

    def placed(self) -> tuple[PlacedReplica, ...]:
        """The replicas with the nodes at work for them: those of their groups, and those on their way out."""
        alive = self._peers.fleet.alive()
        at_work = {r.info.replica: {*r.record.nodes, *r.named()}.intersection(alive) for r in self._replicas}
        return tuple(
            PlacedReplica(self.collection_id, number, group, tuple(sorted(at_work.get(number, ()))))
            for number, group in enumerate(self.load.resource_groups)
        )

    async def percentages(self, statuses: Statuses) -> dict[PartitionID, int]:
        """How far each partition's load has come; 100 only when all replicas answer as of the load."""
        collection = await self._peers.root.collection_by_id(self.collection_id)
        ready = self._is_ready(statuses)
        here = [replica.here(statuses) for replica in self._replicas]
        return {p: 100 if ready else self._share(p, here) for p in self.load.partitions_of(collection)}

    def _is_ready(self, statuses: Statuses) -> bool:
        if self._initial is None or not self.is_served(statuses):
            return False
        caught_up = all(
            statuses[node_id].service_times.get(vchannel, 0) >= self._load_ts
            for replica in self._replicas
            for vchannel, node_id in replica.info.vchannels.items()
        )
        return caught_up and all(self._has_initial(r.serving(statuses)) for r in self._replicas)

    def _has_initial(self, served: Collection[SegmentID]) -> bool:
        """Whether all segments that the load began with are served, or what compaction made of them."""
        return all(s in served or self._successors.get(s) in served for s in self._initial or ())

    def _share(self, partition_id: PartitionID, here: list[set[SegmentID]]) -> int:
        wanted = {s for s, p in (self._initial or {}).items() if p == partition_id}
        if not wanted:
            return 0
        return min((min(99, 100 * len(wanted & there) // len(wanted)) for there in here), default=0)

    # bringing it about

    async def check_fits(self, load: Load, names: Collection[str], statuses: Statuses) -> None:
        """Whether the load's replicas find their place in the resource groups of these names.

        Raises `NodesNotEnough`, `InsufficientMemory`.
        """
        groups, counts = self._groups.view(), Counter(load.resource_groups)
        members = {name: {n: statuses[n] for n in groups[name].nodes if n in statuses} for name in names}
        for name, nodes in members.items():
            check_enough(len(nodes), counts[name], name)
        target = await self._target(load)
        for name, nodes in members.items():
            held = {s.segment_id for status in nodes.values() for s in status.segments}
            held.update(s for status in nodes.values() for s in status.loaded.get(self.collection_id, ()))
            pieces = [target.piece(s) for s in target.segments if s not in held]
            rooms = [room_of(n, status) for n, status in nodes.items()]
            place(pieces * counts[name], rooms, f"in resource group {name}")

    async def _run(self) -> None:
        pause_s = _RETRY_PAUSE_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._news.clear()
            try:
                await self._reconcile()
            except CollectionNotFound:
                return
            except Exception as error:  # noqa: BLE001 - a file that cannot be read must not end the load for ever
                _log.warning(
                    "load not complete; trying again",
                    collection=self.collection_id,
                    error=_told(error),
                )
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, _RETRY_PAUSE_MAX_S)
                self._wake.set()
            else:
                pause_s = _RETRY_PAUSE_S

    async def _pause(self, pause_s: float) -> None:
        """After a failure: not as long when there is news, but never shorter than the first time."""
        await asyncio.sleep(_RETRY_PAUSE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s - _RETRY_PAUSE_S):
                await self._news.wait()

    async def _reconcile(self) -> None:
        load, load_ts = self.load, self._load_ts
        alive = self._peers.fleet.alive()
        groups = await self._group()
        statuses = {n: await self._peers.fleet.node(n).status() for n in alive}
        await self._begin_anew({n for nodes in groups.values() for n in nodes}, statuses)
        # What is served is looked up first: of all that, the target tells what has become.
        served = [replica.served(statuses) for replica in self._replicas]
        held = [s for of in served for s in (*of.named, *of.growing)]
        found = {s for of in served for s in of.sealed}
        target = await self._target(load, (*held, *(self._initial or ())))
        self._successors = target.recovery.successors
        if self._initial is None and self.load is load:  # else the next look is the first of another load
            self._initial = {s: m.partition_id for s, m in target.segments.items()}
            await self._peers.root.tick_now(tuple(map(pchannel_of, target.collection.vchannels)), load_ts)
        elif self._initial is not None:
            self._initial = _today(self._initial, target, [of.sealed.keys() for of in served])
        failures = []
        for replica, of in zip(self._replicas, served, strict=True):
            group = groups[replica.info.replica]
            moments = settled((r.record for r in self._replicas), found)
            try:
                if group:  # else it waits until a node comes
                    await self._mend(replica, group, target, load, of, moments)
            except Exception as error:  # noqa: BLE001 - the next replica may be what can still be read
                failures.append(error)
        for other in failures[1:]:
            _log.warning("replica not complete", collection=self.collection_id, error=_told(other))
        if failures:
            raise failures[0]
        if not await self._let_go(groups, target, statuses):
            asyncio.get_running_loop().call_later(_LATE_LOOK_S, self.look_again)

    async def _mend(
        self,
        replica: Replica,
        group: tuple[NodeID, ...],
        target: Target,
        load: Load,
        served: Served,
        moments: Settled,
    ) -> None:
        statuses = {n: await self._peers.fleet.node(n).status() for n in group}
        moves = {s: n for s, n in self._moves.items() if n in group}
        if await replica.reconcile(target, load.whole, served, statuses, moves, moments):
            asyncio.get_running_loop().call_later(_LATE_LOOK_S, self.look_again)
        self._moves = {s: n for s, n in self._moves.items() if s not in moves}

    async def _begin_anew(self, wanted: Collection[NodeID], statuses: dict[NodeID, QueryNodeStatus]) -> None:
        """A node that comes to a replica must have nothing of an earlier load, whose release did not reach
        it: it would serve growing rows of then beside the segments they have become."""
        known = {n for replica in self._replicas for n in (*replica.record.nodes, *replica.named())}
        for node_id in sorted(n for n in wanted if n in statuses and n not in known):
            if self.collection_id in statuses[node_id].versions:
                node = self._peers.fleet.node(node_id)
                await node.release_collection(self.collection_id)
                statuses[node_id] = await node.status()

    async def _let_go(
        self, groups: Mapping[int, tuple[NodeID, ...]], target: Target, statuses: Statuses
    ) -> bool:
        """Nodes that no replica has or names any more let go of the collection.

        Each only when it has read its channel up to the version without it: it answers earlier reads. The
        answer is whether all have.
        """
        needed = {n for nodes in groups.values() for n in nodes}.union(*(r.named() for r in self._replicas))
        versions = {replica.info.channel: replica.info.version for replica in self._replicas}
        is_done = True
        for node_id, before in statuses.items():
            follows = any(v in before.service_times for v in target.collection.vchannels)
            if node_id in needed or not (follows or self.collection_id in before.versions):
                continue
            node = self._peers.fleet.node(node_id)
            status = await node.status()
            channel = status.query_channels.get(self.collection_id)
            if channel and status.versions.get(self.collection_id, 0) < versions.get(channel, 0):
                is_done = False
            else:
                await node.release_collection(self.collection_id)
        return is_done

    async def _target(self, load: Load, held: tuple[SegmentID, ...] = ()) -> Target:
        peers = self._peers
        return await find_target(load, peers.root, peers.data, peers.index, tuple(dict.fromkeys(held)))

    async def _group(self) -> dict[int, tuple[NodeID, ...]]:
        """The nodes of each replica; replicas come and go with the load's number of them."""
        for number in range(len(self._replicas), self.load.replicas):
            record = ReplicaRecord(QueryChannelInfo(self.collection_id, number, "", 0, {}, {}))
            self._replicas.append(self._replica(record))
        for surplus in self._replicas[self.load.replicas :]:
            await self._peers.fleet.close_channel(surplus.info)
            await self._state.remove_replica(surplus.record)
        del self._replicas[self.load.replicas :]
        return self._grouping()

    def _replica(self, record: ReplicaRecord) -> Replica:
        peers = self._peers
        return Replica(record, peers.fleet, self._state, lambda: peers.root.alloc_timestamp(1))

    def _grouping(self) -> dict[int, tuple[NodeID, ...]]:
        current = {replica.info.replica: replica.record.nodes for replica in self._replicas}
        return nodes_of_replicas(self._groups.view(), self.load.resource_groups, current)

    # balance

    def balance(self, statuses: Statuses) -> int:
        """Have segments move where that makes the replicas' nodes more even; returns how many will."""
        moves = {
            move.segment_id: move.target
            for replica in self._replicas
            for move in balance(self._rooms(replica, statuses), self.collection_id)
        }
        return self.move(moves)

    def move(self, moves: Mapping[SegmentID, NodeID]) -> int:
        """Have these segments move; returns how many."""
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
        """See `QueryCoordApi.load_balance`. Returns how many will move."""
        replica = next((r for r in self._replicas if source in r.record.nodes), None)
        if replica is None:
            raise InvalidParameter(
                f"query node {source} serves no replica of collection {self.collection_id}"
            )
        others = [n for n in replica.record.nodes if n != source and n in statuses]
        wrong = [n for n in targets if n not in others]
        if wrong or not others:
            raise InvalidParameter(
                f"segments of node {source} can go to {others or 'no other node'}, not to {wrong or 'any'}: "
                "the nodes of one replica take over from each other"
            )
        here = [s for s, n in replica.info.sealed.items() if n == source]
        strangers = [s for s in segment_ids if s not in here]
        if strangers:
            raise InvalidParameter(f"segments {strangers} are not on query node {source}")
        served = replica.serving(statuses)
        pieces = [
            Piece(s, self.collection_id, served[s].memory_bytes if s in served else 0)
            for s in segment_ids or here
        ]
        return self.move(place(pieces, [room_of(n, statuses[n]) for n in targets or others]))

    def _rooms(self, replica: Replica, statuses: Statuses) -> list[NodeRoom]:
        return [room_of(n, statuses[n]) for n in replica.record.nodes if n in statuses]


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _today(
    initial: Mapping[SegmentID, PartitionID], target: Target, served: Sequence[Collection[SegmentID]]
) -> dict[SegmentID, PartitionID]:
    """The segments that a load began with, as they are today: compaction may have brought their rows on.

    One that all replicas serve counts as it is, though its successor may be there already.
    """
    found = {}
    for segment_id, partition_id in initial.items():
        is_served = all(segment_id in segments for segments in served)
        today = segment_id if is_served else target.recovery.successors.get(segment_id, segment_id)
        if is_served or today in target.segments:
            found[today] = partition_id
    return found
