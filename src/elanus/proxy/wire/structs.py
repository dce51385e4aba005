"""Struct arrays on the wire: a message with one column for each field of the struct."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.names import check_field_name
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.schema_rules import check_field_count
from elanus.core.structs import StructSchema, member_name, struct_and_name
from elanus.proxy.wire.fields import decode_field, encode_field
from elanus.proxy.wire.requests import add_pairs, enum_name, refuse_unknown_fields, to_dict
from elanus.proxy.wire.stubs import schema_pb2

_UNDERSTOOD = frozenset({"fieldID", "name", "description", "fields", "type_params", "nullable"})
AddColumn = Callable[[schema_pb2.FieldData, str, FieldSchema, pa.Array], None]


def decode_struct(
    message: schema_pb2.StructArrayFieldSchema, collection: str
) -> tuple[StructSchema, tuple[FieldSchema, ...]]:
    """Return a struct array and the arrays of its fields, without ids.

    Raises `InvalidParameter`, `NotSupported`, and what `decode_field` raises.
    """
    name = check_field_name(message.name)
    refuse_unknown_fields(message, _UNDERSTOOD, f"the schema of struct array field {name}")
    if not message.fields:
        raise InvalidParameter(f"struct array field {name} has no sub-fields: give it at least one")
    check_field_count(len(message.fields))
    struct = StructSchema(
        FieldID(0), name, message.description, bool(message.nullable), to_dict(message.type_params)
    )
    return struct, tuple(_member(struct, field, collection) for field in message.fields)


def _member(struct: StructSchema, message: schema_pb2.FieldSchema, collection: str) -> FieldSchema:
    if message.data_type not in (schema_pb2.Array, schema_pb2.ArrayOfVector):
        raise InvalidParameter(
            f"Fields in StructArrayField can only be array or array of struct, but field {message.name} is "
            f"{enum_name(schema_pb2.DataType, message.data_type)}"
        )
    return replace(decode_field(message, collection, struct=struct.name), nullable=struct.nullable)


def encode_structs(schema: CollectionSchema) -> Iterator[schema_pb2.StructArrayFieldSchema]:
    """Yield the struct arrays as DescribeCollection shows them."""
    for struct in schema.structs:
        message = schema_pb2.StructArrayFieldSchema(
            fieldID=struct.field_id,
            name=struct.name,
            description=struct.description,
            nullable=struct.nullable,
        )
        add_pairs(message.type_params, struct.params)
        for field in schema.members(struct.name):
            message.fields.append(encode_field(replace(field, name=_own_name(field.name))))
        yield message


def flattened(columns: Iterable[schema_pb2.FieldData]) -> Iterator[tuple[str, schema_pb2.FieldData]]:
    """Yield the columns of a request with their names, struct arrays as the arrays of their fields."""
    for column in columns:
        if column.WhichOneof("field") != "struct_arrays":
            yield column.field_name, column
            continue
        for member in column.struct_arrays.fields:
            yield member_name(column.field_name, member.field_name), member


def add_structs(
    messages: Callable[[], schema_pb2.FieldData],
    columns: Mapping[str, pa.Array],
    schema: CollectionSchema,
    add: AddColumn,
) -> Sequence[str]:
    """Add a message for each struct array among the columns; return the names of the columns that are left.

    ``messages`` returns a new one; ``add`` fills it with a column.
    """
    put_together: set[str] = set()
    for struct in schema.structs:
        members = [field for field in schema.members(struct.name) if field.name in columns]
        if not members:
            continue
        put_together.update(field.name for field in members)
        message = messages()
        message.type = schema_pb2.ArrayOfStruct
        message.field_name, message.field_id = struct.name, struct.field_id
        message.struct_arrays.SetInParent()
        for field in members:
            add(message.struct_arrays.fields.add(), _own_name(field.name), field, columns[field.name])
    # not by their form: a value inside JSON that hits are grouped by is named like a member, as doc["a"]
    return [name for name in columns if name not in put_together]


def _own_name(member: str) -> str:
    found = struct_and_name(member)
    assert found is not None, f"{member} is a field of no struct array"
    return found[1]
