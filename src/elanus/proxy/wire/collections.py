"""The RPCs of collections and their aliases."""

from __future__ import annotations

from elanus.core.errors import CollectionNotFound, CollectionNotLoaded, MissingParameter
from elanus.core.moments import DEFAULT_TIMEZONE, TIMEZONE, check_timezone
from elanus.core.names import check_alias, check_collection_name
from elanus.core.requests import checked_shards
from elanus.core.timestamps import physical_ms
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.guard import Visibility
from elanus.proxy.access.permission import NO_PRIVILEGE
from elanus.proxy.api.collections import CollectionView, CreateCollection
from elanus.proxy.api.loading import LoadedView
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.wire.requests import consistency_level, database_of, rpc, to_dict
from elanus.proxy.wire.schemas import decode_schema, describe
from elanus.proxy.wire.status import status_of, success
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2


class _CollectionNotDescribed(CollectionNotFound):
    """Clients before 2.3.2 make ``has_collection`` return False on this legacy code and the text "can't find
    collection"."""

    legacy_code = 1

    @classmethod
    def describing(cls, error: CollectionNotFound) -> _CollectionNotDescribed:
        """Return the error with the text of this one RPC."""
        return cls(error.message.replace("collection not found", "can't find collection", 1))


class Collections:
    def __init__(self, verbs: Verbs, visible: Visibility) -> None:
        self._verbs = verbs
        self._visible = visible

    @rpc(
        "collection_name",
        "schema",
        "shards_num",
        "consistency_level",
        "properties",
        "num_partitions",
        privilege="PrivilegeCreateCollection",
    )
    def CreateCollection(
        self, request: milvus_pb2.CreateCollectionRequest, caller: Caller
    ) -> common_pb2.Status:
        properties = to_dict(request.properties)
        check_timezone(properties)
        zone = properties.get(TIMEZONE, DEFAULT_TIMEZONE)
        schema = decode_schema(request.schema, request.collection_name, zone)
        self._verbs.create_collection(
            CreateCollection(
                database=database_of(request, caller),
                schema=schema,
                shards=checked_shards(request.shards_num),
                consistency_level=consistency_level(request.consistency_level),
                properties=properties,
                num_partitions=request.num_partitions,
            )
        )
        return success()

    @rpc("collection_name", privilege="PrivilegeDropCollection")
    def DropCollection(self, request: milvus_pb2.DropCollectionRequest, caller: Caller) -> common_pb2.Status:
        # not checked: an invalid name is simply not found, which is no error
        self._verbs.drop_collection(database_of(request, caller), request.collection_name)
        return success()

    @rpc("collection_name", privilege=NO_PRIVILEGE, on="collection_name")
    def HasCollection(
        self, request: milvus_pb2.HasCollectionRequest, caller: Caller
    ) -> milvus_pb2.BoolResponse:
        name = check_collection_name(request.collection_name)
        return milvus_pb2.BoolResponse(value=self._verbs.has_collection(database_of(request, caller), name))

    @rpc("collection_name", "collectionID", privilege="PrivilegeDescribeCollection")
    def DescribeCollection(
        self, request: milvus_pb2.DescribeCollectionRequest, caller: Caller
    ) -> milvus_pb2.DescribeCollectionResponse:
        database, name = database_of(request, caller), request.collection_name
        if name or not request.collectionID:
            check_collection_name(name)
        try:
            view = self._verbs.describe_collection(database, name, request.collectionID)
        except CollectionNotFound as error:
            raise _CollectionNotDescribed.describing(error) from error
        return describe(view, name)

    @rpc("type", "collection_names", privilege=NO_PRIVILEGE, on="collection_names")
    def ShowCollections(
        self, request: milvus_pb2.ShowCollectionsRequest, caller: Caller
    ) -> milvus_pb2.ShowCollectionsResponse:
        database = database_of(request, caller)
        if request.type == milvus_pb2.InMemory:
            return self._show_loaded(caller, database, tuple(request.collection_names))
        response = milvus_pb2.ShowCollectionsResponse()
        views = {view.name: view for view in self._verbs.list_collections(database)}
        for name in self._visible.collections(caller, database, views):
            _add_collection(response, views[name])
        return response

    def _show_loaded(
        self, caller: Caller, database: str, names: tuple[str, ...]
    ) -> milvus_pb2.ShowCollectionsResponse:
        """Return the loaded collections: all, or the named ones, each once, which must be loaded.

        Collections that the caller does not see are left out.
        """
        loaded = self._verbs.loaded_collections(database)
        response = milvus_pb2.ShowCollectionsResponse()
        for name in dict.fromkeys(names) or loaded:
            view = self._verbs.describe_collection(database, name)
            if not self._visible.collections(caller, database, (view.name,)):
                continue
            if view.name not in loaded:
                raise CollectionNotLoaded(f"collection not loaded[collection={name}]")
            _add_collection(response, view)
            _add_load(response, loaded[view.name])
        return response

    @rpc("collection_name", privilege="PrivilegeGetStatistics", on="collection_name")
    def GetCollectionStatistics(
        self, request: milvus_pb2.GetCollectionStatisticsRequest, caller: Caller
    ) -> milvus_pb2.GetCollectionStatisticsResponse:
        name = check_collection_name(request.collection_name)
        rows = self._verbs.collection_rows(database_of(request, caller), name)
        response = milvus_pb2.GetCollectionStatisticsResponse()
        response.stats.add(key="row_count", value=str(rows))
        return response

    @rpc("oldName", "newName", "newDBName", privilege="PrivilegeRenameCollection", arrives_in="newDBName")
    def RenameCollection(
        self, request: milvus_pb2.RenameCollectionRequest, caller: Caller
    ) -> common_pb2.Status:
        database = database_of(request, caller)
        self._verbs.rename_collection(
            database,
            check_collection_name(request.oldName),
            check_collection_name(request.newName),
            request.newDBName or database,
        )
        return success()

    @rpc("collection_name", "properties", "delete_keys", privilege="PrivilegeCreateCollection")
    def AlterCollection(
        self, request: milvus_pb2.AlterCollectionRequest, caller: Caller
    ) -> common_pb2.Status:
        self._verbs.alter_collection(
            database_of(request, caller),
            check_collection_name(request.collection_name),
            to_dict(request.properties),
            tuple(request.delete_keys),
        )
        return success()

    @rpc("collection_name", "collectionID", privilege="PrivilegeDescribeCollection")
    def BatchDescribeCollection(
        self, request: milvus_pb2.BatchDescribeCollectionRequest, caller: Caller
    ) -> milvus_pb2.BatchDescribeCollectionResponse:
        """Describe several collections, by name or by id. Each answer has a status of its own."""
        database = database_of(request, caller)
        response = milvus_pb2.BatchDescribeCollectionResponse(status=success())
        wanted = [(name, 0) for name in request.collection_name] or [("", i) for i in request.collectionID]
        if not wanted:
            raise MissingParameter("collection names cannot be empty: name the collections")
        for name, collection_id in wanted:
            try:
                view = self._verbs.describe_collection(database, name, collection_id)
                response.responses.append(describe(view, name))
                response.responses[-1].status.CopyFrom(success())
            except CollectionNotFound as error:
                failed = response.responses.add(status=status_of(error), collection_name=name)
                failed.schema.SetInParent()  # clients read its fields whatever the status says
        return response

    @rpc("collection_name", "alias", privilege="PrivilegeCreateAlias")
    def CreateAlias(self, request: milvus_pb2.CreateAliasRequest, caller: Caller) -> common_pb2.Status:
        collection, alias = check_collection_name(request.collection_name), check_alias(request.alias)
        self._verbs.create_alias(database_of(request, caller), collection, alias)
        return success()

    @rpc("alias", privilege="PrivilegeDropAlias")
    def DropAlias(self, request: milvus_pb2.DropAliasRequest, caller: Caller) -> common_pb2.Status:
        self._verbs.drop_alias(database_of(request, caller), request.alias)  # not checked, as above
        return success()

    @rpc("collection_name", "alias", privilege="PrivilegeCreateAlias")
    def AlterAlias(self, request: milvus_pb2.AlterAliasRequest, caller: Caller) -> common_pb2.Status:
        collection, alias = check_collection_name(request.collection_name), check_alias(request.alias)
        self._verbs.alter_alias(database_of(request, caller), collection, alias)
        return success()

    @rpc("alias", privilege="PrivilegeDescribeAlias")
    def DescribeAlias(
        self, request: milvus_pb2.DescribeAliasRequest, caller: Caller
    ) -> milvus_pb2.DescribeAliasResponse:
        database = database_of(request, caller)
        collection = self._verbs.describe_alias(database, check_alias(request.alias))
        return milvus_pb2.DescribeAliasResponse(db_name=database, alias=request.alias, collection=collection)

    @rpc("collection_name", privilege="PrivilegeListAliases")
    def ListAliases(
        self, request: milvus_pb2.ListAliasesRequest, caller: Caller
    ) -> milvus_pb2.ListAliasesResponse:
        database = database_of(request, caller)
        name = check_collection_name(request.collection_name) if request.collection_name else ""
        views = (
            [self._verbs.describe_collection(database, name)]
            if name
            else self._verbs.list_collections(database)
        )
        seen = set(self._visible.collections(caller, database, [view.name for view in views]))
        return milvus_pb2.ListAliasesResponse(
            db_name=database,
            collection_name=name,
            aliases=[alias for view in views if view.name in seen for alias in view.aliases],
        )


def _add_collection(response: milvus_pb2.ShowCollectionsResponse, view: CollectionView) -> None:
    response.collection_names.append(view.name)
    response.collection_ids.append(view.collection_id)
    response.created_timestamps.append(view.created)
    response.created_utc_timestamps.append(physical_ms(view.created))
    response.shards_num.append(len(view.vchannels))


def _add_load(response: milvus_pb2.ShowCollectionsResponse, load: LoadedView) -> None:
    response.inMemory_percentages.append(load.percentage)
    response.query_service_available.append(load.queryable)
