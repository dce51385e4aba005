"""The RPCs of load and release, of collections and partitions."""

from __future__ import annotations

from elanus.core.errors import InvalidParameter
from elanus.core.names import check_collection_name
from elanus.proxy.access.caller import Caller
from elanus.proxy.api.loading import LoadRequest
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.wire.requests import database_of, few_ids, rpc
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2

_LOAD_FIELDS = ("load_fields", "skip_load_dynamic_field", "load_params")
"""Which fields to load, and how soon. A field that was left out can be read, but not searched."""


class Loading:
    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    @rpc(
        "collection_name",
        "replica_number",
        "resource_groups",
        "refresh",
        *_LOAD_FIELDS,
        privilege="PrivilegeLoad",
        on="collection_name",
    )
    def LoadCollection(self, request: milvus_pb2.LoadCollectionRequest, caller: Caller) -> common_pb2.Status:
        self._load(request, caller, ())
        return success()

    @rpc(
        "collection_name",
        "partition_names",
        "replica_number",
        "resource_groups",
        "refresh",
        *_LOAD_FIELDS,
        privilege="PrivilegeLoad",
        on="collection_name",
    )
    def LoadPartitions(self, request: milvus_pb2.LoadPartitionsRequest, caller: Caller) -> common_pb2.Status:
        self._load(request, caller, _named_partitions(request, "load"))
        return success()

    def _load(
        self,
        request: milvus_pb2.LoadCollectionRequest | milvus_pb2.LoadPartitionsRequest,
        caller: Caller,
        partitions: tuple[str, ...],
    ) -> None:
        self._verbs.load(
            LoadRequest(
                database_of(request, caller),
                check_collection_name(request.collection_name),
                partitions,
                replicas=max(request.replica_number, 0),
                resource_groups=tuple(request.resource_groups),
                load_fields=tuple(request.load_fields),
                skip_dynamic=request.skip_load_dynamic_field,
                refresh=request.refresh,
            )
        )

    @rpc("collection_name", privilege="PrivilegeRelease", on="collection_name")
    def ReleaseCollection(
        self, request: milvus_pb2.ReleaseCollectionRequest, caller: Caller
    ) -> common_pb2.Status:
        name = check_collection_name(request.collection_name)
        self._verbs.release(database_of(request, caller), name, ())
        return success()

    @rpc("collection_name", "partition_names", privilege="PrivilegeRelease", on="collection_name")
    def ReleasePartitions(
        self, request: milvus_pb2.ReleasePartitionsRequest, caller: Caller
    ) -> common_pb2.Status:
        name = check_collection_name(request.collection_name)
        partitions = _named_partitions(request, "release")
        self._verbs.release(database_of(request, caller), name, partitions)
        return success()

    @rpc("collection_name", "partition_names", privilege="PrivilegeGetLoadState", on="collection_name")
    def GetLoadingProgress(
        self, request: milvus_pb2.GetLoadingProgressRequest, caller: Caller
    ) -> milvus_pb2.GetLoadingProgressResponse:
        """Return one percentage for load and refresh: segments added since the load are served anyway."""
        progress = self._verbs.loading_progress(
            database_of(request, caller),
            check_collection_name(request.collection_name),
            tuple(request.partition_names),
        )
        return milvus_pb2.GetLoadingProgressResponse(
            progress=progress.percentage, refresh_progress=progress.percentage
        )

    @rpc("collection_name", "partition_names", privilege="PrivilegeGetLoadState", on="collection_name")
    def GetLoadState(
        self, request: milvus_pb2.GetLoadStateRequest, caller: Caller
    ) -> milvus_pb2.GetLoadStateResponse:
        state = self._verbs.load_state(
            database_of(request, caller),
            check_collection_name(request.collection_name),
            tuple(request.partition_names),
        )
        return milvus_pb2.GetLoadStateResponse(
            status=common_pb2.Status(reason=state.obstacle),
            state=common_pb2.LoadState.Value(f"LoadState{state.state}"),
        )

    @rpc(
        "collection_name",
        "collectionID",
        "with_shard_nodes",
        privilege="PrivilegeGetStatistics",
        on="collection_name",
    )
    def GetReplicas(
        self, request: milvus_pb2.GetReplicasRequest, caller: Caller
    ) -> milvus_pb2.GetReplicasResponse:
        """Return the replicas: their ids are the collection's id plus their number.

        The nodes of a replica hold the collection together.
        """
        view = self._verbs.describe_collection(
            database_of(request, caller), request.collection_name, request.collectionID
        )
        database = view.database  # of an id, it may be another than the request's
        loaded = self._verbs.loaded_partitions(database, view.name)
        partitions = [
            p.partition_id for p in self._verbs.list_partitions(database, view.name) if p.name in loaded
        ]
        response = milvus_pb2.GetReplicasResponse()
        for found in self._verbs.replicas(database, view.name):
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

    @rpc(
        "collectionName",
        "src_nodeID",
        "dst_nodeIDs",
        "sealed_segmentIDs",
        privilege="PrivilegeLoadBalance",
        on="collectionName",
    )
    def LoadBalance(self, request: milvus_pb2.LoadBalanceRequest, caller: Caller) -> common_pb2.Status:
        self._verbs.load_balance(
            database_of(request, caller),
            request.collectionName,  # not checked: an invalid name is simply not found
            request.src_nodeID,
            few_ids(request.dst_nodeIDs, "dst_nodeIDs"),
            few_ids(request.sealed_segmentIDs, "sealed_segmentIDs"),
        )
        return success()


def _named_partitions(
    request: milvus_pb2.LoadPartitionsRequest | milvus_pb2.ReleasePartitionsRequest, verb: str
) -> tuple[str, ...]:
    if not request.partition_names:
        raise InvalidParameter(f"failed to {verb} partition, due to no partition specified")
    return tuple(request.partition_names)
