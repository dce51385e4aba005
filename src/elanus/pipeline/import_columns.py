"""The columns of a user's Parquet file as columns of a collection: which fit, and turning them into ours.

Types are held against the schema from the footer alone, before anything is read
(`elanus.core.given_types`). Values are checked where they are read, in the task: `convert` turns one batch of
rows into the form of
``schema.arrow_schema``, or raises an error that names the file, the row group, the row, the field and the
value. Here is only what Parquet brings; what is a valid value, `elanus.core.rows` says. Everything works on
whole columns.

Accepted per field: its own Arrow type, wider or narrower numbers as long as every value fits, decimals as
numbers (whole ones of up to 18 digits as integers), large and dictionary-encoded strings; moments as ISO 8601
texts or timestamps, in UTC where they name no offset; geometries as WKT or WKB; arrays as lists of what their
elements accept; vectors of floats as lists or fixed-size lists of floats; binary vectors, and those of half
precision, as the bytes they are stored as or lists of uint8; vectors of bytes as lists of integers, too, also
as floats;
sparse vectors as `elanus.pipeline.import_sparse` says. With a dynamic field, either a ``$meta`` column of
JSON objects, or any columns that the schema does not have: they become keys of the row's object, nulls left
out; whole floats keep their fraction there (``7.0``), decimals are numbers, dates and times ISO 8601 texts,
maps objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.given_types import (
    fits_floats,
    fits_numbers,
    has_text_form,
    is_bytes,
    is_document,
    is_text,
    no_json_form,
)
from elanus.core.rows import EMPTY_OBJECT, Given, check_nulls, conform
from elanus.core.schema import DYNAMIC_FIELD, CollectionSchema, DataType, FieldSchema
from elanus.core.sent_keys import is_made
from elanus.core.structs import check_lengths
from elanus.core.types import Family
from elanus.core.vector_lists import list_column
from elanus.pipeline.import_place import Place as Place
from elanus.pipeline.import_place import PlaceOfElements
from elanus.pipeline.import_sparse import to_pairs
from elanus.pipeline.import_structs import split_rows
from elanus.pipeline.import_texts import JSON_NULL, MALFORMED

_JSON = msgspec.json.Encoder(decimal_format="number")
_value = msgspec.json.Decoder(msgspec.Raw)
_NO_JSON = (KeyError, TypeError, OverflowError, ValueError)
"""The errors about a map with a key twice, or with keys that are no texts or numbers; and about a date or a
time of a year that Python does not have."""
_WHOLE = (r"^(-?\d+)$", r"\1.0")
"""The text of a float without a fraction, and the same number as JSON's float."""


def convert(
    schema: CollectionSchema, rows: pa.RecordBatch, auto_keys: pa.Array | None, place: Place
) -> pa.RecordBatch:
    """Return a batch of a file whose columns `check_columns` let pass, in the form of
    ``schema.arrow_schema``.

    ``auto_keys``: the primary keys, for rows that bring none. Raises `InvalidParameter` about the first
    value that does not fit.
    """

    rows = split_rows(schema, rows) if schema.structs else rows

    def given(field: FieldSchema) -> Given | None:
        if is_made(field, rows.schema.names):
            assert auto_keys is not None, "a collection with automatic keys needs some"
            return Given(auto_keys)
        if field.is_dynamic:
            return _dynamic(schema, rows, place)
        return _given(field, rows.column(field.name), place) if field.name in rows.schema.names else None

    batch = conform(
        schema, given, rows.num_rows, with_auto_key=True, first_row=place.first_row, refusal=place.refusal
    )
    check_lengths(schema.structs, batch)
    return batch


def _given(field: FieldSchema, column: pa.Array, place: Place) -> Given:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    valid = None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        check_nulls(field, valid, place.refusal)  # before the lengths of lists, which a null has none of
        column = column.drop_null()
    if pa.types.is_null(column.type):
        column = column.cast(pa.string() if field.kind.family is Family.JSON else field.arrow_type)
    return replace(CONVERT[field.data_type](field, column, place), valid=valid)


def _as_it_is(_: FieldSchema, column: pa.Array, __: Place) -> Given:
    return Given(column)


def _documents(_: FieldSchema, column: pa.Array, __: Place) -> Given:
    column = column.storage if is_document(column.type) else column
    return Given(column.cast(pa.binary()).to_pylist())


def _float_vectors(field: FieldSchema, column: pa.Array, place: Place) -> Given:
    form = field.vector
    _check_lengths(field.name, column, field.dim, place)
    values = column.flatten()
    if values.null_count:
        place.refuse(field.name, _first(values.is_null()) // field.dim, "holds a null among its numbers")
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    with np.errstate(over="ignore"):
        numbers = values.to_numpy().astype(form.dtype, copy=False)
    return Given(form.to_column(numbers.reshape(len(column), field.dim)), shown=values)


def _vectors_as_bytes(field: FieldSchema, column: pa.Array, place: Place) -> Given:
    """Vectors that are given as the bytes they are stored as, or as lists of those bytes."""
    row_bytes = field.vector.row_bytes(field.dim)
    if pa.types.is_fixed_size_binary(column.type):
        vectors = column
    elif is_bytes(column.type):
        _check_lengths(field.name, column, row_bytes, place)
        vectors = column.cast(pa.binary()).cast(field.arrow_type)
    else:
        _check_lengths(field.name, column, row_bytes, place)
        values = column.flatten()
        if values.null_count:
            place.refuse(field.name, _first(values.is_null()) // row_bytes, "holds a null among its bytes")
        content = pa.py_buffer(values.to_numpy())
        vectors = pa.Array.from_buffers(field.arrow_type, len(column), [None, content])
    return Given(vectors)


def _check_lengths(name: str, column: pa.Array, expected: int, place: Place) -> None:
    """Of vectors: how many numbers, or bytes."""
    if pa.types.is_fixed_size_list(column.type):
        return
    lengths = pc.binary_length(column) if is_bytes(column.type) else pc.list_value_length(column)
    wrong = pc.not_equal(lengths, expected)
    if pc.any(wrong).as_py():
        row = _first(wrong)
        unit = "bytes" if is_bytes(column.type) else "values"
        place.refuse(name, row, f"has {lengths[row].as_py()} {unit}, its dimension asks for {expected}")


def _dynamic(schema: CollectionSchema, rows: pa.RecordBatch, place: Place) -> Given | None:
    if DYNAMIC_FIELD in rows.schema.names:
        given = rows.column(DYNAMIC_FIELD).cast(pa.binary())
        return Given(pc.fill_null(given, EMPTY_OBJECT.encode()).to_pylist())
    extra = [name for name in rows.schema.names if name not in schema.by_name]
    return _objects_of({name: rows.column(name) for name in extra}, place) if extra else None


def _objects_of(columns: dict[str, pa.Array], place: Place) -> Given:
    """Return one JSON object a row, of the columns that are not null in it."""
    members = [_members(name, column, place) for name, column in columns.items()]
    inside = pc.utf8_ltrim(pc.binary_join_element_wise(*members, ""), ",")
    return Given(pc.binary_join_element_wise("{", inside, "}", ""))


def _members(name: str, column: pa.Array, place: Place) -> pa.Array:
    """``,"name":value`` for each row, empty where the value is null."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return pa.repeat("", len(column))
    if pa.types.is_floating(column.type):
        wrong = pc.invert(pc.is_finite(column))
        if pc.any(wrong).as_py():
            row = _first(wrong)
            place.refuse(name, row, f"is {column[row].as_py()}, which JSON has no word for")
        texts = column.cast(pa.float64()).cast(pa.string())
        texts = pc.replace_substring_regex(texts, *_WHOLE)  # without a fraction it would become an integer
    elif pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        texts = column.cast(pa.string())
    elif is_document(column.type):
        texts = _checked(name, column.storage.cast(pa.string()), place)
    elif is_text(column.type) or pa.types.is_nested(column.type) or has_text_form(column.type):
        texts = _encoded(name, column, place)
    else:
        raise no_json_form(place.file, name, column.type)
    key = "," + msgspec.json.encode(name).decode() + ":"
    return pc.if_else(column.is_null(), "", pc.binary_join_element_wise(key, texts, ""))


def _encoded(name: str, column: pa.Array, place: Place) -> pa.Array:
    """Return the JSON texts of values, made by a C loop. Times are cut to microseconds, maps are objects."""
    coarser = _in_microseconds(column.type)
    if coarser != column.type:
        column = column.cast(coarser, safe=False)
    if not _is_finite(column):
        row = next(n for n in range(len(column)) if not _is_finite(column.slice(n, 1)))
        place.refuse(name, row, "holds a nan or an inf, which JSON has no word for")
    try:
        texts = _json_texts(column)
    except _NO_JSON:
        row, error = next((n, e) for n in range(len(column)) if (e := _no_json(column.slice(n, 1))))
        is_time = isinstance(error, OverflowError | ValueError)
        years = ", dates and times are of the years 1 to 9999" if is_time else ""
        place.refuse(name, row, f"has a value that has no form in JSON: {error}{years}")
    return pa.array(texts, pa.binary()).cast(pa.string())


def _checked(name: str, documents: pa.Array, place: Place) -> pa.Array:
    """Return JSON documents. They become parts of objects, so each is refused that is not one value."""
    for row, text in enumerate(documents.to_pylist()):
        try:
            _value.decode(JSON_NULL if text is None else text)
        except MALFORMED as error:
            place.refuse(name, row, f"holds no JSON: {error}")
    return documents


def _in_microseconds(found: pa.DataType) -> pa.DataType:
    """Return the type with all of its timestamps, those in lists, structs and maps too, in microseconds:
    Python's times have no more."""
    if pa.types.is_timestamp(found):
        return pa.timestamp("us", found.tz)
    if pa.types.is_map(found):
        return pa.map_(found.key_type, _in_microseconds(found.item_type))
    if pa.types.is_struct(found):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in found])
    if pa.types.is_fixed_size_list(found):
        return pa.list_(_in_microseconds(found.value_type), found.list_size)
    if pa.types.is_list(found):
        return pa.list_(_in_microseconds(found.value_type))
    return found


def _json_texts(column: pa.Array) -> list[bytes]:
    return list(map(_JSON.encode, column.to_pylist(maps_as_pydicts="strict")))


def _no_json(column: pa.Array) -> Exception | None:
    """Return why a value has no form in JSON; None: it has one."""
    try:
        _json_texts(column)
    except _NO_JSON as error:
        return error
    return None


def _is_finite(column: pa.Array) -> bool:
    """Whether all floats are numbers, those in lists, structs and maps too. The encoder would make nulls."""
    found = column.type
    if pa.types.is_dictionary(found):
        return _is_finite(column.dictionary_decode())
    if pa.types.is_map(found):
        column = column.cast(pa.list_(pa.struct([found.key_field, found.item_field]))).flatten().field(1)
        return _is_finite(column)
    if pa.types.is_struct(found):
        return all(map(_is_finite, column.flatten()))
    if pa.types.is_nested(found):
        return _is_finite(column.flatten())
    return not pa.types.is_floating(found) or pc.all(pc.is_finite(column)).as_py() is not False


def _first(wrong: pa.Array) -> int:
    return int(pc.index(wrong, True).as_py())


Convert = Callable[[FieldSchema, pa.Array, Place], Given]
"""Turns a column without nulls into values as `elanus.core.rows` takes them."""


def _without_decimals(field: FieldSchema, found: pa.DataType) -> pa.DataType:
    """Return the type to read numbers in: float64 or int64 for decimals, else their own."""
    if not pa.types.is_decimal(found):
        return found
    return pa.float64() if field.data_type in (DataType.FLOAT, DataType.DOUBLE) else pa.int64()


def _wide(found: pa.DataType) -> pa.DataType:
    """Return the type in 128 bits for a decimal of fewer: Arrow casts none of 32 to integers."""
    is_narrow = pa.types.is_decimal(found) and found.bit_width < 128
    return pa.decimal128(found.precision, found.scale) if is_narrow else found


def _numbers(field: FieldSchema, column: pa.Array, _: Place) -> Given:
    column = column.cast(_wide(column.type))
    return Given(column.cast(_without_decimals(field, column.type)))


def _half_vectors(field: FieldSchema, column: pa.Array, place: Place) -> pa.Array:
    given_as_numbers = fits_floats(field, column.type)
    return (_float_vectors if given_as_numbers else _vectors_as_bytes)(field, column, place)


def _byte_vectors(field: FieldSchema, column: pa.Array, place: Place) -> Given:
    """Lists of integers of any width, or of whole floats, hold the vector's numbers, binary columns its
    bytes."""
    if not fits_numbers(field, column.type):
        return _vectors_as_bytes(field, column, place)
    _check_lengths(field.name, column, field.dim, place)
    values = column.flatten()
    if values.null_count:
        place.refuse(field.name, _first(values.is_null()) // field.dim, "holds a null among its numbers")
    low, high, is_whole = -128, 127, True
    if not pa.types.is_integer(values.type):
        values = values.cast(pa.float64())
        is_whole = pc.equal(values, pc.trunc(values))
    fits = pc.and_(is_whole, pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high)))
    if not pc.all(fits, min_count=0).as_py():
        at = _first(pc.invert(fits))
        row, position = divmod(at, field.dim)
        place.refuse(
            field.name,
            row,
            f"holds {values[at]} at position {position}: values are whole numbers in [{low}, {high}]",
        )
    numbers = values.cast(pa.int8()).to_numpy().reshape(len(column), field.dim)
    return Given(field.vector.to_column(numbers))


def _sparse_vectors(field: FieldSchema, column: pa.Array, place: Place) -> Given:
    return Given(to_pairs(column, lambda row, why: place.refuse(field.name, row, why)))


def _arrays(field: FieldSchema, column: pa.Array, _: Place) -> Given:
    if (wide := _wide(column.type.value_type)) != column.type.value_type:
        column = column.cast(pa.list_(wide))
    found = _without_decimals(field.element, column.type.value_type)
    return Given(column.cast(pa.list_(field.element.arrow_type if pa.types.is_null(found) else found)))


def _vector_lists(field: FieldSchema, column: pa.Array, place: Place) -> Given:
    """Lists of what single vectors may be given as."""
    offsets = np.zeros(len(column) + 1, dtype=np.int64)
    np.cumsum(pc.list_value_length(column).to_numpy(), out=offsets[1:])
    vectors = column.flatten()
    of_vectors = PlaceOfElements(
        place.file, place.row_group, place.first_row, place.rows_before, offsets=offsets
    )
    if vectors.null_count:
        of_vectors.refuse(field.name, _first(vectors.is_null()), "holds a null")
    if pa.types.is_null(vectors.type):
        vectors = vectors.cast(field.element.arrow_type)
    given = CONVERT[field.element_type](field.element, vectors, of_vectors).values
    return Given(list_column(field.vector, field.vector.to_matrix(given), offsets))


CONVERT: Mapping[DataType, Convert] = {
    DataType.BOOL: _as_it_is,
    DataType.INT8: _numbers,
    DataType.INT16: _numbers,
    DataType.INT32: _numbers,
    DataType.INT64: _numbers,
    DataType.FLOAT: _numbers,
    DataType.DOUBLE: _numbers,
    DataType.VARCHAR: _as_it_is,
    DataType.GEOMETRY: _as_it_is,
    DataType.TIMESTAMPTZ: _as_it_is,
    DataType.TEXT: _as_it_is,
    DataType.JSON: _documents,
    DataType.ARRAY: _arrays,
    DataType.ARRAY_OF_VECTOR: _vector_lists,
    DataType.FLOAT_VECTOR: _float_vectors,
    DataType.BINARY_VECTOR: _vectors_as_bytes,
    DataType.FLOAT16_VECTOR: _half_vectors,
    DataType.BFLOAT16_VECTOR: _half_vectors,
    DataType.SPARSE_FLOAT_VECTOR: _sparse_vectors,
    DataType.INT8_VECTOR: _byte_vectors,
}
"""How the columns of each data type are converted: the same keys as `elanus.core.types.KINDS`."""
