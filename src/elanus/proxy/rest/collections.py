"""The endpoints of collections: create, describe, load, properties, flush, compaction and fields."""

from __future__ import annotations

from typing import Any

from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import ElanusError, InvalidParameter
from elanus.proxy.rest import bodies
from elanus.proxy.rest.endpoint import Endpoint, Session, endpoint, rpc_endpoint
from elanus.proxy.rest.errors import MissingField, RestError, reported
from elanus.proxy.rest.indexes import create_index, index_params
from elanus.proxy.rest.schemas import (
    METRIC_TYPE,
    VECTOR_FIELD,
    custom_schema,
    field_message,
    pairs_shown,
    quick_schema,
    schema_shown,
    struct_message,
)
from elanus.proxy.rest.searches import function_message, level_named
from elanus.proxy.wire.by_name import parameter_text
from elanus.proxy.wire.requests import add_pairs
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2

_INDEX_NOT_FOUND = 700
_PROPERTIES = {
    "ttlSeconds": "collection.ttl.seconds",
    "mmapEnabled": "mmap.enabled",
    "partitionKeyIsolation": "partitionkey.isolation",
}
"""Parameters of a new collection that are properties."""
_PARAMS = frozenset({"max_length", "maxLength", "enableDynamicField", "shardsNum", "partitionsNum"})


def create(session: Session, body: bodies.CreateCollection) -> object:
    """Create a collection: a quick setup with `dimension`, or with a `schema`"""
    is_quick = body.schema is None or not body.schema.fields
    if is_quick:
        schema = _made(quick_schema, body)
        metric = body.metric_type or body.metric_type_in_the_guide or METRIC_TYPE
        field = body.vector_field_name or VECTOR_FIELD
        params = {"metric_type": metric, "index_type": "AUTOINDEX"}
        indexes = [bodies.IndexBody(field_name=field, index_name=field, params=params)]
    else:
        schema = _made(custom_schema, body, body.schema)
        indexes = body.index_params
    fields = _made(_creation, body)
    session.rpc("CreateCollection", body, schema=schema.SerializeToString(), **fields)
    if not indexes:
        return {}
    for index in indexes:
        create_index(session, body, index)
    session.rpc("LoadCollection", body)
    return {}


def _made(make: Any, *arguments: Any) -> Any:
    try:
        return make(*arguments)
    except ElanusError as error:
        raise reported(error) from None


def _creation(body: bodies.CreateCollection) -> dict[str, Any]:
    """The request fields of a new collection next to its schema. Raises `InvalidParameter`."""
    params = dict(body.params)
    level = body.consistency_level or params.pop("consistencyLevel", "") or "Bounded"
    properties = dict(body.properties)
    for name in [name for name in params if name in _PROPERTIES or "." in name]:
        properties[_PROPERTIES.get(name, name)] = params.pop(name)
    if unknown := params.keys() - _PARAMS:
        known = ", ".join(sorted({*_PARAMS, *_PROPERTIES, "consistencyLevel"}))
        raise InvalidParameter(f"params has no member {sorted(unknown)[0]}: members are {known}")
    return {
        "consistency_level": int(level_named(str(level))),
        "shards_num": _number(params.get("shardsNum", 0), "shardsNum"),
        "num_partitions": _number(params.get("partitionsNum", 0), "partitionsNum"),
        "properties": properties,
    }


def _number(value: object, name: str) -> int:
    try:
        if isinstance(value, int | str) and not isinstance(value, bool):
            return int(value)
    except ValueError:
        pass
    raise InvalidParameter(f"{name} [{str(value)[:100]}] is invalid, should be a whole number")


def describe(session: Session, body: bodies.OfCollection) -> object:
    """Describe a collection: its schema, indexes, properties and load state"""
    found = session.rpc("DescribeCollection", body)
    load = session.rpc("GetLoadState", body)
    return {
        **schema_shown(found.schema),
        "aliases": list(found.aliases),
        "collectionID": found.collectionID,
        "collectionName": found.collection_name,
        "consistencyLevel": ConsistencyLevel(found.consistency_level).name.capitalize(),
        "indexes": _indexes(session, body),
        "load": common_pb2.LoadState.Name(load.state),
        "partitionsNum": found.num_partitions,
        "properties": pairs_shown(found.properties),
        "shardsNum": found.shards_num,
    }


def _indexes(session: Session, body: bodies.OfCollection) -> list[dict[str, object]]:
    try:
        found = session.rpc("DescribeIndex", body)
    except RestError as error:
        if error.code == _INDEX_NOT_FOUND:
            return []
        raise
    return [
        {
            "fieldName": index.field_name,
            "indexName": index.index_name,
            "metricType": next((pair.value for pair in index.params if pair.key == "metric_type"), ""),
        }
        for index in found.index_descriptions
    ]


def has(session: Session, body: bodies.OfCollection) -> object:
    """Whether a collection exists"""
    return {"has": session.rpc("HasCollection", body).value}


def get_load_state(session: Session, body: bodies.LoadState) -> object:
    """The load state of a collection or of partitions, with its progress in percent"""
    found = session.rpc("GetLoadState", body)
    if found.state == common_pb2.LoadStateNotExist:
        session.rpc("DescribeCollection", body)  # answers with the error of a missing collection
    shown: dict[str, object] = {
        "loadState": common_pb2.LoadState.Name(found.state),
        "message": found.status.reason,
    }
    if found.state == common_pb2.LoadStateLoading:
        shown["loadProgress"] = session.rpc("GetLoadingProgress", body).progress
    elif found.state == common_pb2.LoadStateLoaded:
        shown["loadProgress"] = 100
    return shown


def flush(session: Session, body: bodies.Flush) -> object:
    """Flush collections: returns when their segments are sealed"""
    names = [*body.collection_names, *([body.collection_name] if body.collection_name else ())]
    if not names:
        raise MissingField(type(body).__name__, "collectionName")
    session.rpc("Flush", db_name=body.db_name, collection_names=names)
    return {}


def row_count(found: Any) -> object:
    """The number of rows among the statistics of a collection or partition."""
    return {"rowCount": int(next((pair.value for pair in found.stats if pair.key == "row_count"), "0"))}


def compaction_state(found: Any) -> object:
    return {
        "state": common_pb2.CompactionState.Name(found.state),
        "executingPlanNo": found.executingPlanNo,
        "timeoutPlanNo": found.timeoutPlanNo,
        "completedPlanNo": found.completedPlanNo,
        "failedPlanNo": found.failedPlanNo,
    }


def add_field(session: Session, body: bodies.AddField) -> object:
    """Add a field to a collection"""
    field = _made(field_message, body.schema)
    session.rpc("AddCollectionField", body, schema=field.SerializeToString())
    return {}


def add_struct_field(session: Session, body: bodies.AddStructField) -> object:
    """Add a field of structs to a collection"""
    message = _made(struct_message, body.schema)
    session.rpc("AddCollectionStructField", body, struct_array_field_schema=message)
    return {}


def _with_function(name: str) -> Any:
    def handle(session: Session, body: bodies.AddFunction | bodies.AlterFunction) -> object:
        session.rpc(name, body, functionSchema=_made(function_message, body.function))
        return {}

    return handle


def _drop_field(body: bodies.FieldName) -> dict[str, Any]:
    action = milvus_pb2.AlterCollectionSchemaRequest.Action()
    action.drop_request.field_name = body.field_name
    return {"action": action}


def _drop_function_field(body: bodies.DropFunction) -> dict[str, Any]:
    action = milvus_pb2.AlterCollectionSchemaRequest.Action()
    action.drop_request.function_name = body.function_name
    action.drop_request.drop_function_output_fields = True
    return {"action": action}


def add_function_field(session: Session, body: bodies.AddFunctionField) -> object:
    """Add a field together with the function that computes it and an index"""
    kind = milvus_pb2.AlterCollectionSchemaRequest
    action = kind.Action()
    info = kind.FieldInfo(field_schema=_made(field_message, body.field))
    for index in body.index_params[:1]:
        info.index_name = index.index_name
        add_pairs(info.extra_params, {k: parameter_text(v) for k, v in index_params(index).items()})
    action.add_request.field_infos.append(info)
    action.add_request.func_schema.append(_made(function_message, body.function))
    session.rpc("AlterCollectionSchema", body, action=action)
    return {}


def _function_endpoint(path: str, body: type[bodies.Body], rpc: str, summary: str) -> Endpoint:
    return Endpoint(path, body, _with_function(rpc), (rpc,), summary)


_LOAD = "Load a collection; returns before the load is complete"
ENDPOINTS = (
    rpc_endpoint(
        "collections/list",
        bodies.InDatabase,
        "ShowCollections",
        "List the names of the collections",
        lambda found: list(found.collection_names),
    ),
    endpoint("collections/has", bodies.OfCollection, has, "HasCollection"),
    endpoint(
        "collections/describe",
        bodies.OfCollection,
        describe,
        "DescribeCollection",
        "GetLoadState",
        "DescribeIndex",
    ),
    rpc_endpoint(
        "collections/get_stats",
        bodies.OfCollection,
        "GetCollectionStatistics",
        "The number of rows of a collection, deleted ones included until they are compacted",
        row_count,
    ),
    endpoint(
        "collections/get_load_state", bodies.LoadState, get_load_state, "GetLoadState", "GetLoadingProgress"
    ),
    endpoint(
        "collections/create",
        bodies.CreateCollection,
        create,
        "CreateCollection",
        "CreateIndex",
        "LoadCollection",
    ),
    rpc_endpoint("collections/drop", bodies.OfCollection, "DropCollection", "Drop a collection"),
    rpc_endpoint(
        "collections/truncate", bodies.OfCollection, "TruncateCollection", "Delete all rows of a collection"
    ),
    rpc_endpoint(
        "collections/rename",
        bodies.Rename,
        "RenameCollection",
        "Rename a collection, or move it to another database",
        fields=lambda body: {
            "oldName": body.collection_name,
            "newName": body.new_collection_name,
            "newDBName": body.new_db_name,
        },
    ),
    rpc_endpoint("collections/load", bodies.Load, "LoadCollection", _LOAD),
    rpc_endpoint(
        "collections/refresh_load",
        bodies.OfCollection,
        "LoadCollection",
        "Load what has been added to a loaded collection",
        fields=lambda _: {"refresh": True},
    ),
    rpc_endpoint("collections/release", bodies.OfCollection, "ReleaseCollection", "Release a collection"),
    rpc_endpoint(
        "collections/alter_properties",
        bodies.CollectionProperties,
        "AlterCollection",
        "Set properties of a collection",
    ),
    rpc_endpoint(
        "collections/drop_properties",
        bodies.CollectionKeys,
        "AlterCollection",
        "Remove properties of a collection",
    ),
    rpc_endpoint(
        "collections/compact",
        bodies.Compact,
        "ManualCompaction",
        "Start a compaction",
        lambda found: {"compactionID": found.compactionID},
        lambda body: {"majorCompaction": body.is_clustering, "l0Compaction": body.is_l0},
    ),
    rpc_endpoint(
        "collections/get_compaction_state",
        bodies.CompactionState,
        "GetCompactionState",
        "The state of a compaction",
        compaction_state,
        lambda body: {"compactionID": body.job_id},
    ),
    endpoint("collections/flush", bodies.Flush, flush, "Flush"),
    rpc_endpoint(
        "collections/fields/alter_properties",
        bodies.FieldProperties,
        "AlterCollectionField",
        "Set parameters of a field",
        fields=lambda body: {"properties": body.field_params},
    ),
    endpoint("collections/fields/add", bodies.AddField, add_field, "AddCollectionField"),
    rpc_endpoint(
        "collections/fields/drop",
        bodies.FieldName,
        "AlterCollectionSchema",
        "Drop a field of a collection",
        fields=_drop_field,
    ),
    endpoint(
        "collections/struct_fields/add", bodies.AddStructField, add_struct_field, "AddCollectionStructField"
    ),
    _function_endpoint(
        "collections/add_function", bodies.AddFunction, "AddCollectionFunction", "Add a function to a schema"
    ),
    _function_endpoint(
        "collections/alter_function",
        bodies.AlterFunction,
        "AlterCollectionFunction",
        "Change a function of a schema",
    ),
    rpc_endpoint(
        "collections/drop_function",
        bodies.DropFunction,
        "DropCollectionFunction",
        "Drop a function of a schema",
    ),
    endpoint(
        "collections/add_function_field",
        bodies.AddFunctionField,
        add_function_field,
        "AlterCollectionSchema",
    ),
    rpc_endpoint(
        "collections/drop_function_field",
        bodies.DropFunction,
        "AlterCollectionSchema",
        "Drop a function together with the field that it computes",
        fields=_drop_function_field,
    ),
)
