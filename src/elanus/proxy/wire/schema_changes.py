"""The RPCs that change a collection: its fields, and the removal of all rows."""

from __future__ import annotations

from elanus.core.errors import InvalidParameter
from elanus.core.names import check_collection_name
from elanus.proxy.calls import Caller
from elanus.proxy.port import Front
from elanus.proxy.wire.requests import database_of, rpc, to_dict
from elanus.proxy.wire.schemas import added_field, decode_added_field
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2
from elanus.proxy.wire.unsupported import unsupported


class SchemaChanges:
    def __init__(self, front: Front) -> None:
        self._front = front

    @rpc("collection_name", "field_name", "properties", "delete_keys", privilege="PrivilegeCreateCollection")
    def AlterCollectionField(
        self, request: milvus_pb2.AlterCollectionFieldRequest, caller: Caller
    ) -> common_pb2.Status:
        self._front.alter_field(
            database_of(request, caller),
            check_collection_name(request.collection_name),
            request.field_name,
            to_dict(request.properties),
            tuple(request.delete_keys),
        )
        return success()

    @rpc("collection_name", "schema", privilege="PrivilegeAddCollectionField", on="collection_name")
    def AddCollectionField(
        self, request: milvus_pb2.AddCollectionFieldRequest, caller: Caller
    ) -> common_pb2.Status:
        name = check_collection_name(request.collection_name)
        self._front.add_field(database_of(request, caller), name, decode_added_field(request.schema, name))
        return success()

    @rpc("collection_name", privilege="PrivilegeDropCollection")
    def TruncateCollection(
        self, request: milvus_pb2.TruncateCollectionRequest, caller: Caller
    ) -> milvus_pb2.TruncateCollectionResponse:
        name = check_collection_name(request.collection_name)
        self._front.truncate_collection(database_of(request, caller), name)
        return milvus_pb2.TruncateCollectionResponse(status=success())

    @rpc("collection_name", "action", privilege="PrivilegeAlterCollectionSchema", on="collection_name")
    def AlterCollectionSchema(
        self, request: milvus_pb2.AlterCollectionSchemaRequest, caller: Caller
    ) -> milvus_pb2.AlterCollectionSchemaResponse:
        """Add a field, as clients since 3.0 ask for it."""
        name = check_collection_name(request.collection_name)
        added = request.action.add_request
        if request.action.HasField("drop_request"):
            raise unsupported("dropping a field or function", "leave it out of inserts and output fields")
        if added.func_schema:
            raise unsupported("adding a function", "create a collection with it and copy the rows")
        if len(added.field_infos) != 1:
            raise InvalidParameter(f"{len(added.field_infos)} fields to add to collection {name}: add one")
        (info,) = added.field_infos
        if info.index_name or info.extra_params:
            raise unsupported("an index of a field that is added", "use CreateIndex afterwards")
        self._front.add_field(database_of(request, caller), name, added_field(info.field_schema, name))
        return milvus_pb2.AlterCollectionSchemaResponse(alter_status=success())
