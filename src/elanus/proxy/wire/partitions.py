"""The RPCs of partitions."""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.catalog import Partition
from elanus.core.errors import CollectionNotLoaded, PartitionNotFound, PartitionNotLoaded
from elanus.core.names import check_collection_name, check_partition_name
from elanus.core.timestamps import physical_ms
from elanus.proxy.access.caller import Caller
from elanus.proxy.api.loading import LoadedView
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.wire.requests import database_of, rpc
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2

_PartitionRequest = (
    milvus_pb2.CreatePartitionRequest
    | milvus_pb2.DropPartitionRequest
    | milvus_pb2.HasPartitionRequest
    | milvus_pb2.GetPartitionStatisticsRequest
)


class Partitions:
    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    @rpc("collection_name", "partition_name", privilege="PrivilegeCreatePartition", on="collection_name")
    def CreatePartition(
        self, request: milvus_pb2.CreatePartitionRequest, caller: Caller
    ) -> common_pb2.Status:
        self._verbs.create_partition(*_partition_of(request, caller))
        return success()

    @rpc("collection_name", "partition_name", privilege="PrivilegeDropPartition", on="collection_name")
    def DropPartition(self, request: milvus_pb2.DropPartitionRequest, caller: Caller) -> common_pb2.Status:
        self._verbs.drop_partition(*_partition_of(request, caller))
        return success()

    @rpc("collection_name", "partition_name", privilege="PrivilegeHasPartition", on="collection_name")
    def HasPartition(
        self, request: milvus_pb2.HasPartitionRequest, caller: Caller
    ) -> milvus_pb2.BoolResponse:
        return milvus_pb2.BoolResponse(value=self._verbs.has_partition(*_partition_of(request, caller)))

    @rpc("collection_name", "partition_name", privilege="PrivilegeGetStatistics", on="collection_name")
    def GetPartitionStatistics(
        self, request: milvus_pb2.GetPartitionStatisticsRequest, caller: Caller
    ) -> milvus_pb2.GetPartitionStatisticsResponse:
        rows = self._verbs.partition_rows(*_partition_of(request, caller))
        response = milvus_pb2.GetPartitionStatisticsResponse()
        response.stats.add(key="row_count", value=str(rows))
        return response

    @rpc(
        "collection_name",
        "collectionID",
        "partition_names",
        "type",
        privilege="PrivilegeShowPartitions",
        on="collection_name",
    )
    def ShowPartitions(
        self, request: milvus_pb2.ShowPartitionsRequest, caller: Caller
    ) -> milvus_pb2.ShowPartitionsResponse:
        database = database_of(request, caller)
        name = request.collection_name
        if not name and request.collectionID:
            view = self._verbs.describe_collection(database, "", request.collectionID)
            database, name = view.database, view.name
        check_collection_name(name)
        partitions = {p.name: p for p in self._verbs.list_partitions(database, name)}
        asked = tuple(dict.fromkeys(request.partition_names))
        for missing in (p for p in asked if p not in partitions):
            raise PartitionNotFound(f"partition not found[partition={missing}]")
        if request.type == milvus_pb2.InMemory:
            return _show_loaded(partitions, self._loaded_partitions(database, name), asked)
        response = milvus_pb2.ShowPartitionsResponse()
        for shown in asked or partitions:
            _add_partition(response, partitions[shown])
        return response

    def _loaded_partitions(self, database: str, collection: str) -> Mapping[str, LoadedView]:
        """Return the loaded partitions; none if the collection is not loaded."""
        try:
            return self._verbs.loaded_partitions(database, collection)
        except CollectionNotLoaded:
            return {}


def _show_loaded(
    partitions: Mapping[str, Partition], loaded: Mapping[str, LoadedView], asked: tuple[str, ...]
) -> milvus_pb2.ShowPartitionsResponse:
    """Return the loaded partitions: all, or the named ones, each of which must be loaded."""
    response = milvus_pb2.ShowPartitionsResponse()
    for name in asked or loaded:
        if name not in loaded:
            raise PartitionNotLoaded(f"partition not loaded[partition={name}]")
        _add_partition(response, partitions[name])
        response.inMemory_percentages.append(loaded[name].percentage)
    return response


def _partition_of(request: _PartitionRequest, caller: Caller) -> tuple[str, str, str]:
    collection = check_collection_name(request.collection_name)
    return database_of(request, caller), collection, check_partition_name(request.partition_name)


def _add_partition(response: milvus_pb2.ShowPartitionsResponse, view: Partition) -> None:
    response.partition_names.append(view.name)
    response.partitionIDs.append(view.partition_id)
    response.created_timestamps.append(view.created)
    response.created_utc_timestamps.append(physical_ms(view.created))
