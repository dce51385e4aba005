"""Schema validation: of single fields, and of all fields together. Used by every front end.

A front end turns its client's declaration into a `Declaration` and gets the field from `declared_field`. The
texts are the reference's, which clients and conformance suites match.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.functions import check_functions
from elanus.core.geometry import parse_wkt
from elanus.core.ids import FieldID
from elanus.core.limits import (
    ARRAY_CAPACITY_MAX,
    COLLECTION_FIELDS_MAX,
    DIMENSION_MAX,
    DIMENSION_MIN,
    PROPERTIES_MAX,
    VARCHAR_LENGTH_MAX_BYTES,
    VECTOR_FIELDS_MAX,
)
from elanus.core.names import check_collection_name, check_field_name
from elanus.core.schema import DYNAMIC_FIELD, SYSTEM_FIELDS, CollectionSchema, FieldSchema, Scalar
from elanus.core.structs import struct_and_name
from elanus.core.types import (
    ELEMENT_TYPES,
    KINDS,
    LISTED_VECTORS,
    DataType,
    Family,
    FieldKind,
    VectorForm,
    type_name,
)
from elanus.core.warmup import check_field_warmup

DIM = "dim"
MAX_LENGTH = "max_length"
MAX_CAPACITY = "max_capacity"
NAMESPACE_FIELD = "$namespace_id"
"""A field that the reference adds to collections of several namespaces."""
_RESERVED = (*SYSTEM_FIELDS, DYNAMIC_FIELD, NAMESPACE_FIELD)
_WITHOUT_DEFAULTS = frozenset({Family.JSON, Family.LIST, Family.VECTOR})
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A field as a client declares it, without its default. ``data_type`` is one of `KINDS`.

    ``params``: its type parameters as texts, `DIM`, `MAX_LENGTH` and `MAX_CAPACITY` among them.
    ``element_type``: of an array; ignored for other types.
    """

    name: str
    data_type: DataType
    description: str
    is_primary: bool
    auto_id: bool
    nullable: bool
    params: Mapping[str, str]
    element_type: DataType = DataType.NONE
    is_partition_key: bool = False
    is_clustering_key: bool = False


def declaration_of(field: FieldSchema, changed: Mapping[str, str] = MappingProxyType({})) -> Declaration:
    """Return how a field is declared, with type parameters that are ``changed``."""
    own = {DIM: field.dim, MAX_LENGTH: field.max_length, MAX_CAPACITY: field.max_capacity}
    return Declaration(
        field.name,
        field.data_type,
        field.description,
        field.is_primary,
        field.auto_id,
        field.nullable,
        {key: str(value) for key, value in own.items() if value} | dict(changed),
        field.element_type,
        field.is_partition_key,
        field.is_clustering_key,
    )


def declared_field(declared: Declaration, collection: str) -> FieldSchema:
    """Return the field, without an id.

    Raises `InvalidParameter`, `InvalidDimension`, `InvalidFieldName`.
    """
    name, params, kind = declared.name, declared.params, KINDS[declared.data_type]
    for part in struct_and_name(name) or (name,):
        check_field_name(part)
    if len(params) > PROPERTIES_MAX:
        raise InvalidParameter(
            f"field {name} has {len(params)} parameters, and at most {PROPERTIES_MAX} are allowed: "
            "leave some out"
        )
    check_field_warmup(name, params)
    _check_roles(name, kind, is_primary=declared.is_primary, auto_id=declared.auto_id)
    _check_nullable(name, nullable=declared.nullable, is_primary=declared.is_primary)
    _check_partition_key(declared, kind)
    _check_clustering_key(declared, kind)
    element = _element_kind_of(kind, declared)
    max_capacity = _max_capacity(params.get(MAX_CAPACITY), name, collection) if element is not None else 0
    has_max_length = (element or kind).has_max_length
    max_length = _max_length(params.get(MAX_LENGTH), name, collection) if has_max_length else 0
    form = kind.vector if element is None else element.vector
    dim = _dim(params.get(DIM), name, form) if form is not None else 0
    own = {
        key for key, value in ((MAX_LENGTH, max_length), (DIM, dim), (MAX_CAPACITY, max_capacity)) if value
    }
    return FieldSchema(
        field_id=FieldID(0),
        name=name,
        data_type=declared.data_type,
        description=declared.description,
        is_primary=declared.is_primary,
        auto_id=declared.auto_id,
        dim=dim,
        max_length=max_length,
        nullable=declared.nullable,
        params={key: value for key, value in params.items() if key not in own},
        element_type=DataType.NONE if element is None else element.data_type,
        max_capacity=max_capacity,
        is_partition_key=declared.is_partition_key,
        is_clustering_key=declared.is_clustering_key,
    )


def _check_roles(name: str, kind: FieldKind, *, is_primary: bool, auto_id: bool) -> None:
    if is_primary and not kind.can_be_key:
        raise InvalidParameter("the data type of primary key should be Int64 or VarChar")
    if auto_id and not is_primary:
        raise InvalidParameter(f"only primary field can speficy AutoID with true, field name = {name}")


def _check_partition_key(declared: Declaration, kind: FieldKind) -> None:
    if not declared.is_partition_key:
        return
    if declared.is_primary:
        raise InvalidParameter(
            f"the partition key field must not be primary field, field name = {declared.name}"
        )
    if declared.nullable:
        raise InvalidParameter(f"partition key field not support nullable, field name = {declared.name}")
    if not kind.can_be_key:
        raise InvalidParameter(
            "the data type of partition key should be Int64 or VarChar, "
            f"but field {declared.name} is {kind.name}"
        )


def _check_clustering_key(declared: Declaration, kind: FieldKind) -> None:
    """Check the type: a clustering compaction cuts the values into ranges (`elanus.core.clustering`), or
    vectors into clusters (`elanus.core.spheres`)."""
    if not declared.is_clustering_key or declared.data_type is DataType.FLOAT_VECTOR:
        return
    if not (kind.family.is_number or declared.data_type is DataType.VARCHAR):
        raise InvalidParameter(
            f"clustering key field {declared.name} has unsupported data type {type_name(declared.data_type)}"
        )


def _check_nullable(name: str, *, nullable: bool, is_primary: bool) -> None:
    if nullable and is_primary:
        raise InvalidParameter(f"primary field not support null, field name = {name}")


def check_takes_default(field: FieldSchema) -> None:
    """Check that the field may have a default value at all. Raises `InvalidParameter`."""
    if field.is_primary:
        raise InvalidParameter(f"primary field not support default_value, field name = {field.name}")
    if field.kind.family in _WITHOUT_DEFAULTS or field.kind.is_long_text:
        raise InvalidParameter(
            f"type not support default_value, type:{type_name(field.data_type)}, name:{field.name}"
        )


def check_default(field: FieldSchema, value: Scalar) -> None:
    """Check that a default is in the field's range. Raises `InvalidParameter`."""
    if field.kind.family is Family.GEOMETRY:
        try:
            parse_wkt(str(value))
        except InvalidParameter as error:
            raise InvalidParameter(
                f"invalid default value for geometry field: field {field.name}: {error.message}"
            ) from None
        return
    if isinstance(value, str) and field.kind.has_max_length and len(value.encode()) > field.max_length:
        length = len(value.encode())
        raise InvalidParameter(
            f"the length ({length}) of string exceeds max length ({field.max_length}): "
            f"default of field {field.name}"
        )
    if field.kind.integer_range is not None:
        low, high = field.kind.integer_range
        if not low <= int(value) <= high:
            raise InvalidParameter(
                "default value out of range: invalid parameter"
                f"[{value} out of range {low} <= value <= {high}]: field {field.name}"
            )


def _dim(given: str | None, field: str, form: VectorForm) -> int:
    if not form.has_dim:
        if given is not None:
            raise InvalidParameter(f"dim should not be specified for sparse vector field {field}")
        return 0
    if given is None:
        raise InvalidDimension(
            f"dimension is not defined in field type params of field {field}, check type param `dim` for "
            "vector field"
        )
    dim = _integer(given)
    if dim is None or dim < DIMENSION_MIN:
        raise InvalidDimension(
            f"invalid dimension: {given}. should be in range {DIMENSION_MIN} ~ {DIMENSION_MAX}: field {field}"
        )
    if dim > form.dim_max:
        raise InvalidDimension(
            f"invalid dimension: {dim} of field {field}. "
            f"{form.space.value} vector dimension should be in range {DIMENSION_MIN} ~ {form.dim_max}"
        )
    if dim % form.dims_per_value:
        raise InvalidDimension(
            f"invalid dimension: {dim} of field {field}. {form.space.value} vector dimension should be "
            f"multiple of {form.dims_per_value}. "
        )
    return dim


def _max_length(given: str | None, field: str, collection: str) -> int:
    if given is None:
        raise InvalidParameter(
            f"type param(max_length) should be specified for the field({field}) of collection {collection}"
        )
    length = _integer(given)
    if length is None or not 1 <= length <= VARCHAR_LENGTH_MAX_BYTES:
        raise InvalidParameter(
            f"the maximum length specified for the field({field}) should be in "
            f"(0, {VARCHAR_LENGTH_MAX_BYTES}], but got {given} instead"
        )
    return length


def _element_kind_of(kind: FieldKind, declared: Declaration) -> FieldKind | None:
    """Return the kind of the elements; None for a field without."""
    if kind.data_type is not DataType.ARRAY_OF_VECTOR:
        return _element_kind(declared.element_type) if kind.family is Family.LIST else None
    if struct_and_name(declared.name) is None:
        raise InvalidParameter(
            f"ArrayOfVector is only supported in struct array field, but field {declared.name} has this type"
        )
    if declared.element_type not in LISTED_VECTORS:
        names = ", ".join(KINDS[known].name for known in sorted(LISTED_VECTORS))
        raise InvalidParameter(
            f"Unsupported element type of ArrayOfVector field {declared.name}: "
            f"{type_name(declared.element_type)}: use one of {names}"
        )
    return KINDS[declared.element_type]


def _element_kind(element_type: DataType) -> FieldKind:
    if element_type is DataType.NONE:
        raise InvalidParameter("element data type None is not valid")
    if element_type is DataType.STRING:
        raise InvalidParameter("string data type not supported yet, please use VarChar type instead")
    if element_type not in ELEMENT_TYPES:
        names = ", ".join(KINDS[known].name for known in sorted(ELEMENT_TYPES))
        raise InvalidParameter(f"element type {type_name(element_type)} is not supported: use one of {names}")
    return KINDS[element_type]


def _max_capacity(given: str | None, field: str, collection: str) -> int:
    if given is None:
        raise InvalidParameter(
            f"type param(max_capacity) should be specified for array field {field} of collection {collection}"
        )
    capacity = _integer(given)
    if capacity is None:
        raise InvalidParameter(
            f"the value for {MAX_CAPACITY} of field {field} must be an integer, but got {given}"
        )
    if not 1 <= capacity <= ARRAY_CAPACITY_MAX:
        raise InvalidParameter(
            f"the maximum capacity specified for a Array should be in (0, {ARRAY_CAPACITY_MAX}], "
            f"but got {capacity} for field {field}"
        )
    return capacity


def _integer(text: str) -> int | None:
    """Python's int() takes more than the reference: spaces, underscores, digits of other scripts."""
    return int(text) if _INTEGER.fullmatch(text) else None


# all together


def check_field_count(count: int) -> None:
    """Check how many fields are declared, before any is looked at. Raises `InvalidParameter`."""
    if count > COLLECTION_FIELDS_MAX:
        raise InvalidParameter(f"maximum field's number should be limited to {COLLECTION_FIELDS_MAX}")


def check_declared_names(names: Sequence[str]) -> None:
    """Check the names of all declared fields, before the fields one by one. Raises `InvalidParameter`."""
    check_field_count(len(names))
    for name in names:
        if name in SYSTEM_FIELDS:
            raise InvalidParameter(
                f"schema contains system field: {', '.join(_RESERVED)}: "
                "invalid parameter[expected=schema don't contains system field][actual=contains]: "
                f'field name "{name}" is reserved for internal use and cannot be used in user schemas'
            )


def check_fields_together(fields: Sequence[FieldSchema], structs: Sequence[str] = ()) -> None:
    """Check the declared fields as a whole. ``structs``: names of struct arrays.

    Raises `InvalidParameter`.
    """
    names = [*(field.name for field in fields), *structs]
    for name in names:
        if names.count(name) > 1:
            raise InvalidParameter(f"duplicated field name {name} found")
    primary = [field.name for field in fields if field.is_primary]
    if not primary:
        raise InvalidParameter("primary key is not specified")
    if len(primary) > 1:
        raise InvalidParameter(f"there are more than one primary key, field name = {', '.join(primary)}")
    for role, found in (
        ("partition key", [field.name for field in fields if field.is_partition_key]),
        ("clustering key", [field.name for field in fields if field.is_clustering_key]),
    ):
        if len(found) > 1:
            raise InvalidParameter(f"there are more than one {role}, field name = {', '.join(found)}")
    vectors = [field.name for field in fields if field.is_searched]
    if not vectors:
        raise InvalidParameter("schema does not contain vector field")
    if len(vectors) > VECTOR_FIELDS_MAX:
        raise InvalidParameter(
            f"maximum vector field's number should be limited to {VECTOR_FIELDS_MAX}: {', '.join(vectors)}"
        )


def with_dynamic_field(fields: Sequence[FieldSchema]) -> tuple[FieldSchema, ...]:
    """Return the fields plus a last JSON column, which holds a row's undeclared fields."""
    dynamic = FieldSchema(
        field_id=FieldID(0),
        name=DYNAMIC_FIELD,
        data_type=DataType.JSON,
        description="dynamic schema",
        is_dynamic=True,
    )
    return (*fields, dynamic)


def check_schema(schema: CollectionSchema) -> None:
    """Check the whole schema of a new collection, whichever front end made it.

    Raises `InvalidParameter` and its subclasses, `NotSupported`.
    """
    check_collection_name(schema.name)
    declared = [field for field in schema.fields if not field.is_dynamic]
    check_declared_names([field.name for field in declared])
    for field in declared:
        _check_field(field, schema.name)
    check_fields_together(declared, [struct.name for struct in schema.structs])
    check_functions(declared, schema.functions)
    if (schema.dynamic_field is not None) != schema.enable_dynamic:
        raise InvalidParameter(
            f"the schema of collection {schema.name} has a field {DYNAMIC_FIELD} if and only if "
            "enable_dynamic_field is set"
        )


def _check_field(field: FieldSchema, collection: str) -> None:
    declared_field(declaration_of(field), collection)
    if field.default_value is not None:
        check_takes_default(field)
        check_default(field, field.default_value)
