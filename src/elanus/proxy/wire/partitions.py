"""The RPCs of partitions."""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.errors import CollectionNotLoaded, PartitionNotFound, PartitionNotLoaded
from elanus.core.timestamps import physical_ms
from elanus.proxy.api import Front, LoadedView, PartitionView
from elanus.proxy.wire.names import check_collection_name, check_partition_name
from elanus.proxy.wire.requests import Context, database_of, rpc
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import Message, milvus_pb2


class Partitions:
    def __init__(self, front: Front) -> None:
        self._front = front

    @rpc("collection_name", "partition_name")
    def CreatePartition(self, request: Message, context: Context) -> Message:
        self._front.create_partition(*_partition_of(request, context))
        return success()

    @rpc("collection_name", "partition_name")
    def DropPartition(self, request: Message, context: Context) -> Message:
        self._front.drop_partition(*_partition_of(request, context))
        return success()

    @rpc("collection_name", "partition_name")
    def HasPartition(self, request: Message, context: Context) -> Message:
        return milvus_pb2.BoolResponse(value=self._front.has_partition(*_partition_of(request, context)))

    @rpc("collection_name", "partition_name")
    def GetPartitionStatistics(self, request: Message, context: Context) -> Message:
        rows = self._front.partition_rows(*_partition_of(request, context))
        response = milvus_pb2.GetPartitionStatisticsResponse()
        response.stats.add(key="row_count", value=str(rows))
        return response

    @rpc("collection_name", "collectionID", "partition_names", "type")
    def ShowPartitions(self, request: Message, context: Context) -> Message:
        database = database_of(request, context)
        name = request.collection_name
        if not name and request.collectionID:
            name = self._front.describe_collection(database, "", request.collectionID).name
        check_collection_name(name)
        partitions = {p.name: p for p in self._front.list_partitions(database, name)}
        asked = tuple(request.partition_names)
        for missing in (p for p in asked if p not in partitions):
            raise PartitionNotFound(f"partition not found[partition={missing}]")
        if request.type == milvus_pb2.InMemory:
            return _show_loaded(partitions, self._loaded_partitions(database, name), asked)
        response = milvus_pb2.ShowPartitionsResponse()
        for shown in asked or partitions:
            _add_partition(response, partitions[shown])
        return response

    def _loaded_partitions(self, database: str, collection: str) -> Mapping[str, LoadedView]:
        """None of a collection that is not loaded."""
        try:
            return self._front.loaded_partitions(database, collection)
        except CollectionNotLoaded:
            return {}


def _show_loaded(
    partitions: Mapping[str, PartitionView], loaded: Mapping[str, LoadedView], asked: tuple[str, ...]
) -> Message:
    """The loaded partitions: all, or the named ones, each of which must be loaded."""
    response = milvus_pb2.ShowPartitionsResponse()
    for name in asked or loaded:
        if name not in loaded:
            raise PartitionNotLoaded(f"partition not loaded[partition={name}]")
        _add_partition(response, partitions[name])
        response.inMemory_percentages.append(loaded[name].percentage)
    return response


def _partition_of(request: Message, context: Context) -> tuple[str, str, str]:
    collection = check_collection_name(request.collection_name)
    return database_of(request, context), collection, check_partition_name(request.partition_name)


def _add_partition(response: Message, view: PartitionView) -> None:
    response.partition_names.append(view.name)
    response.partitionIDs.append(view.partition_id)
    response.created_timestamps.append(view.created)
    response.created_utc_timestamps.append(physical_ms(view.created))
