"""Which types the columns of a file or a frame may have, by their Arrow types alone, before any row is read.

`ACCEPTED` has them for each data type. `elanus.pipeline.import_columns` turns such columns into those of a
collection, and checks their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.given_columns import check_names
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import member_name
from elanus.core.types import Family

DIGITS_OF_INT64 = 18
"""Every whole number of so many decimal digits fits into 64 bits."""
INDICES, VALUES = "indices", "values"
"""The members of a struct that holds a sparse vector."""


def check_columns(schema: CollectionSchema, columns: pa.Schema, source: str) -> None:
    """Check that columns fit the collection's fields. Raises `InvalidParameter`.

    ``source``: what has the columns, for the messages.
    """
    columns = split_types(schema, columns)
    check_names(schema, columns.names, source)
    for column in columns:
        field = schema.by_name.get(column.name)
        if field is None:
            _check_json_form(column, source)
        elif not fits(field, _values_of(column.type)):
            raise InvalidParameter(
                f"{source}: column {field.name} has type {column.type}, which does not fit field "
                f"{field.name} of type {_described(field)}: give {ACCEPTED[field.data_type].wanted(field)}"
            )


def fits(field: FieldSchema, found: pa.DataType) -> bool:
    """Whether a column of that type may hold the field."""
    # Null is what pandas writes where every value is missing; whether they may be is seen with the rows.
    return bool(pa.types.is_null(found) or ACCEPTED[field.data_type].fits(field, found))


def _values_of(found: pa.DataType) -> pa.DataType:
    return found.value_type if pa.types.is_dictionary(found) else found


def _described(field: FieldSchema) -> str:
    return (
        f"{field.data_type.name}{f' with dim {field.dim}' if field.dim else ''}"
        f"{f' of {field.element_type.name}' if field.kind.family is Family.LIST else ''}"
    )


def _check_json_form(column: pa.Field, source: str) -> None:
    if not has_json_form(_values_of(column.type)):
        raise no_json_form(source, column.name, column.type)


def no_json_form(source: str, name: str, found: pa.DataType) -> InvalidParameter:
    """Return why a column cannot become a key of the dynamic field."""
    return InvalidParameter(
        f"{source}: column {name} of type {found} has no form in JSON: "
        "give numbers, strings, lists, structs, maps, dates or timestamps"
    )


def has_json_form(found: pa.DataType) -> bool:
    """Whether values of that type can be in a JSON object, as far as the type says."""
    is_number = pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_boolean(found)
    is_other = is_text(found) or pa.types.is_nested(found) or pa.types.is_null(found)
    is_value = is_number or is_other or is_document(found) or has_text_form(found)
    return bool(is_value) and not _holds_no_json(found)


def _holds_no_json(found: pa.DataType) -> bool:
    """Whether it is bytes, of which JSON has none, or holds them, or what has a form by itself only."""
    inside = [found.field(n).type for n in range(found.num_fields)] if pa.types.is_nested(found) else ()
    return is_bytes(found) or any(_holds_no_json(held) or is_extended(held) for held in inside)


def has_text_form(found: pa.DataType) -> bool:
    """Whether it is a decimal, which is a number in JSON, or a date or time, which are ISO 8601 texts."""
    return bool(pa.types.is_decimal(found) or pa.types.is_date(found) or pa.types.is_timestamp(found))


def split_types(schema: CollectionSchema, columns: pa.Schema) -> pa.Schema:
    """Return columns with the struct arrays among them split: one column for each of their fields."""
    fields: list[pa.Field] = []
    for field in columns:
        if is_struct_array(schema, field):
            fields += [
                pa.field(member_name(field.name, member.name), pa.list_(member.type))
                for member in struct_members(field.type)
            ]
        else:
            fields.append(field)
    return pa.schema(fields)


def is_struct_array(schema: CollectionSchema, field: pa.Field) -> bool:
    """Whether a column holds a struct array as a list of structs."""
    named = any(struct.name == field.name for struct in schema.structs)
    return bool(named and is_variable_list(field.type) and pa.types.is_struct(field.type.value_type))


def struct_members(found: pa.DataType) -> list[pa.Field]:
    """Return the fields of the structs in a list."""
    structs = found.value_type
    return [structs.field(n) for n in range(structs.num_fields)]


def is_text(found: pa.DataType) -> bool:
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


def is_bytes(found: pa.DataType) -> bool:
    return bool(pa.types.is_binary(found) or pa.types.is_large_binary(found))


def is_extended(found: pa.DataType) -> bool:
    """Whether it gives a plain type a meaning of its own."""
    return isinstance(found, pa.BaseExtensionType)


def is_document(found: pa.DataType) -> bool:
    """Whether it is Arrow's type of JSON documents."""
    return is_extended(found) and found.extension_name == "arrow.json"


def is_variable_list(found: pa.DataType) -> bool:
    return bool(pa.types.is_list(found) or pa.types.is_large_list(found))


def _is_list(found: pa.DataType, length: int) -> bool:
    if pa.types.is_fixed_size_list(found):
        return bool(found.list_size == length)
    return is_variable_list(found)


@dataclass(frozen=True, slots=True)
class Accepted:
    """``fits``: whether a column of that Arrow type may hold the field; ``wanted``: such types in words."""

    fits: Callable[[FieldSchema, pa.DataType], bool]
    wanted: Callable[[FieldSchema], str]


def _fits_integer(_: FieldSchema, found: pa.DataType) -> bool:
    if pa.types.is_decimal(found):
        return bool(found.scale == 0 and found.precision <= DIGITS_OF_INT64)
    return bool(pa.types.is_integer(found))


def _fits_number(_: FieldSchema, found: pa.DataType) -> bool:
    return bool(pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found))


def fits_floats(field: FieldSchema, found: pa.DataType) -> bool:
    """Whether a column may hold the numbers of a vector as lists of floats."""
    return _is_list(found, field.dim) and bool(
        pa.types.is_floating(found.value_type) or pa.types.is_decimal(found.value_type)
    )


def _fits_bytes(field: FieldSchema, found: pa.DataType) -> bool:
    row_bytes = field.vector.row_bytes(field.dim)
    if pa.types.is_fixed_size_binary(found):
        return bool(found.byte_width == row_bytes)
    return is_bytes(found) or (_is_list(found, row_bytes) and bool(pa.types.is_uint8(found.value_type)))


def _fits_floats_or_bytes(field: FieldSchema, found: pa.DataType) -> bool:
    return fits_floats(field, found) or _fits_bytes(field, found)


def fits_integers(field: FieldSchema, found: pa.DataType) -> bool:
    """Whether a column may hold the numbers of a vector as lists of integers."""
    return _is_list(found, field.dim) and bool(pa.types.is_integer(found.value_type))


def fits_numbers(field: FieldSchema, found: pa.DataType) -> bool:
    """Whether a column may hold the numbers of a vector of bytes as lists: a reader has them as floats."""
    return fits_integers(field, found) or fits_floats(field, found)


def _fits_numbers_or_bytes(field: FieldSchema, found: pa.DataType) -> bool:
    return fits_numbers(field, found) or _fits_bytes(field, found)


def _fits_sparse(_: FieldSchema, found: pa.DataType) -> bool:
    if is_bytes(found) or is_text(found):
        return True
    if pa.types.is_map(found):
        return bool(pa.types.is_integer(found.key_type) and pa.types.is_floating(found.item_type))
    if not pa.types.is_struct(found) or {f.name for f in found} != {INDICES, VALUES}:
        return False
    indices, values = found.field(INDICES).type, found.field(VALUES).type
    if not (is_variable_list(indices) and is_variable_list(values)):
        return False
    return bool(pa.types.is_integer(indices.value_type) and pa.types.is_floating(values.value_type))


def _fits_array(field: FieldSchema, found: pa.DataType) -> bool:
    is_list = is_variable_list(found) or pa.types.is_fixed_size_list(found)
    return bool(is_list and fits(field.element, found.value_type))


def _fits_vector_lists(field: FieldSchema, found: pa.DataType) -> bool:
    return is_variable_list(found) and fits(field.element, found.value_type)


def _fits_text(_: FieldSchema, found: pa.DataType) -> bool:
    return is_text(found)


def _fits_text_or_bytes(_: FieldSchema, found: pa.DataType) -> bool:
    return is_text(found) or is_bytes(found)


def _fits_document(_: FieldSchema, found: pa.DataType) -> bool:
    return is_text(found) or is_bytes(found) or is_document(found)


def _words(text: str) -> Callable[[FieldSchema], str]:
    return lambda _: text


def _bytes_wanted(field: FieldSchema) -> str:
    row_bytes = field.vector.row_bytes(field.dim)
    return f"{row_bytes} bytes in each row, as binary or as lists of uint8"


def _floats_wanted(field: FieldSchema) -> str:
    return f"lists of {field.dim} floats"


def _floats_or_bytes_wanted(field: FieldSchema) -> str:
    return f"{_floats_wanted(field)}, or {_bytes_wanted(field)}"


def _numbers_or_bytes_wanted(field: FieldSchema) -> str:
    return f"lists of {field.dim} integers (also as floats), or {_bytes_wanted(field)}"


def _elements_wanted(field: FieldSchema) -> str:
    return f"lists, whose elements are {ACCEPTED[field.element_type].wanted(field.element)}"


def _same(kinds: Iterable[DataType], accepted: Accepted) -> dict[DataType, Accepted]:
    return dict.fromkeys(kinds, accepted)


_INTEGERS = (DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64)
_WHOLE = f"integers, or decimals without a fraction and with at most {DIGITS_OF_INT64} digits"
_PAIRS = (
    f"structs of {INDICES} (integers) and {VALUES} (floats), maps from integers to floats, JSON texts, or "
    "bytes"
)
ACCEPTED: Mapping[DataType, Accepted] = {
    DataType.BOOL: Accepted(lambda _, found: bool(pa.types.is_boolean(found)), _words("booleans")),
    **_same(_INTEGERS, Accepted(_fits_integer, _words(_WHOLE))),
    **_same((DataType.FLOAT, DataType.DOUBLE), Accepted(_fits_number, _words("numbers"))),
    **_same((DataType.VARCHAR, DataType.TEXT), Accepted(_fits_text, _words("strings"))),
    DataType.GEOMETRY: Accepted(_fits_text_or_bytes, _words("WKT strings, or WKB as binary")),
    DataType.TIMESTAMPTZ: Accepted(
        lambda _, found: is_text(found) or bool(pa.types.is_timestamp(found)),
        _words("timestamps, or ISO 8601 strings"),
    ),
    DataType.JSON: Accepted(_fits_document, _words("JSON texts, as strings or binary")),
    DataType.ARRAY: Accepted(_fits_array, _elements_wanted),
    DataType.ARRAY_OF_VECTOR: Accepted(_fits_vector_lists, _elements_wanted),
    DataType.FLOAT_VECTOR: Accepted(fits_floats, _floats_wanted),
    DataType.BINARY_VECTOR: Accepted(_fits_bytes, _bytes_wanted),
    **_same(
        (DataType.FLOAT16_VECTOR, DataType.BFLOAT16_VECTOR),
        Accepted(_fits_floats_or_bytes, _floats_or_bytes_wanted),
    ),
    DataType.SPARSE_FLOAT_VECTOR: Accepted(_fits_sparse, _words(_PAIRS)),
    DataType.INT8_VECTOR: Accepted(_fits_numbers_or_bytes, _numbers_or_bytes_wanted),
}
"""The same keys as `elanus.core.types.KINDS`."""
