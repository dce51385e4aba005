"""The replicas of one loaded collection, and the nodes that belong to each.

A replica works on the nodes of its resource group that are assigned to it. The groups change as nodes come
and go, so a replica may still be on nodes that belong elsewhere by now: it moves at its next reconciliation,
and then those nodes release the collection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from elanus.api.query_channel import QueryChannelInfo
from elanus.api.querycoord import UnreadableSegment
from elanus.api.querynode import QueryNodeStatus
from elanus.core.errors import CollectionNotFullyLoaded
from elanus.core.ids import CollectionID, NodeID
from elanus.core.resource_groups import PlacedReplica, nodes_of_replicas
from elanus.querycoord.fleet import Fleet, Pulses, Statuses
from elanus.querycoord.groups import ResourceGroups
from elanus.querycoord.replica import Replica
from elanus.querycoord.replica_records import ReplicaRecord
from elanus.querycoord.state import Load, LoadState
from elanus.querycoord.target import Target

Grouping = Mapping[int, tuple[NodeID, ...]]
"""The nodes that belong to each replica, by its number."""


class ReplicaSet:
    """``make``: returns a replica with this record."""

    def __init__(
        self,
        collection_id: CollectionID,
        fleet: Fleet,
        state: LoadState,
        groups: ResourceGroups,
        make: Callable[[ReplicaRecord], Replica],
    ) -> None:
        self._collection_id = collection_id
        self._fleet = fleet
        self._state = state
        self._groups = groups
        self._make = make
        self._replicas: list[Replica] = []

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas)

    def __len__(self) -> int:
        return len(self._replicas)

    def restore(self, records: Iterable[ReplicaRecord]) -> None:
        """Restore the replicas as they were last announced: they can be read immediately."""
        self._replicas = [self._make(record) for record in records]

    def records(self) -> list[ReplicaRecord]:
        return [replica.record for replica in self._replicas]

    def nodes(self) -> set[NodeID]:
        """Return the nodes that work for a replica, or did when it was last reconciled, and those that it is
        moving away from: the version in force still names them."""
        return {n for replica in self._replicas for n in (*replica.record.nodes, *replica.named())}

    # what is served

    def channels(self) -> tuple[QueryChannelInfo, ...]:
        """Return the replicas that can be read. Raises `CollectionNotFullyLoaded` while there is none."""
        infos = tuple(replica.info for replica in self._replicas if replica.info.version)
        if not infos:
            raise CollectionNotFullyLoaded(
                f"collection not fully loaded[collection={self._collection_id}]; retry"
            )
        return infos

    def is_served(self, statuses: Pulses) -> bool:
        """Whether every replica is served by nodes that are alive."""
        return bool(self._replicas) and all(replica.is_served(statuses) for replica in self._replicas)

    def unreadable(self) -> tuple[UnreadableSegment, ...]:
        """Return the segments whose files could not be read, of all replicas."""
        found = {
            one.manifest.segment_id: UnreadableSegment(
                one.manifest.segment_id,
                one.manifest.partition_id,
                one.reason,
                is_growing or one.manifest.segment_id in replica.info.missing,
            )
            for replica in self._replicas
            for is_growing, segments in ((False, replica.unreadable), (True, replica.unrecovered))
            for one in segments.all()
        }
        return tuple(found.values())

    def retry_due_s(self) -> float | None:
        """Return when a segment that could not be read is due for another attempt, on the loop's clock; None
        if none is."""
        found = [of.due_s() for r in self._replicas for of in (r.unreadable, r.unrecovered)]
        return min((due_s for due_s in found if due_s is not None), default=None)

    # which node belongs where

    def grouping(self, load: Load) -> Grouping:
        current = {replica.info.replica: replica.record.nodes for replica in self._replicas}
        return nodes_of_replicas(self._groups.view(), load.resource_groups, current)

    def is_grouped(self, load: Load, alive: Collection[NodeID]) -> bool:
        """Whether each node that is alive is in the replica where it belongs, and in no other."""
        grouping = self.grouping(load)
        return all(
            {n for n in nodes if n in alive} <= set(replica.record.nodes)
            and {n for n in replica.record.nodes if n in alive} <= set(nodes)
            for replica in self._replicas
            if (nodes := grouping.get(replica.info.replica, ()))
        )

    def can_leave(self, load: Load, node_id: NodeID) -> bool:
        """Whether every replica that the node works for has other nodes by now, to move to."""
        grouping = self.grouping(load)
        return all(
            set(grouping.get(replica.info.replica, ())) - {node_id}
            for replica in self._replicas
            if node_id in replica.record.nodes or node_id in replica.named()
        )

    def placed(self, load: Load) -> tuple[PlacedReplica, ...]:
        """Return the replicas with the nodes that work for them: those of their groups, and those leaving."""
        alive = self._fleet.alive()
        at_work = {r.info.replica: {*r.record.nodes, *r.named()}.intersection(alive) for r in self._replicas}
        return tuple(
            PlacedReplica(self._collection_id, number, group, tuple(sorted(at_work.get(number, ()))))
            for number, group in enumerate(load.resource_groups)
        )

    async def match(self, load: Load) -> Grouping:
        """Create or remove replicas to match the load's number of them; return the nodes of each.

        Any of them may be missing: a coordinator that died may have persisted a later one only.
        """
        known = {replica.info.replica for replica in self._replicas}
        for number in sorted(set(range(load.replicas)) - known):
            record = ReplicaRecord(QueryChannelInfo(self._collection_id, number, "", 0, {}, {}))
            self._replicas.append(self._make(record))
        self._replicas.sort(key=lambda replica: replica.info.replica)
        for surplus in self._replicas[load.replicas :]:
            await self._fleet.close_channel(surplus.info)
            await self._state.remove_replica(surplus.record)
        del self._replicas[load.replicas :]
        return self.grouping(load)

    async def clear_newcomers(self, groups: Grouping, statuses: dict[NodeID, QueryNodeStatus]) -> None:
        """Clear the collection on nodes that join a replica, and update their statuses.

        Such a node may still hold an earlier load, whose release did not reach it: it would serve old growing
        rows in addition to the segments that these rows have become.
        """
        wanted = {n for nodes in groups.values() for n in nodes}
        known = {n for replica in self._replicas for n in (*replica.record.nodes, *replica.named())}
        for node_id in sorted(n for n in wanted if n in statuses and n not in known):
            if self._collection_id in statuses[node_id].versions:
                node = self._fleet.node(node_id)
                await node.release_collection(self._collection_id)
                statuses[node_id] = await node.status(self._collection_id)

    async def release_leavers(self, groups: Grouping, target: Target, statuses: Statuses) -> bool:
        """Release the collection on nodes that no replica contains or names any more.

        Each node releases it only after it has read its channel up to the version that no longer names it:
        until then it answers earlier reads. Returns whether all have released it.
        """
        needed = {n for nodes in groups.values() for n in nodes}.union(*(r.named() for r in self._replicas))
        versions = {replica.info.channel: replica.info.version for replica in self._replicas}
        is_done = True
        for node_id, before in statuses.items():
            follows = any(v in before.service_times for v in target.collection.vchannels)
            if node_id in needed or not (follows or self._collection_id in before.versions):
                continue
            node = self._fleet.node(node_id)
            status = await node.status(self._collection_id)
            channel = status.query_channels.get(self._collection_id)
            if channel and status.versions.get(self._collection_id, 0) < versions.get(channel, 0):
                is_done = False
            else:
                await node.release_collection(self._collection_id)
        return is_done
