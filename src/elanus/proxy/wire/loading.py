"""The RPCs of load and release, of collections and partitions."""

from __future__ import annotations

from elanus.core.errors import InvalidParameter
from elanus.proxy.api import Front
from elanus.proxy.wire.names import check_collection_name
from elanus.proxy.wire.requests import Context, database_of, rpc
from elanus.proxy.wire.resource_groups import DEFAULT_RESOURCE_GROUP, QUERY_NODE_ROLE
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import Message, common_pb2, milvus_pb2
from elanus.proxy.wire.unsupported import unsupported

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
        for group in request.resource_groups:
            if group != DEFAULT_RESOURCE_GROUP:
                raise unsupported(
                    f"the resource group {group}", f"all query nodes belong to {DEFAULT_RESOURCE_GROUP}"
                )
        self._front.load(
            database_of(request, context),
            check_collection_name(request.collection_name),
            partitions,
            replicas=request.replica_number or _DEFAULT_REPLICAS,
            refresh=request.refresh,
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
        """One replica: every query node serves it. It goes by the collection's id, having none of its own."""
        database = database_of(request, context)
        view = self._front.describe_collection(database, request.collection_name, request.collectionID)
        loaded = self._front.loaded_partitions(database, view.name)
        nodes = [c.node_id for c in self._front.components() if c.role == QUERY_NODE_ROLE]
        response = milvus_pb2.GetReplicasResponse()
        replica = response.replicas.add(
            replicaID=view.collection_id,
            collectionID=view.collection_id,
            node_ids=nodes,
            resource_group_name=DEFAULT_RESOURCE_GROUP,
        )
        for partition in self._front.list_partitions(database, view.name):
            if partition.name in loaded:
                replica.partition_ids.append(partition.partition_id)
        for vchannel in view.vchannels:
            shard = replica.shard_replicas.add(leaderID=nodes[0], dm_channel_name=vchannel)
            if request.with_shard_nodes:
                shard.node_ids.extend(nodes)
        return response


def _named_partitions(request: Message, verb: str) -> tuple[str, ...]:
    if not request.partition_names:
        raise InvalidParameter(f"failed to {verb} partition, due to no partition specified")
    return tuple(request.partition_names)
