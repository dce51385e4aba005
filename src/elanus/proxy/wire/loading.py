"""The RPCs of load and release, of collections and partitions."""

from __future__ import annotations

from elanus.core.errors import InvalidParameter
from elanus.proxy.api import Front
from elanus.proxy.wire.names import check_collection_name
from elanus.proxy.wire.requests import Context, database_of, rpc
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import Message, common_pb2, milvus_pb2

_DEFAULT_REPLICAS = 1


class Loading:
    def __init__(self, front: Front) -> None:
        self._front = front

    @rpc("collection_name", "replica_number", "resource_groups", "refresh")
    def LoadCollection(self, request: Message, context: Context) -> Message:
        self._load(request, context, ())
        return success()

    @rpc("collection_name", "partition_names", "replica_number", "resource_groups", "refresh")
    def LoadPartitions(self, request: Message, context: Context) -> Message:
        self._load(request, context, _named_partitions(request, "load"))
        return success()

    def _load(self, request: Message, context: Context, partitions: tuple[str, ...]) -> None:
        self._front.load(
            database_of(request, context),
            check_collection_name(request.collection_name),
            partitions,
            replicas=request.replica_number or _DEFAULT_REPLICAS,
            refresh=request.refresh,
            resource_groups=tuple(request.resource_groups),
        )

    @rpc("collection_name")
    def ReleaseCollection(self, request: Message, context: Context) -> Message:
        name = check_collection_name(request.collection_name)
        self._front.release(database_of(request, context), name, ())
        return success()

    @rpc("collection_name", "partition_names")
    def ReleasePartitions(self, request: Message, context: Context) -> Message:
        name = check_collection_name(request.collection_name)
        partitions = _named_partitions(request, "release")
        self._front.release(database_of(request, context), name, partitions)
        return success()

    @rpc("collection_name", "partition_names")
    def GetLoadingProgress(self, request: Message, context: Context) -> Message:
        """A refresh loads what was added since the load, which is served anyway: one figure tells both."""
        progress = self._front.loading_progress(
            database_of(request, context),
            check_collection_name(request.collection_name),
            tuple(request.partition_names),
        )
        return milvus_pb2.GetLoadingProgressResponse(
            progress=progress.percentage, refresh_progress=progress.percentage
        )

    @rpc("collection_name", "partition_names")
    def GetLoadState(self, request: Message, context: Context) -> Message:
        state = self._front.load_state(
            database_of(request, context),
            check_collection_name(request.collection_name),
            tuple(request.partition_names),
        )
        return milvus_pb2.GetLoadStateResponse(state=common_pb2.LoadState.Value(f"LoadState{state}"))

    @rpc("collection_name", "collectionID", "with_shard_nodes")
    def GetReplicas(self, request: Message, context: Context) -> Message:
        """A replica goes by the collection's id and its number; its nodes hold the collection together."""
        database = database_of(request, context)
        view = self._front.describe_collection(database, request.collection_name, request.collectionID)
        loaded = self._front.loaded_partitions(database, view.name)
        partitions = [
            p.partition_id for p in self._front.list_partitions(database, view.name) if p.name in loaded
        ]
        response = milvus_pb2.GetReplicasResponse()
        for found in self._front.replicas(database, view.name):
            replica = response.replicas.add(
                replicaID=view.collection_id + found.number,
                collectionID=view.collection_id,
                partition_ids=partitions,
                node_ids=found.node_ids,
                resource_group_name=found.resource_group,
                num_outbound_node=found.outbound,
            )
            for vchannel, leader in found.leads.items():
                shard = replica.shard_replicas.add(leaderID=leader, dm_channel_name=vchannel)
                if request.with_shard_nodes:
                    shard.node_ids.extend(found.node_ids)
        return response

    @rpc("collectionName", "src_nodeID", "dst_nodeIDs", "sealed_segmentIDs")
    def LoadBalance(self, request: Message, context: Context) -> Message:
        self._front.load_balance(
            database_of(request, context),
            check_collection_name(request.collectionName),
            request.src_nodeID,
            tuple(request.dst_nodeIDs),
            tuple(request.sealed_segmentIDs),
        )
        return success()


def _named_partitions(request: Message, verb: str) -> tuple[str, ...]:
    if not request.partition_names:
        raise InvalidParameter(f"failed to {verb} partition, due to no partition specified")
    return tuple(request.partition_names)
