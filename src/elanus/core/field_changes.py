"""Changes of fields that a client asks for: which parameters may change and to what, and further fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from elanus.core.errors import FieldNotFound, InvalidParameter
from elanus.core.functions import ANALYZER_PARAMS, ENABLE_ANALYZER, enables_match
from elanus.core.ids import FieldID
from elanus.core.limits import COLLECTION_FIELDS_MAX, VECTOR_FIELDS_MAX
from elanus.core.schema import DYNAMIC_FIELD, SYSTEM_FIELDS, CollectionSchema, FieldSchema
from elanus.core.schema_rules import (
    MAX_CAPACITY,
    MAX_LENGTH,
    declaration_of,
    declared_field,
    with_dynamic_field,
)
from elanus.core.structs import StructSchema
from elanus.core.types import Family
from elanus.core.warmup import FIELD_WARMUP, check_field_warmup

DYNAMIC = "dynamicfield.enabled"
MMAP = "mmap.enabled"
DESCRIPTION = "field.description"
_KEPT = frozenset({MMAP, FIELD_WARMUP})
"""Parameters that are kept and described. They could change speed only, and do not."""
_ANALYSIS = (ENABLE_ANALYZER, ANALYZER_PARAMS)
"""Parameters of a text that nothing reads yet: neither a filter nor a function."""
_SHOWN_NAMES = {"mmap_enabled": MMAP}
"""Names under which clients show a parameter, and send it back."""
_TRUTH = frozenset({"true", "false"})


def param_name(name: str) -> str:
    """Return the name that the server knows a field's parameter by."""
    return _SHOWN_NAMES.get(name, name)


def field_needs_release(params: Mapping[str, str], deleted: Sequence[str]) -> str | None:
    """Return what a loaded collection does not allow of a change, in the reference's words; None: nothing."""
    if MMAP in params:
        return "alter collection field properties"
    if FIELD_WARMUP in params:
        return "alter warmup"
    return "drop collection field properties" if _KEPT.intersection(deleted) else None


def with_altered_field(
    schema: CollectionSchema, name: str, params: Mapping[str, str], deleted: Sequence[str]
) -> CollectionSchema:
    """Return the schema with other parameters of a field. Raises `FieldNotFound`, `InvalidParameter`."""
    struct = next((s for s in schema.structs if s.name == name), None)
    if struct is not None and (params or deleted):
        return _with_altered_struct(schema, struct, params, deleted)
    field = schema.by_name.get(name)
    if field is None or field.is_dynamic:
        raise FieldNotFound(f"field not found[field={name}]: collection {schema.name} has no such field")
    if not params and not deleted:
        raise InvalidParameter(f"no property of field {name} to alter: give properties or delete keys")
    if not set(_ANALYSIS).isdisjoint({*params, *deleted}):
        _check_analysis_changes(schema, field)
    altered = _with_params(field, schema.name, params, deleted)
    return replace(schema, fields=tuple(altered if f is field else f for f in schema.fields))


def _with_altered_struct(
    schema: CollectionSchema, struct: StructSchema, params: Mapping[str, str], deleted: Sequence[str]
) -> CollectionSchema:
    """A capacity is that of all arrays of the struct; what is kept is kept by the struct array itself."""
    members = {f.name for f in schema.members(struct.name)}
    altered = {
        f.name: _with_params(f, schema.name, params, deleted) for f in schema.fields if f.name in members
    }
    kept = {key: value for key, value in struct.params.items() if key not in deleted}
    kept |= {key: value for key, value in params.items() if key in _KEPT}
    changed = replace(struct, params=kept)
    return replace(
        schema,
        fields=tuple(altered.get(f.name, f) for f in schema.fields),
        structs=tuple(changed if s is struct else s for s in schema.structs),
    )


def _with_params(
    field: FieldSchema, collection: str, params: Mapping[str, str], deleted: Sequence[str]
) -> FieldSchema:
    is_array = field.kind.family is Family.LIST or field.has_vector_lists
    element = field.element if is_array else field
    for key in deleted:
        if key not in {*_KEPT, *_ANALYSIS}:
            raise InvalidParameter(
                f"{key} is not allowed to drop in collection field param: field {field.name}"
            )
    for key, value in params.items():
        if key == MAX_LENGTH and not element.kind.has_max_length:
            raise InvalidParameter(f"can not modify the maxlength for non-string types: field {field.name}")
        if key == MAX_CAPACITY and not is_array:
            raise InvalidParameter(f"can not modify the maxcapacity for non-array types: field {field.name}")
        _check_param(field.name, key, value)
    check_field_warmup(field.name, params)
    kept = {key: value for key, value in field.params.items() if key not in deleted}
    kept |= {key: value for key, value in params.items() if key in {*_KEPT, *_ANALYSIS}}
    changed = {key: value for key, value in params.items() if key in {MAX_LENGTH, MAX_CAPACITY}}
    checked = declared_field(declaration_of(field, changed), collection)
    return replace(
        field,
        max_length=checked.max_length,
        max_capacity=checked.max_capacity,
        params=kept,
        description=params.get(DESCRIPTION, field.description),
    )


def _check_param(field: str, key: str, value: str) -> None:
    if key not in {MAX_LENGTH, MAX_CAPACITY, DESCRIPTION, *_KEPT, *_ANALYSIS}:
        raise InvalidParameter(
            f"{key} does not allow update in collection field param: field {field}; {MAX_LENGTH}, "
            f"{MAX_CAPACITY}, {DESCRIPTION}, {', '.join(_ANALYSIS)}, {FIELD_WARMUP} and {MMAP} do"
        )
    if key == MAX_LENGTH and not value.lstrip("-").isdecimal():
        raise InvalidParameter(f"{key} should be an integer, but got string: {value!r} for field {field}")
    if key == MMAP and value.lower() not in _TRUTH:
        raise InvalidParameter(f"invalid {MMAP} value: {value}, expected: true, false: field {field}")
    if key == ENABLE_ANALYZER and value.lower() not in _TRUTH:
        raise InvalidParameter(f"{key} should be a boolean, but got {value}: field {field}")


def _check_analysis_changes(schema: CollectionSchema, field: FieldSchema) -> None:
    """Refuse another analyzer where filters or functions read the words. Raises `InvalidParameter`."""
    if field.kind.family is not Family.TEXT:
        raise InvalidParameter(f"can not alter analyzer params for non-string field {field.name}")
    inputs = {name for function in schema.functions for name in function.inputs}
    if enables_match(field) or field.name in inputs:
        raise InvalidParameter(
            f"can not alter analyzer params for field {field.name} after text match is enabled or a "
            "BM25/MinHash function depends on it"
        )


def check_addable(name: str, *, is_primary: bool, is_partition_key: bool) -> None:
    """Check what no further field may be, before its type is looked at. Raises `InvalidParameter`."""
    if name in (*SYSTEM_FIELDS, DYNAMIC_FIELD):
        raise InvalidParameter(f"not support to add system field, field name = {name}")
    if is_primary:
        raise InvalidParameter(f"not support to add pk field, field name = {name}")
    if is_partition_key:
        # two spaces, as the reference has them
        raise InvalidParameter(f"not support to add partition key field, field name  = {name}")


def with_added_field(schema: CollectionSchema, field: FieldSchema) -> CollectionSchema:
    """Return the schema with one more field, numbered, before the dynamic one.

    Raises `InvalidParameter`, with the reference's texts.
    """
    name = field.name
    if field.is_dynamic:
        return _with_dynamic_field(schema)
    check_addable(name, is_primary=field.is_primary, is_partition_key=field.is_partition_key)
    is_vector = field.kind.vector is not None
    if not field.nullable:
        raise InvalidParameter(
            f"added field must be nullable, please check it, field name = {name}"
            + (f": not support to add vector field, field name = {name}, that is not" if is_vector else "")
        )
    if is_vector and len(schema.vector_fields) >= VECTOR_FIELDS_MAX:
        raise InvalidParameter(
            f"maximum vector field's number should be limited to {VECTOR_FIELDS_MAX}: "
            f"collection {schema.name}"
        )
    others = [f for f in schema.fields if not f.is_dynamic]
    if name in {f.name for f in others}:
        raise InvalidParameter(
            f"duplicated field name {name}: collection {schema.name} has it, duplicate field name: {name}"
        )
    if field.is_clustering_key and any(f.is_clustering_key for f in others):
        raise InvalidParameter(f"already has another clustering key field, field name: {name}")
    if len(others) >= COLLECTION_FIELDS_MAX:
        raise InvalidParameter(
            f"The number of fields has reached the maximum value {COLLECTION_FIELDS_MAX}: "
            f"collection {schema.name}"
        )
    added = replace(field, field_id=schema.next_field_id, is_added=True)
    return replace(schema, fields=(*others, added, *(f for f in schema.fields if f.is_dynamic)))


def with_added_struct(
    schema: CollectionSchema, struct: StructSchema, members: Sequence[FieldSchema]
) -> CollectionSchema:
    """Return the schema with one more struct array, of which ``members`` are the arrays. All are numbered.

    Raises `InvalidParameter`.
    """
    name = struct.name
    check_addable(name, is_primary=False, is_partition_key=False)
    if not struct.nullable:
        raise InvalidParameter(f"added struct field must be nullable, please check it, field name = {name}")
    others = [f for f in schema.fields if not f.is_dynamic]
    if name in {f.name for f in others} | {s.name for s in schema.structs}:
        raise InvalidParameter(
            f"duplicated field name {name}: collection {schema.name} has it, duplicate field name: {name}"
        )
    own = [member.name for member in members]
    if len(set(own)) < len(own):
        raise InvalidParameter(f"duplicated field name in struct array field {name}: {', '.join(own)}")
    added_vectors = sum(f.is_searched for f in members)
    if added_vectors and len(schema.searched_fields) + added_vectors > VECTOR_FIELDS_MAX:
        raise InvalidParameter(
            f"maximum vector field's number should be limited to {VECTOR_FIELDS_MAX}: "
            f"collection {schema.name}"
        )
    if len(others) + len(members) > COLLECTION_FIELDS_MAX:
        raise InvalidParameter(
            f"The number of fields has reached the maximum value {COLLECTION_FIELDS_MAX}: "
            f"collection {schema.name}"
        )
    first = schema.next_field_id
    added = [
        replace(member, field_id=FieldID(first + 1 + n), is_added=True) for n, member in enumerate(members)
    ]
    return replace(
        schema,
        fields=(*others, *added, *(f for f in schema.fields if f.is_dynamic)),
        structs=(*schema.structs, replace(struct, field_id=first)),
    )


def _with_dynamic_field(schema: CollectionSchema) -> CollectionSchema:
    if schema.enable_dynamic:
        raise InvalidParameter(f"dynamic field is already enabled: collection {schema.name}")
    *others, dynamic = with_dynamic_field(schema.fields)
    added = replace(dynamic, field_id=schema.next_field_id, is_added=True)
    return replace(schema, fields=(*others, added), enable_dynamic=True)


def asks_for_dynamic_field(
    schema: CollectionSchema, properties: Mapping[str, str], deleted: Sequence[str]
) -> bool | None:
    """Whether a change of properties turns dynamic fields on; None: it is not about them.

    False: it asks for what the collection has. Raises `InvalidParameter`.
    """
    value = properties.get(DYNAMIC)
    if value is None and DYNAMIC not in deleted:
        return None
    if value is not None and value.lower() not in ("true", "false"):
        raise InvalidParameter(f"invalid {DYNAMIC} value: {value}, expected: true")
    if value is not None and (len(properties) > 1 or deleted):
        raise InvalidParameter("cannot alter dynamic schema with other properties at the same time")
    wanted = value is not None and value.lower() == "true"
    if value is not None and wanted == schema.enable_dynamic:
        return False
    if not wanted:
        raise InvalidParameter("dynamic schema cannot supported to be disabled")
    return True
