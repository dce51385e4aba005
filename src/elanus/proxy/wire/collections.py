"""The RPCs of collections and their aliases."""

from __future__ import annotations

from elanus.core.errors import CollectionNotFound, CollectionNotLoaded, InvalidParameter
from elanus.core.limits import SHARDS_MAX
from elanus.core.timestamps import physical_ms
from elanus.proxy.api import CollectionView, CreateCollection, Front, LoadedView
from elanus.proxy.wire.names import check_alias, check_collection_name
from elanus.proxy.wire.requests import Context, consistency_level, database_of, rpc, to_dict
from elanus.proxy.wire.schemas import decode_schema, describe
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import Message, milvus_pb2

_DEFAULT_SHARDS = 1


class _CollectionNotDescribed(CollectionNotFound):
    """Clients before 2.3.2 know by this legacy code, and by the words "can't find collection", that
    ``has_collection`` is to answer False."""

    legacy_code = 1

    @classmethod
    def telling(cls, error: CollectionNotFound) -> _CollectionNotDescribed:
        """The error in the words of this one RPC."""
        return cls(error.message.replace("collection not found", "can't find collection", 1))


class Collections:
    def __init__(self, front: Front) -> None:
        self._front = front

    @rpc("collection_name", "schema", "shards_num", "consistency_level", "properties", "num_partitions")
    def CreateCollection(self, request: Message, context: Context) -> Message:
        schema = decode_schema(request.schema, request.collection_name)
        self._front.create_collection(
            CreateCollection(
                database=database_of(request, context),
                schema=schema,
                shards=_checked_shards(request.shards_num),
                consistency_level=consistency_level(request.consistency_level),
                properties=to_dict(request.properties),
                num_partitions=request.num_partitions,
            )
        )
        return success()

    @rpc("collection_name")
    def DropCollection(self, request: Message, context: Context) -> Message:
        name = check_collection_name(request.collection_name)
        self._front.drop_collection(database_of(request, context), name)
        return success()

    @rpc("collection_name")
    def HasCollection(self, request: Message, context: Context) -> Message:
        name = check_collection_name(request.collection_name)
        return milvus_pb2.BoolResponse(value=self._front.has_collection(database_of(request, context), name))

    @rpc("collection_name", "collectionID")
    def DescribeCollection(self, request: Message, context: Context) -> Message:
        database, name = database_of(request, context), request.collection_name
        if name or not request.collectionID:
            check_collection_name(name)
        try:
            view = self._front.describe_collection(database, name, request.collectionID)
        except CollectionNotFound as error:
            raise _CollectionNotDescribed.telling(error) from error
        return describe(view, name)

    @rpc("type", "collection_names")
    def ShowCollections(self, request: Message, context: Context) -> Message:
        database = database_of(request, context)
        if request.type == milvus_pb2.InMemory:
            return self._show_loaded(database, tuple(request.collection_names))
        response = milvus_pb2.ShowCollectionsResponse()
        for view in self._front.list_collections(database):
            _add_collection(response, view)
        return response

    def _show_loaded(self, database: str, names: tuple[str, ...]) -> Message:
        """The loaded collections: all, or the named ones, each of which must be loaded."""
        loaded = self._front.loaded_collections(database)
        response = milvus_pb2.ShowCollectionsResponse()
        for name in names or loaded:
            view = self._front.describe_collection(database, name)
            if view.name not in loaded:
                raise CollectionNotLoaded(f"collection not loaded[collection={name}]")
            _add_collection(response, view)
            _add_load(response, loaded[view.name])
        return response

    @rpc("collection_name")
    def GetCollectionStatistics(self, request: Message, context: Context) -> Message:
        name = check_collection_name(request.collection_name)
        rows = self._front.collection_rows(database_of(request, context), name)
        response = milvus_pb2.GetCollectionStatisticsResponse()
        response.stats.add(key="row_count", value=str(rows))
        return response

    @rpc("oldName", "newName", "newDBName")
    def RenameCollection(self, request: Message, context: Context) -> Message:
        database = database_of(request, context)
        self._front.rename_collection(
            database,
            check_collection_name(request.oldName),
            check_collection_name(request.newName),
            request.newDBName or database,
        )
        return success()

    @rpc("collection_name", "properties", "delete_keys")
    def AlterCollection(self, request: Message, context: Context) -> Message:
        self._front.alter_collection(
            database_of(request, context),
            check_collection_name(request.collection_name),
            to_dict(request.properties),
            tuple(request.delete_keys),
        )
        return success()

    @rpc("collection_name", "alias")
    def CreateAlias(self, request: Message, context: Context) -> Message:
        collection, alias = check_collection_name(request.collection_name), check_alias(request.alias)
        self._front.create_alias(database_of(request, context), collection, alias)
        return success()

    @rpc("alias")
    def DropAlias(self, request: Message, context: Context) -> Message:
        self._front.drop_alias(database_of(request, context), check_alias(request.alias))
        return success()

    @rpc("collection_name", "alias")
    def AlterAlias(self, request: Message, context: Context) -> Message:
        collection, alias = check_collection_name(request.collection_name), check_alias(request.alias)
        self._front.alter_alias(database_of(request, context), collection, alias)
        return success()

    @rpc("alias")
    def DescribeAlias(self, request: Message, context: Context) -> Message:
        database = database_of(request, context)
        collection = self._front.describe_alias(database, check_alias(request.alias))
        return milvus_pb2.DescribeAliasResponse(db_name=database, alias=request.alias, collection=collection)

    @rpc("collection_name")
    def ListAliases(self, request: Message, context: Context) -> Message:
        database = database_of(request, context)
        return milvus_pb2.ListAliasesResponse(
            db_name=database,
            collection_name=request.collection_name,
            aliases=self._front.list_aliases(database, request.collection_name),
        )


def _checked_shards(asked: int) -> int:
    """0 is how the wire says that the client left it open."""
    if asked < 0:
        raise InvalidParameter(f"shards_num must be in [1, {SHARDS_MAX}], got {asked}")
    if asked > SHARDS_MAX:
        raise InvalidParameter(f"maximum shards's number should be limited to {SHARDS_MAX}, got {asked}")
    return asked or _DEFAULT_SHARDS


def _add_collection(response: Message, view: CollectionView) -> None:
    response.collection_names.append(view.name)
    response.collection_ids.append(view.collection_id)
    response.created_timestamps.append(view.created)
    response.created_utc_timestamps.append(physical_ms(view.created))
    response.shards_num.append(len(view.vchannels))


def _add_load(response: Message, load: LoadedView) -> None:
    response.inMemory_percentages.append(load.percentage)
    response.query_service_available.append(load.queryable)
