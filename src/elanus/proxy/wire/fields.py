"""A declared field: ``FieldSchema`` messages to `elanus.core.schema.FieldSchema` and back.

`elanus.core.schema_rules` defines which fields are valid. This module refuses what only a message can
express: unknown fields and types, roles that this release lacks, a default of another type.
"""

from __future__ import annotations

from dataclasses import replace

from elanus.core.errors import InvalidParameter
from elanus.core.functions import TEXT_PARAMS
from elanus.core.moments import DEFAULT_TIMEZONE, format_moment, parse_moment
from elanus.core.names import check_field_name
from elanus.core.schema import DataType, FieldSchema, Scalar
from elanus.core.schema_rules import (
    DIM,
    MAX_CAPACITY,
    MAX_LENGTH,
    Declaration,
    check_default,
    check_takes_default,
    declared_field,
)
from elanus.core.structs import member_name
from elanus.core.types import KINDS, Family
from elanus.proxy.wire.codecs import CODECS, ScalarCodec
from elanus.proxy.wire.requests import add_pairs, refuse_unknown_fields, to_dict
from elanus.proxy.wire.stubs import schema_pb2
from elanus.proxy.wire.unsupported import unsupported

_KEPT_PARAMS = frozenset({DIM, MAX_LENGTH, MAX_CAPACITY, "mmap.enabled", "warmup"})
_TEXTS = frozenset({int(DataType.VARCHAR), int(DataType.TEXT)})
_KEPT_OF_TEXTS = _KEPT_PARAMS | TEXT_PARAMS

_UNDERSTOOD = frozenset(
    {
        "fieldID",  # assigned by the root coordinator, whatever a client sends
        "name",
        "description",
        "data_type",
        "element_type",  # some clients set it for every field, not only for arrays
        "is_primary_key",
        "autoID",
        "type_params",
        "default_value",
        "nullable",
        "is_dynamic",
        "is_partition_key",
        "is_clustering_key",
        "is_function_output",
    }
)


def decode_field(
    message: schema_pb2.FieldSchema, collection: str, zone: str = DEFAULT_TIMEZONE, struct: str = ""
) -> FieldSchema:
    """Return the field, without an id. ``zone``: of a default moment without an offset.

    ``struct``: the struct array that it is a field of.

    Raises `InvalidParameter`, `InvalidDimension`, `NotSupported`.
    """
    name = check_field_name(message.name)
    refuse_unknown_fields(message, _UNDERSTOOD, f"the schema of field {name}")
    _refuse_unbuilt_roles(message)
    field = declared_field(
        Declaration(
            member_name(struct, name) if struct else name,
            data_type_of(message),
            message.description,
            bool(message.is_primary_key),
            bool(message.autoID),
            bool(message.nullable),
            _type_params(message),
            _element_type(message),
            bool(message.is_partition_key),
            bool(message.is_clustering_key),
        ),
        collection,
    )
    return replace(
        field,
        default_value=_default_value(message, field, zone),
        is_function_output=bool(message.is_function_output),
    )


def encode_field(field: FieldSchema, zone: str = DEFAULT_TIMEZONE) -> schema_pb2.FieldSchema:
    """Return the field as DescribeCollection shows it. ``zone``: in which it shows a default moment."""
    message = schema_pb2.FieldSchema(
        fieldID=field.field_id,
        name=field.name,
        description=field.description,
        data_type=schema_pb2.DataType.ValueType(field.data_type),
        is_primary_key=field.is_primary,
        autoID=field.auto_id,
        nullable=field.nullable,
        is_dynamic=field.is_dynamic,
        is_partition_key=field.is_partition_key,
        is_clustering_key=field.is_clustering_key,
        element_type=schema_pb2.DataType.ValueType(field.element_type),
        is_function_output=field.is_function_output,
    )
    if field.dim:
        message.type_params.add(key=DIM, value=str(field.dim))
    if field.max_length:
        message.type_params.add(key=MAX_LENGTH, value=str(field.max_length))
    if field.max_capacity:
        message.type_params.add(key=MAX_CAPACITY, value=str(field.max_capacity))
    add_pairs(message.type_params, field.params)
    member = _default_member(field.data_type)
    if field.default_value is not None and member is not None:
        default = field.default_value
        if field.kind.family is Family.TIME:
            default = format_moment(int(default), zone)
        setattr(message.default_value, member, default)
    return message


def _refuse_unbuilt_roles(message: schema_pb2.FieldSchema) -> None:
    if message.is_dynamic:
        raise InvalidParameter(
            f"cannot explicitly set a field as a dynamic field, field name = {message.name}; "
            "set enable_dynamic_field on the schema"
        )


def data_type_of(message: schema_pb2.FieldSchema) -> DataType:
    """Raises `InvalidParameter`, and `NotSupported` for types without support."""
    try:
        data_type = DataType(message.data_type)
    except ValueError:
        raise InvalidParameter(
            f"data type {message.data_type} of field {message.name} is not valid"
        ) from None
    if data_type is DataType.NONE:
        raise InvalidParameter(f"data type None is not valid: field {message.name}")
    if data_type is DataType.STRING:
        raise InvalidParameter(
            f"string data type not supported yet, please use VarChar type instead: field {message.name}"
        )
    if data_type not in KINDS:
        raise unsupported(f"data type {data_type.name} (field {message.name})")
    return data_type


def _element_type(message: schema_pb2.FieldSchema) -> DataType:
    try:
        return DataType(message.element_type)
    except ValueError:
        raise InvalidParameter(
            f"element type {message.element_type} of field {message.name} is not supported"
        ) from None


def _type_params(message: schema_pb2.FieldSchema) -> dict[str, str]:
    params = to_dict(message.type_params)
    kept = _KEPT_OF_TEXTS if message.data_type in _TEXTS else _KEPT_PARAMS
    for key in params.keys() - kept:
        raise unsupported(f"type parameter {key} (field {message.name})", "leave it out")
    return params


_DEFAULT_TYPES = {
    "bool_data": "DataType_Bool",
    "int_data": "DataType_Int",
    "long_data": "DataType_Int64",
    "float_data": "DataType_Float",
    "double_data": "DataType_Double",
    "string_data": "DataType_VarChar",
}
"""The reference's names of the types that the members of ``ValueField`` hold."""


def _default_value(message: schema_pb2.FieldSchema, field: FieldSchema, zone: str) -> Scalar | None:
    member = message.default_value.WhichOneof("data")
    if member is None:
        return None
    check_takes_default(field)
    if member != _default_member(field.data_type):
        raise InvalidParameter(
            f"type ({schema_pb2.DataType.Name(message.data_type)}) of field ({field.name}) "
            f"is not equal to the type({_DEFAULT_TYPES.get(member, member)}) of default_value"
        )
    value: Scalar = getattr(message.default_value, member)
    if field.kind.family is Family.TIME:
        value = parse_moment(str(value), zone)
    check_default(field, value)
    return value


def _default_member(data_type: DataType) -> str | None:
    """Return the member of ``ValueField`` that carries a default of that type; None if it has no defaults."""
    codec = CODECS[data_type]
    return codec.default_member if isinstance(codec, ScalarCodec) else None
