"""A collection's schema: from JSON to the message of CreateCollection, and back from DescribeCollection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from elanus.core.errors import InvalidParameter
from elanus.core.types import DataType
from elanus.proxy.rest.bodies import CreateCollection, FieldBody, SchemaBody, StructBody
from elanus.proxy.rest.errors import MissingField
from elanus.proxy.rest.searches import function_message
from elanus.proxy.wire.by_name import parameter_text
from elanus.proxy.wire.codecs import CODECS, ScalarCodec
from elanus.proxy.wire.stubs import common_pb2, schema_pb2

MAX_CAPACITY = "max_capacity"
PRIMARY_FIELD, VECTOR_FIELD, METRIC_TYPE = "id", "vector", "COSINE"
"""The defaults of a quick setup."""
_BELONGS = {
    "dimension": "elementTypeParams.dim of the vector field",
    "idType": "dataType of the primary field",
    "autoID": "schema.autoId",
    "metricType": "indexParams",
    "primaryFieldName": "fieldName of the primary field",
    "vectorFieldName": "fieldName of the vector field",
    "params.max_length": "elementTypeParams.max_length of a field",
    "params.enableDynamicField": "schema.enableDynamicField",
    "enableDynamicField": "schema.enableDynamicField",
}
"""Where a schema says what these members say of a quick setup."""
_REFUSED_LATER = ("None", "String")
"""Types of no field: the wire code says which one to take instead."""


def quick_schema(body: CreateCollection) -> Any:
    """Return the schema of a quick setup: a key, a vector, dynamic fields. Raises `InvalidParameter`."""
    if not body.dimension:
        raise MissingField(type(body).__name__, "dimension")
    if body.index_params:
        raise InvalidParameter("indexParams need a schema with fields: with dimension, send metricType")
    if body.schema is not None and body.schema != SchemaBody():
        raise InvalidParameter("schema has no fields: name them, or send dimension without a schema")
    types = {"int64": "Int64", "varchar": "VarChar", "": "Int64"}
    id_type = types.get(body.id_type.lower())
    if id_type is None:
        raise InvalidParameter(
            f"idType can only be [Int64, VarChar], default: Int64, but got [{body.id_type[:100]}]"
        )
    key_params = {}
    if id_type == "VarChar":
        key_params["max_length"] = body.params.get("max_length", body.params.get("maxLength", 0))
        if not key_params["max_length"]:
            raise MissingField(type(body).__name__, "params.max_length")
    return schema_pb2.CollectionSchema(
        name=body.collection_name,
        description=body.description,
        enable_dynamic_field=_quick_dynamic(body),
        fields=[
            field_message(
                FieldBody(
                    field_name=body.primary_field_name or PRIMARY_FIELD,
                    data_type=id_type,
                    is_primary=True,
                    auto_id=body.auto_id or body.auto_id_too,
                    element_type_params=key_params,
                )
            ),
            field_message(
                FieldBody(
                    field_name=body.vector_field_name or VECTOR_FIELD,
                    data_type="FloatVector",
                    element_type_params={"dim": body.dimension},
                )
            ),
        ],
    )


def _quick_dynamic(body: CreateCollection) -> bool:
    """Whether a quick setup has dynamic fields: it does, unless the body says otherwise in either place."""
    in_params = _flag(body.params.get("enableDynamicField", True), "enableDynamicField")
    return in_params and body.enable_dynamic_field is not False


def custom_schema(body: CreateCollection, schema: SchemaBody) -> Any:
    """Return the schema that the body spells out. Raises `InvalidParameter`, `NotSupported`."""
    auto_id = schema.auto_id or schema.auto_id_too
    is_dynamic = schema.enable_dynamic_field or schema.enable_dynamic_field_too
    _check_no_quick_setup(body, auto_id=auto_id, is_dynamic=is_dynamic)
    fields = [field_message(field) for field in schema.fields]
    for field in fields:
        if field.is_primary_key and auto_id:
            field.autoID = True
    return schema_pb2.CollectionSchema(
        name=body.collection_name,
        description=body.description,
        autoID=auto_id,
        enable_dynamic_field=is_dynamic,
        fields=fields,
        struct_array_fields=[struct_message(struct) for struct in schema.struct_fields],
        functions=[function_message(function) for function in schema.functions],
    )


def _check_no_quick_setup(body: CreateCollection, *, auto_id: bool, is_dynamic: bool) -> None:
    """Refuse what would be lost next to a schema. Raises `InvalidParameter`.

    Defaults of a quick setup say nothing: the HTTP client of Node.js sends them with every schema.
    """
    params = body.params
    metric_type = body.metric_type or body.metric_type_in_the_guide
    sent = {
        "dimension": body.dimension,
        "idType": body.id_type.lower() not in ("", "int64"),
        "autoID": (body.auto_id or body.auto_id_too) and not auto_id,
        "metricType": metric_type not in ("", METRIC_TYPE),
        "primaryFieldName": body.primary_field_name not in ("", PRIMARY_FIELD),
        "vectorFieldName": body.vector_field_name not in ("", VECTOR_FIELD),
        "params.max_length": "max_length" in params or "maxLength" in params,
        "params.enableDynamicField": "enableDynamicField" in params
        and _flag(params["enableDynamicField"], "enableDynamicField") is not is_dynamic,
        "enableDynamicField": body.enable_dynamic_field not in (None, is_dynamic),
    }
    for name, is_sent in sent.items():
        if is_sent:
            raise InvalidParameter(f"{name} has no effect with a schema: send it as {_BELONGS[name]}")


def struct_message(body: StructBody) -> Any:
    """Return a ``StructArrayFieldSchema`` message. Raises `InvalidParameter`."""
    capacity = {name: v for name, v in body.element_type_params.items() if name == MAX_CAPACITY}
    members = []
    for member in body.fields:
        params = {**capacity, **member.element_type_params}
        members.append(field_message(structs.replace(member, element_type_params=params)))
    return schema_pb2.StructArrayFieldSchema(
        name=body.field_name,
        description=body.description,
        nullable=body.nullable,
        fields=members,
    )


def field_message(body: FieldBody) -> Any:
    """Return a ``FieldSchema`` message. Raises `InvalidParameter`."""
    data_type = _data_type(body.data_type, body.field_name)
    params = dict(body.element_type_params)
    if body.multi_analyzer_param is not None:
        params["multi_analyzer_params"] = body.multi_analyzer_param
    message = schema_pb2.FieldSchema(
        name=body.field_name,
        description=body.description,
        data_type=data_type,
        element_type=_data_type(body.element_data_type or "None", body.field_name),
        is_primary_key=body.is_primary,
        autoID=body.auto_id or body.auto_id_too or body.auto_id_in_the_guide,
        is_partition_key=body.is_partition_key,
        is_clustering_key=body.is_clustering_key,
        nullable=body.nullable,
        type_params=[
            common_pb2.KeyValuePair(key=key, value=parameter_text(value)) for key, value in params.items()
        ],
    )
    if body.default_value is not None:
        _set_default(message, data_type, body.default_value)
    return message


def _data_type(name: str, field: str) -> Any:
    ours = set(map(int, DataType))
    types = {known: number for known, number in schema_pb2.DataType.items() if number in ours}
    if name not in types:
        offered = ", ".join(known for known in types if known not in _REFUSED_LATER)
        raise InvalidParameter(
            f"data type {name[:100]} of field {field} is invalid (case sensitive): send one of {offered}"
        )
    return types[name]


def _set_default(message: Any, data_type: int, value: object) -> None:
    codec = CODECS.get(DataType(data_type))
    member = codec.default_member if isinstance(codec, ScalarCodec) else None
    if member is None:
        raise InvalidParameter(f"field {message.name} of its type cannot have a default value")
    try:
        setattr(message.default_value, member, value)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(
            f"the defaultValue [{str(value)[:100]}] of field {message.name} does not fit its type: {error}"
        ) from None


def _flag(value: object, name: str) -> bool:
    """Return a flag among free parameters, where clients may quote it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise InvalidParameter(f"{name} [{str(value)[:100]}] is invalid, should be true or false")


def pairs_shown(pairs: Iterable[Any]) -> list[dict[str, str]]:
    """Return key-value pairs as the reference's JSON shows them."""
    return [{"key": pair.key, "value": pair.value} for pair in pairs]


def schema_shown(schema: Any) -> dict[str, object]:
    """Return the part of a described collection that is its schema."""
    primary = next(field for field in schema.fields if field.is_primary_key)
    return {
        "autoId": primary.autoID,
        "description": schema.description,
        "enableDynamicField": schema.enable_dynamic_field,
        "fields": [_field_shown(field) for field in schema.fields],
        "functions": [_function_shown(function) for function in schema.functions],
        **_structs_shown(schema),
    }


def _structs_shown(schema: Any) -> dict[str, object]:
    if not schema.struct_array_fields:
        return {}
    return {
        "structFields": [
            {
                "description": struct.description,
                "fields": [_field_shown(field) for field in struct.fields],
                "id": struct.fieldID,
                "name": struct.name,
                "nullable": struct.nullable,
            }
            for struct in schema.struct_array_fields
        ]
    }


def _field_shown(field: Any) -> dict[str, object]:
    shown: dict[str, object] = {
        "autoId": field.autoID,
        "clusteringKey": field.is_clustering_key,
        "description": field.description,
        "id": field.fieldID,
        "name": field.name,
        "nullable": field.nullable,
        "partitionKey": field.is_partition_key,
        "primaryKey": field.is_primary_key,
        "type": schema_pb2.DataType.Name(field.data_type),
    }
    if field.type_params:
        shown["params"] = pairs_shown(field.type_params)
    if field.data_type in (schema_pb2.Array, schema_pb2.ArrayOfVector):
        shown["elementType"] = schema_pb2.DataType.Name(field.element_type)
    member = field.default_value.WhichOneof("data")
    if member is not None:
        value = getattr(field.default_value, member)
        shown["defaultValue"] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return shown


def _function_shown(function: Any) -> dict[str, object]:
    return {
        "name": function.name,
        "description": function.description,
        "id": function.id,
        "type": schema_pb2.FunctionType.Name(function.type),
        "inputFieldNames": list(function.input_field_names),
        "outputFieldNames": list(function.output_field_names),
        "params": pairs_shown(function.params),
    }
