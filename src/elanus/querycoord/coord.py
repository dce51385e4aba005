"""The query coordinator role: one loader per loaded collection.

A loader is woken by every change of the data or of its indexes, and when its query nodes are found not to
serve it: a restarted node has lost its state and does not report that. Periodically, the segments of each
collection are balanced over the nodes, and resource groups that have lost nodes get replacements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

import structlog

from elanus.api.datacoord import DataCoordApi
from elanus.api.following import follow_changes
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.query_channel import QueryChannelInfo
from elanus.api.querycoord import LoadStatus, ReplicaStatus, ResourceGroupStatus
from elanus.api.querynode import QueryNodeStatus, SegmentServing
from elanus.api.recovery import VchannelRecovery
from elanus.core.errors import CollectionNotFound, CollectionNotLoaded, ElanusError
from elanus.core.group_config import GroupConfig
from elanus.core.growing_memory import GrowingMemory
from elanus.core.ids import CollectionID, FieldID, NodeID, PartitionID, SegmentID
from elanus.core.replicas import check_enough
from elanus.core.resource_groups import (
    DEFAULT_RESOURCE_GROUP,
    PlacedReplica,
    check_same_groups,
    find,
    outbound,
    spread,
    transfer_replicas,
)
from elanus.core.timestamps import Timestamp
from elanus.meta.cancellation import uncancellable
from elanus.meta.tasks import cancel_and_wait
from elanus.querycoord.balancing import Balancing
from elanus.querycoord.fleet import ask_all
from elanus.querycoord.groups import ResourceGroups
from elanus.querycoord.growing import growing_collections, growing_memory
from elanus.querycoord.loader import CollectionLoader, QueryDependencies
from elanus.querycoord.log_positions import LogPositions
from elanus.querycoord.mirrors import Mirrors
from elanus.querycoord.node_watch import NodeWatch
from elanus.querycoord.state import (
    Load,
    LoadState,
    check_partitions,
    check_same_fields,
    with_partitions,
    without_partitions,
)

_log = structlog.get_logger("querycoord")


class QueryCoord:
    """Implements `elanus.api.querycoord.QueryCoordApi`.

    ``balance_interval_s``: how often segments are balanced over the nodes.
    """

    def __init__(
        self, state: LoadState, peers: QueryDependencies, *, balance_interval_s: float = 60.0
    ) -> None:
        self._state = state
        self._peers = peers
        self._groups = ResourceGroups(state, peers.fleet)
        self._loaders: dict[CollectionID, CollectionLoader] = {}
        self._lock = asyncio.Lock()
        self._is_stopped = False
        self._doubtful: set[CollectionID] = set()
        """The collections of which a load may have been recorded that is not in force here."""
        self._background: list[asyncio.Task[None]] = []
        self._recovering: dict[CollectionID, tuple[VchannelRecovery, ...]] = {}
        self._mirrors = Mirrors(peers.mirrors, peers, self._loaders)
        self._balancing = Balancing(self._loaders, self._statuses, balance_interval_s)
        self._log_positions = LogPositions(
            peers.data, lambda: (*peers.fleet.alive(), *self._mirrors.alive()), self._about_to_read
        )
        self._nodes = NodeWatch(
            peers.fleet,
            self._groups,
            self._loaders,
            self._mirrors,
            self._log_positions,
            self._lock,
            lambda: self._balancing.changed(self._loaders),
        )

    async def start(self) -> None:
        """Resume serving the loaded collections. Returns at once; the loads continue in the background."""
        await self._groups.restore()
        now = await self._peers.root.alloc_timestamp(1)
        for load, records in await self._state.restore():
            loader = self._loader(load, now)
            loader.restore(records)
            self._begin(loader)
        self._background = [
            asyncio.create_task(self._follow(self._peers.data), name="follow datacoord"),
            asyncio.create_task(self._follow(self._peers.index), name="follow indexcoord"),
            asyncio.create_task(self._nodes.run(), name="watch the query nodes"),
            asyncio.create_task(self._log_positions.run(), name="report log positions"),
            asyncio.create_task(self._balancing.run(), name="balance"),
            asyncio.create_task(self._groups.recover(), name="recover resource groups"),
        ]
        self._mirrors.start()

    async def stop(self) -> None:
        self._is_stopped = True
        await self._mirrors.stop()
        await cancel_and_wait(*self._background)
        await asyncio.gather(*(loader.stop() for loader in self._loaders.values()))

    async def load(
        self,
        collection_id: CollectionID,
        partition_ids: tuple[PartitionID, ...],
        replicas: int,
        groups: tuple[str, ...] = (),
        fields: tuple[FieldID, ...] = (),
    ) -> None:
        async with self._lock:
            collection = await self._peers.root.collection_by_id(collection_id)
            check_partitions(collection, partition_ids)
            loaded = self._loaders.get(collection_id)
            if loaded is None:
                placed = self._placement(groups, replicas or 1)
                load = with_partitions(None, collection_id, partition_ids, replicas, placed, fields)
            else:
                load = with_partitions(loaded.load, collection_id, partition_ids, replicas)
                check_same_fields(loaded.load, collection, fields)
                spread(self._groups.view(), groups, load.replicas)  # raises for groups that do not exist
                check_same_groups(groups, load.resource_groups)
                if load == loaded.load:
                    return
            now = await self._peers.root.alloc_timestamp(1)
            loader = loaded or self._loader(load, now)
            await loader.check_fits(load, set(load.resource_groups), await self._statuses(collection_id))
            if loaded is None:
                await self._add(loader)
            else:
                await self._widen(loader, load, now)

    async def _record(self, load: Load) -> None:
        """Persist a load. If the outcome stays unknown, a release makes sure of what is recorded: else a
        successor would load what the client has released."""
        self._doubtful.add(load.collection_id)
        await self._state.put(load)
        self._doubtful.discard(load.collection_id)

    async def _make_sure(self, collection_id: CollectionID) -> None:
        loader = self._loaders.get(collection_id)
        if loader is not None:
            await self._record(loader.load)
        else:
            await self._state.remove(collection_id)
            self._doubtful.discard(collection_id)

    @uncancellable
    async def _add(self, loader: CollectionLoader) -> None:
        await self._record(loader.load)
        self._begin(loader)

    @uncancellable
    async def _widen(self, loader: CollectionLoader, load: Load, now: Timestamp) -> None:
        """If it were left half-way, mirrors would be read without the added partitions: the next call finds
        the load as it is to be."""
        await self._record(load)
        loader.change(load, now)
        await self._mirrors.withhold(load.collection_id)

    def _placement(self, groups: tuple[str, ...], replicas: int) -> tuple[str, ...]:
        """Return the resource group of each replica of a new load. ``groups``: as the client named them."""
        view = self._groups.view()
        if len(groups) <= 1:
            # before anything is made for each replica: a client may ask for two billion
            group = find(view, *groups or (DEFAULT_RESOURCE_GROUP,))
            check_enough(len(group.nodes), replicas, group.name)
        return spread(view, groups, replicas)

    async def release(self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...]) -> None:
        async with self._lock:
            if collection_id in self._doubtful:
                await self._make_sure(collection_id)
            loader = self._loaders.get(collection_id)
            if loader is None:
                return
            if not partition_ids:
                await self._release_all(loader)
                return
            collection = await self._peers.root.collection_by_id(collection_id)
            rest = without_partitions(loader.load, collection, partition_ids)
            if rest is None:  # also if all that is loaded has been dropped
                await self._release_all(loader)
                return
            if not set(partition_ids) & set(loader.load.partitions_of(collection)):
                loader.wake()  # partitions that were dropped, or are not loaded
                if not loader.is_settled:  # a release of them may have got no further than its record
                    await self._apply_narrower(loader)
                return
            await self._narrow(loader, rest, partition_ids)

    @uncancellable
    async def _narrow(
        self, loader: CollectionLoader, rest: Load, partition_ids: tuple[PartitionID, ...]
    ) -> None:
        await self._record(rest)
        loader.leave_out(rest, partition_ids)
        await self._apply_narrower(loader)

    @uncancellable
    async def _apply_narrower(self, loader: CollectionLoader) -> None:
        """Return when no read that begins sees partitions that the load leaves out."""
        await self._mirrors.withhold(loader.collection_id)
        await loader.narrow()

    @uncancellable
    async def _release_all(self, loader: CollectionLoader) -> None:
        collection_id = loader.collection_id
        await self._state.remove(collection_id)
        del self._loaders[collection_id]
        self._nodes.released(collection_id)
        await loader.stop()
        await self._mirrors.release(collection_id)
        await loader.release(self._peers.fleet.alive())

    async def reload(self, collection_id: CollectionID) -> None:
        async with self._lock:
            loader = self._loaders.get(collection_id)
            if loader is None:
                return
            now = await self._peers.root.alloc_timestamp(1)
            try:
                await loader.stop()
                await self._mirrors.release(collection_id)
                await loader.release(self._peers.fleet.alive())
                await self._state.remove_replicas(collection_id)
            finally:  # else nobody would load it; a new loader clears nodes that still hold the former load
                self._begin(self._loader(loader.load, now))

    async def loads(self, collection_id: CollectionID = CollectionID(0)) -> tuple[LoadStatus, ...]:
        one = self._loaders.get(collection_id)
        asked = [one] if one else [] if collection_id else list(self._loaders.values())
        statuses = await self._statuses(collection_id) if asked else {}
        found = []
        for loader in asked:
            try:
                percentages = await loader.percentages(statuses)
            except CollectionNotFound:
                continue
            logs = [status.unreadable_logs.get(loader.collection_id, ()) for status in statuses.values()]
            found.append(
                LoadStatus(
                    loader.collection_id,
                    loader.load.whole,
                    percentages,
                    loader.unreadable(),
                    tuple(dict.fromkeys(chain.from_iterable(logs))),
                    loader.stall(),
                )
            )
        return tuple(found)

    async def held_segments(self) -> tuple[SegmentID, ...]:
        fleet = self._peers.fleet
        asked = (fleet.node(node_id).status() for node_id in fleet.alive())
        answers = [*await asyncio.gather(*asked), *await self._mirrors.statuses()]
        growing = {s.segment_id for status in answers for s in status.segments if not s.sealed}
        return tuple(growing.union(*(status.held for status in answers)))

    async def serving(self, collection_id: CollectionID) -> tuple[tuple[NodeID, SegmentServing], ...]:
        return tuple(
            (node_id, serving)
            for node_id, status in (await self._statuses(collection_id)).items()
            for serving in status.segments
            if serving.collection_id == collection_id
        )

    async def growing_bytes(self) -> int:
        return max((s.growing_bytes for s in self._nodes.latest.values()), default=0)

    async def growing_memory(self) -> tuple[GrowingMemory, ...]:
        return growing_memory(self._nodes.latest.values())

    async def growing_collections(self) -> Mapping[CollectionID, int]:
        return growing_collections(self._nodes.latest.values())

    async def query_channels(self, collection_id: CollectionID) -> tuple[QueryChannelInfo, ...]:
        return self._loaded(collection_id).channels()

    async def replicas(self, collection_id: CollectionID) -> tuple[ReplicaStatus, ...]:
        loader, groups = self._loaded(collection_id), self._groups.view()
        replicas = {replica.number: replica for replica in loader.placed()}
        return tuple(
            ReplicaStatus(info, replica.group, replica.nodes, outbound(groups, replica))
            for info in loader.channels()
            if (replica := replicas.get(info.replica))
        )

    async def load_balance(
        self,
        collection_id: CollectionID,
        source: NodeID,
        targets: tuple[NodeID, ...],
        segment_ids: tuple[SegmentID, ...],
    ) -> None:
        self._loaded(collection_id).move_from(
            source, targets, segment_ids, await self._statuses(collection_id)
        )

    async def leave(self, node_id: NodeID) -> bool:
        if not self._groups.is_leaving(node_id):
            if not self._groups.leave(node_id):
                return False
            _log.info("query node leaves", node=node_id)
            self._wake_all()
        held = (await self._peers.fleet.node(node_id).pulse()).versions
        loaders = (self._loaders.get(collection_id) for collection_id in held)
        return any(loader is not None and loader.can_leave(node_id) for loader in loaders)

    # resource groups

    async def create_resource_group(self, name: str, config: GroupConfig | None = None) -> None:
        async with self._lock:
            await self._groups.create(name, config)
            self._wake_all()

    async def update_resource_groups(self, configs: Mapping[str, GroupConfig]) -> None:
        async with self._lock:
            await self._groups.update(configs)
            self._wake_all()

    async def drop_resource_group(self, name: str) -> None:
        async with self._lock:
            await self._groups.drop(name, self._placed())

    async def list_resource_groups(self) -> tuple[str, ...]:
        return tuple(sorted(self._groups.view()))

    async def describe_resource_group(self, name: str) -> ResourceGroupStatus:
        return self._groups.status(name, self._placed())

    async def resource_groups(self) -> tuple[ResourceGroupStatus, ...]:
        return self._groups.statuses(self._placed())

    async def transfer_node(self, source: str, target: str, count: int) -> None:
        async with self._lock:
            await self._groups.transfer(source, target, count, self._placed())
            self._wake_all()

    async def transfer_replica(
        self, collection_id: CollectionID, source: str, target: str, count: int
    ) -> None:
        async with self._lock:
            loader = self._loaded(collection_id)
            of_replica = loader.load.resource_groups
            groups = transfer_replicas(self._groups.view(), of_replica, source, target, count)
            load = replace(loader.load, groups=groups)
            await loader.check_fits(load, {target}, await self._statuses(collection_id))
            await self._regroup(loader, load)

    @uncancellable
    async def _regroup(self, loader: CollectionLoader, load: Load) -> None:
        await self._state.put(load)
        loader.regroup(load)

    def _wake_all(self) -> None:
        for loader in self._loaders.values():
            loader.wake()

    def _placed(self) -> tuple[PlacedReplica, ...]:
        return tuple(replica for loader in self._loaders.values() for replica in loader.placed())

    def _loaded(self, collection_id: CollectionID) -> CollectionLoader:
        loader = self._loaders.get(collection_id)
        if loader is None:
            raise CollectionNotLoaded(f"collection not loaded[collection={collection_id}]")
        return loader

    async def _statuses(self, collection_id: CollectionID = CollectionID(0)) -> dict[NodeID, QueryNodeStatus]:
        """Return the status of each node that answers, of one collection if one is given. Raises as
        `ask_all`."""
        return await ask_all(self._peers.fleet, lambda node: node.status(collection_id))

    def _loader(self, load: Load, load_ts: Timestamp) -> CollectionLoader:
        return CollectionLoader(
            load,
            self._peers,
            self._state,
            self._groups,
            load_ts,
            self._reconciled,
            self._recovering,
            self._mirrors.withhold,
        )

    def _about_to_read(self) -> Iterator[VchannelRecovery]:
        return chain(chain.from_iterable(self._recovering.values()), self._mirrors.recovering())

    def _reconciled(self, collection_id: CollectionID) -> None:
        self._nodes.reconciled(collection_id)
        self._balancing.changed((collection_id,))
        self._mirrors.follow(collection_id)

    def _begin(self, loader: CollectionLoader) -> None:
        self._loaders[loader.collection_id] = loader
        if not self._is_stopped:
            loader.start()

    async def _follow(self, coordinator: DataCoordApi | IndexCoordApi) -> None:
        """Wake the loaders of collections that change there, until cancelled."""

        def changed(concerned: tuple[CollectionID, ...] | None) -> None:
            for collection_id in tuple(self._loaders) if concerned is None else concerned:
                if loader := self._loaders.get(collection_id):
                    loader.wake()

        def unreached(error: ElanusError) -> None:
            _log.info("coordinator not reached", error=error.message)

        await follow_changes(coordinator, changed, unreached)
