"""Dropping fields: which may be dropped, and the schema without them.

The schema remembers a dropped field (`elanus.core.schema.DroppedField`): older rows still have its
column, which readers leave out (`elanus.core.added_fields`), and its id is never used again. Compaction
writes rows without it. The texts of errors are the reference's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from elanus.core.errors import InvalidParameter
from elanus.core.functions import MULTI_ANALYZER_PARAMS
from elanus.core.ids import FieldID
from elanus.core.schema import SYSTEM_FIELDS, CollectionSchema, DroppedField
from elanus.core.structs import struct_and_name

_NO_FIELD = FieldID(0)


def with_dropped_field(
    schema: CollectionSchema,
    name: str,
    field_id: FieldID = _NO_FIELD,
    properties: Mapping[str, str] | None = None,
) -> CollectionSchema:
    """Return the schema without a field, or without a struct array and all its fields.

    ``field_id``: names the field if ``name`` is empty. ``properties``: the collection's. Raises
    `InvalidParameter`.
    """
    name = name or _name_of(schema, field_id)
    if name in SYSTEM_FIELDS:
        raise InvalidParameter(f"cannot drop system field: {name}")
    if any(struct.name == name for struct in schema.structs):
        return _without_struct(schema, name)
    field = schema.by_name.get(name)
    if field is None:
        raise InvalidParameter(f"field not found: {name}")
    if field.is_dynamic:
        raise InvalidParameter(
            f"cannot drop dynamic field: {name}, use AlterCollection to disable dynamic schema instead"
        )
    if (parts := struct_and_name(name)) is not None:
        raise InvalidParameter(f"cannot drop sub-field of struct array field: {parts[0]}.{parts[1]}")
    for role, has_it in (
        ("primary key", field.is_primary),
        ("partition key", field.is_partition_key),
        ("clustering key", field.is_clustering_key),
    ):
        if has_it:
            raise InvalidParameter(f"cannot drop {role} field: {name}")
    for function in schema.functions:
        if name in function.inputs:
            raise InvalidParameter(
                f"field is referenced by function {function.name} as input, drop function first: field {name}"
            )
        if name in function.outputs:
            raise InvalidParameter(
                f"field is referenced by function {function.name} as output, drop function first: "
                f"field {name}"
            )
    if field.kind.vector is not None and len(schema.vector_fields) == 1:
        raise InvalidParameter(f"cannot drop the last vector field: {name}")
    _check_not_in_use(name, properties or {})
    _check_not_an_analyzer_choice(schema, name)
    return without_fields(schema, [name])


def without_fields(schema: CollectionSchema, names: Iterable[str]) -> CollectionSchema:
    """Return the schema without these fields, which it remembers."""
    gone = frozenset(names)
    kept = tuple(f for f in schema.fields if f.name not in gone)
    dropped = tuple(DroppedField(f.name, f.field_id) for f in schema.fields if f.name in gone)
    return replace(schema, fields=kept, dropped=(*schema.dropped, *dropped))


def _name_of(schema: CollectionSchema, field_id: FieldID) -> str:
    if not field_id:
        raise InvalidParameter("field name is empty")
    for name, known in (
        *((f.name, f.field_id) for f in schema.fields),
        *((s.name, s.field_id) for s in schema.structs),
    ):
        if known == field_id:
            return name
    raise InvalidParameter(f"field not found: {field_id}")


def _without_struct(schema: CollectionSchema, name: str) -> CollectionSchema:
    gone = {field.name for field in schema.members(name)}
    if all(field.name in gone for field in schema.searched_fields):
        raise InvalidParameter(
            f"cannot drop struct array field {name}: it would leave no vector field in the collection"
        )
    left = without_fields(schema, gone)
    (struct,) = (struct for struct in schema.structs if struct.name == name)
    remembered = DroppedField(name, struct.field_id)
    structs = tuple(struct for struct in schema.structs if struct.name != name)
    return replace(left, structs=structs, dropped=(*left.dropped, remembered))


def _check_not_in_use(name: str, properties: Mapping[str, str]) -> None:
    if properties.get("ttl_field") == name:
        raise InvalidParameter(
            f"cannot drop field {name} because it is referenced by collection property ttl_field, drop the "
            "property first"
        )


def _check_not_an_analyzer_choice(schema: CollectionSchema, name: str) -> None:
    for field in schema.fields:
        if json.loads(field.params.get(MULTI_ANALYZER_PARAMS, "{}")).get("by_field") == name:
            raise InvalidParameter(
                f"cannot drop field {name}: the multi_analyzer_params of field {field.name} name it"
            )
