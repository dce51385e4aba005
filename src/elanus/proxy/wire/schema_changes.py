"""The RPCs that change a collection: its fields, and the removal of all rows."""

from __future__ import annotations

from elanus.core.errors import InvalidParameter
from elanus.core.function_changes import refuse_lone_drop
from elanus.core.functions import Function
from elanus.core.moments import DEFAULT_TIMEZONE, TIMEZONE
from elanus.core.names import check_collection_name
from elanus.proxy.access.caller import Caller
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.wire.functions import decode_function
from elanus.proxy.wire.requests import database_of, refuse_unknown_fields, rpc, to_dict
from elanus.proxy.wire.schemas import added_field, decode_added_field
from elanus.proxy.wire.status import success
from elanus.proxy.wire.structs import decode_struct
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2, schema_pb2
from elanus.proxy.wire.unsupported import unsupported

_ADDED = frozenset({"field_infos", "func_schema"})


class SchemaChanges:
    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    @rpc("collection_name", "field_name", "properties", "delete_keys", privilege="PrivilegeCreateCollection")
    def AlterCollectionField(
        self, request: milvus_pb2.AlterCollectionFieldRequest, caller: Caller
    ) -> common_pb2.Status:
        self._verbs.alter_field(
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
        database = database_of(request, caller)
        field = decode_added_field(request.schema, name, self._zone(database, name))
        self._verbs.add_field(database, name, field)
        return success()

    @rpc(
        "collection_name",
        "struct_array_field_schema",
        privilege="PrivilegeAddCollectionField",
        on="collection_name",
    )
    def AddCollectionStructField(
        self, request: milvus_pb2.AddCollectionStructFieldRequest, caller: Caller
    ) -> common_pb2.Status:
        name = check_collection_name(request.collection_name)
        struct, members = decode_struct(request.struct_array_field_schema, name)
        self._verbs.add_struct(database_of(request, caller), name, struct, members)
        return success()

    @rpc("collection_name", privilege="PrivilegeDropCollection")
    def TruncateCollection(
        self, request: milvus_pb2.TruncateCollectionRequest, caller: Caller
    ) -> milvus_pb2.TruncateCollectionResponse:
        name = check_collection_name(request.collection_name)
        self._verbs.truncate_collection(database_of(request, caller), name)
        return milvus_pb2.TruncateCollectionResponse(status=success())

    @rpc("collection_name", "action", privilege="PrivilegeAlterCollectionSchema", on="collection_name")
    def AlterCollectionSchema(
        self, request: milvus_pb2.AlterCollectionSchemaRequest, caller: Caller
    ) -> milvus_pb2.AlterCollectionSchemaResponse:
        """Add or drop a field or a function with its field, as clients since 3.0 ask for it."""
        name = check_collection_name(request.collection_name)
        database = database_of(request, caller)
        if request.action.HasField("drop_request"):
            self._drop(database, name, request.action.drop_request)
        else:
            self._add(database, name, request.action.add_request)
        return milvus_pb2.AlterCollectionSchemaResponse(alter_status=success())

    def _add(
        self, database: str, name: str, added: milvus_pb2.AlterCollectionSchemaRequest.AddRequest
    ) -> None:
        refuse_unknown_fields(added, _ADDED, "a field that is added")
        if len(added.field_infos) != 1:
            raise InvalidParameter(f"{len(added.field_infos)} fields to add to collection {name}: add one")
        (info,) = added.field_infos
        if not added.func_schema:
            if info.index_name or info.extra_params:
                raise unsupported("an index of a field that is added", "use CreateIndex afterwards")
            field = added_field(info.field_schema, name, self._zone(database, name))
            self._verbs.add_field(database, name, field)
            return
        if len(added.func_schema) != 1:
            raise InvalidParameter(
                f"{len(added.func_schema)} functions to add to collection {name}: add one with its field"
            )
        self._verbs.add_function(
            database,
            name,
            added_field(info.field_schema, name),
            decode_function(added.func_schema[0]),
            info.index_name,
            to_dict(info.extra_params),
        )

    def _zone(self, database: str, name: str) -> str:
        """The time zone of a default moment without an offset."""
        properties = self._verbs.describe_collection(database, name).properties
        return properties.get(TIMEZONE, DEFAULT_TIMEZONE)

    def _drop(
        self, database: str, name: str, dropped: milvus_pb2.AlterCollectionSchemaRequest.DropRequest
    ) -> None:
        if dropped.WhichOneof("identifier") == "function_name":
            self._verbs.drop_function(
                database, name, dropped.function_name, with_outputs=dropped.drop_function_output_fields
            )
        else:
            self._verbs.drop_field(database, name, dropped.field_name, dropped.field_id)

    @rpc("collection_name", "functionSchema", privilege="PrivilegeCreateCollection")
    def AddCollectionFunction(
        self, request: milvus_pb2.AddCollectionFunctionRequest, caller: Caller
    ) -> common_pb2.Status:
        """Add a function whose values are stored. Others come with their field, by AlterCollectionSchema."""
        function = self._asked(request.functionSchema)
        self._verbs.set_function(database_of(request, caller), request.collection_name, function)
        return success()

    @rpc("collection_name", "function_name", "functionSchema", privilege="PrivilegeCreateCollection")
    def AlterCollectionFunction(
        self, request: milvus_pb2.AlterCollectionFunctionRequest, caller: Caller
    ) -> common_pb2.Status:
        """Alter a function whose values are stored. Others are refused: their values are indexed."""
        function = self._asked(request.functionSchema)
        if not request.function_name:
            raise InvalidParameter("function name is empty")
        database = database_of(request, caller)
        self._verbs.set_function(database, request.collection_name, function, request.function_name)
        return success()

    @rpc("collection_name", "function_name", privilege="PrivilegeCreateCollection")
    def DropCollectionFunction(
        self, request: milvus_pb2.DropCollectionFunctionRequest, caller: Caller
    ) -> common_pb2.Status:
        """Drop a function whose values are stored; clients send them from then on.

        Dropping a function that is not there succeeds, as in the reference. The others are dropped with their
        field.
        """
        database, name = database_of(request, caller), request.collection_name
        view = self._verbs.describe_collection(database, name)
        for function in view.schema.functions:
            if function.name != request.function_name:
                continue
            if not function.is_stored:
                raise refuse_lone_drop(function.kind)
            self._verbs.drop_function(database, name, function.name, with_outputs=False)
        return success()

    def _asked(self, message: schema_pb2.FunctionSchema) -> Function:
        if not message.ByteSize():
            raise InvalidParameter("function schema is empty")
        return decode_function(message)
