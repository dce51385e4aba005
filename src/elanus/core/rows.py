"""Row validation: every writer's columns are turned into a batch of the collection's schema here, or refused.

A front end (the Milvus wire, an import, …) turns its input into Arrow columns, and does not handle defaults,
nulls, ranges or lengths. `conform` works on whole columns. A value that does not fit is a fault
(`elanus.core.row_faults`); a front end that can locate a row more precisely than by its number words the
fault itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core import sparse
from elanus.core.errors import InvalidParameter
from elanus.core.geometry import InvalidGeometry, wkb_of_binaries, wkb_of_texts
from elanus.core.json_column import check_dynamic_keys, json_column
from elanus.core.moments import DEFAULT_TIMEZONE, InvalidMoment, first_beyond_calendar, parse_moments
from elanus.core.nullable import Valid as Valid
from elanus.core.nullable import spread
from elanus.core.row_faults import Fault, Problem, Refusal, insert_refusal
from elanus.core.schema import DYNAMIC_FIELD, CollectionSchema, FieldSchema
from elanus.core.types import Family
from elanus.core.vector_lists import VectorLists

EMPTY_OBJECT = "{}"


@dataclass(frozen=True, slots=True)
class Given:
    """A front end's input for one field. ``values``: those of the valid rows, in order, without nulls.

    They are an Arrow array of the field's type, or of another width of numbers or texts (for arrays: a
    ``list`` of these; for Timestamptz: texts or timestamps; for Geometry: WKT or WKB); JSON documents may be
    a sequence of bytes. ``valid``: None if all rows are valid. ``shown``: for vectors whose numbers were
    converted, the numbers as the client gave them, shape (n · width,).
    """

    values: pa.Array | Sequence[bytes]
    valid: Valid | None = None
    shown: pa.Array | None = None


def check_sent(schema: CollectionSchema, sent: Collection[str], *, with_auto_key: bool) -> None:
    """Check that a client may send these fields, given by name. Raises `InvalidParameter`."""
    found: set[str] = set()
    for name in sent:
        if name not in schema.by_name:
            raise _unknown_field(schema, name)
        if schema.by_name[name].is_function_output:
            raise InvalidParameter(
                f"field {name} is the output of a function, which the server computes: leave it out"
            )
        if name in found:
            raise InvalidParameter(f"duplicated field {name} found")
        found.add(name)
    if not with_auto_key and schema.primary_field.auto_id and schema.primary_field.name in found:
        raise InvalidParameter(
            "more fieldData has pass in: can not assign primary field data when auto id enabled and "
            "allow_insert_auto_id is false "
            f"{schema.primary_field.name}: leave the key out, or set the property on the collection"
        )


def _unknown_field(schema: CollectionSchema, name: str) -> InvalidParameter:
    if name == DYNAMIC_FIELD:
        return InvalidParameter(
            f"without dynamic schema enabled, the field name cannot be set to {DYNAMIC_FIELD}"
        )
    return InvalidParameter(f"field {name} does not exist in the schema of collection {schema.name}")


def conform(
    schema: CollectionSchema,
    given: Callable[[FieldSchema], Given | None],
    rows: int,
    *,
    with_auto_key: bool,
    first_row: int = 0,
    refusal: Refusal = insert_refusal,
    zone: str = DEFAULT_TIMEZONE,
    only: Collection[str] | None = None,
) -> pa.RecordBatch:
    """Return a batch of ``rows`` rows of ``schema.arrow_schema``.

    An auto-id key is part of it only with ``with_auto_key``. ``zone``: the time zone of texts without an
    offset. ``only``: the fields that are part of it; None: all fields.

    ``given`` is called for each field in the schema's order. If it returns None, the field gets its default
    or null, the dynamic field empty objects. Raises the error that ``refusal`` makes from the first fault,
    and `InvalidParameter` for a missing field that is required.
    """
    fields = [
        field
        for field in schema.fields
        if (with_auto_key or not field.auto_id) and (only is None or field.name in only)
    ]
    columns = []
    for field in fields:
        found = given(field)
        if found is None:
            columns.append(absent_column(field, rows))
        else:
            columns.append(_column(field, found, first_row, refusal, zone))
    return pa.RecordBatch.from_arrays(
        columns, schema=pa.schema([schema.arrow_schema.field(field.name) for field in fields])
    )


def absent_column(field: FieldSchema, rows: int) -> pa.Array:
    """Return the values of rows for which a field was not sent. Raises `InvalidParameter` if it must be."""
    if field.is_dynamic:
        return pa.repeat(pa.scalar(EMPTY_OBJECT), rows)
    if field.is_function_output:
        # Empty, or zeros where values have a fixed width: they are computed later.
        if field.vector.has_dim:
            form = field.vector
            return form.to_column(np.zeros((rows, form.width(field.dim)), form.dtype))
        return pa.repeat(pa.scalar(b"", field.arrow_type), rows)
    if field.default_value is not None:
        return pa.repeat(_default(field), rows)
    if field.nullable:
        return pa.nulls(rows, field.arrow_type)
    raise InvalidParameter(f"fieldSchema({field.name}) has no corresponding fieldData pass in")


def check_nulls(field: FieldSchema, valid: Valid | None, refusal: Refusal = insert_refusal) -> None:
    """Raises the error that ``refusal`` makes from a null in a field that has neither nulls nor a default."""
    if valid is not None and not (field.nullable or field.default_value is not None or valid.all()):
        raise refusal(Fault(field, Problem.NULL, int(np.argmin(valid))))


def _column(field: FieldSchema, given: Given, first_row: int, refusal: Refusal, zone: str) -> pa.Array:
    check_nulls(field, given.valid, refusal)

    def fault(
        problem: Problem, at: int, value: object, position: int = 0, detail: str = ""
    ) -> InvalidParameter:
        row = at if given.valid is None else int(np.flatnonzero(given.valid)[at])
        return refusal(Fault(field, problem, row, value, position, detail))

    match field.kind.family:
        case Family.VECTOR if field.has_vector_lists:
            column = _vector_lists(field, given.values, fault)
        case Family.VECTOR:
            column = given.values
            if field.vector.has_dim:
                _check_vectors(field, given, fault)
            else:
                _check_sparse(column, fault)
        case Family.JSON:
            column = _documents(field, given, first_row, refusal)
        case Family.TIME:
            column = _moments(given.values, zone, fault)
        case Family.GEOMETRY:
            column = _geometries(given.values, fault)
        case Family.LIST:
            column = _arrays(field, given.values, fault)
        case _:
            column = _scalars(field, given.values, fault)
            if pa.types.is_floating(column.type):
                _check_finite(column, fault)
    return column if given.valid is None else _with_nulls(field, column, given.valid)


_MakeFault = Callable[..., InvalidParameter]


def _with_nulls(field: FieldSchema, column: pa.Array, valid: Valid) -> pa.Array:
    """Return the column with null, or the default value, in the rows that are not valid."""
    rows = spread(column, valid)
    if field.default_value is None or not rows.null_count:
        return rows
    return pc.fill_null(rows, _default(field))


def _scalars(field: FieldSchema, values: pa.Array, fault: _MakeFault) -> pa.Array:
    check = _texts if field.kind.family is Family.TEXT else _numbers
    return check(field, values, fault)


def _arrays(field: FieldSchema, values: pa.Array, fault: _MakeFault) -> pa.Array:
    """Check a ``list`` column without nulls: the lengths, then all elements as one column."""
    lengths = _checked_lengths(field, values, fault)
    ends = np.cumsum(lengths, dtype=np.int32)

    def element_fault(problem: Problem, at: int, value: object) -> InvalidParameter:
        row = int(np.searchsorted(ends, at, side="right"))
        return fault(problem, row, value, at - int(ends[row] - lengths[row]))

    elements = values.flatten()
    if elements.null_count:
        raise element_fault(Problem.NULL_ELEMENT, int(pc.index(elements.is_null(), True).as_py()), None)
    checked = _scalars(field.element, elements, element_fault)
    offsets = pa.array(np.concatenate((np.zeros(1, np.int32), ends)))
    return pa.ListArray.from_arrays(offsets, checked, type=field.arrow_type)


def _checked_lengths(field: FieldSchema, values: pa.Array, fault: _MakeFault) -> npt.NDArray[np.int32]:
    lengths: npt.NDArray[np.int32] = pc.list_value_length(values).to_numpy()
    if len(lengths) and lengths.max() > field.max_capacity:
        at = int(np.argmax(lengths > field.max_capacity))
        raise fault(Problem.CAPACITY, at, int(lengths[at]))
    return lengths


def _vector_lists(field: FieldSchema, values: pa.Array, fault: _MakeFault) -> pa.Array:
    """Check a column of `elanus.core.vector_lists` without nulls: the lengths, then all numbers."""
    _checked_lengths(field, values, fault)
    lists = VectorLists.from_column(field.vector, field.dim, values)
    stored = lists.vectors.reshape(-1)
    at = field.vector.first_not_finite(stored)
    if at is not None:
        vector, position = divmod(at, field.vector.width(field.dim))
        raise fault(Problem.NOT_FINITE, int(lists.row_of(vector)), float(stored[at]), position)
    return values


def _numbers(field: FieldSchema, values: pa.Array, fault: _MakeFault) -> pa.Array:
    """Cast numbers. Values changed by the cast do not fit; floats may be rounded, but not become infinite."""
    if values.type == field.arrow_type:
        return values
    numbers = values.cast(field.arrow_type, safe=False)
    if pa.types.is_floating(values.type):
        wrong = pc.and_(pc.is_finite(values), pc.invert(pc.is_finite(numbers)))
    else:
        wrong = pc.not_equal(numbers.cast(values.type, safe=False), values)
        if pa.types.is_unsigned_integer(values.type):  # a large one casts to negative and back
            wrong = pc.or_(wrong, pc.less(numbers, pa.scalar(0, numbers.type)))
        if pa.types.is_floating(numbers.type):  # the largest are rounded up to what has no way back
            bits = values.type.bit_width - pa.types.is_signed_integer(values.type)
            wrong = pc.or_(wrong, pc.greater_equal(numbers, pa.scalar(2.0**bits, numbers.type)))
    if pc.any(wrong).as_py():
        at = int(pc.index(wrong, True).as_py())
        raise fault(Problem.NUMBER, at, values[at].as_py())
    return numbers


def _check_finite(numbers: pa.Array, fault: _MakeFault) -> None:
    finite = pc.is_finite(numbers)
    if not pc.all(finite, min_count=0).as_py():
        at = int(pc.index(finite, False).as_py())
        raise fault(Problem.NOT_FINITE, at, numbers[at].as_py())


def _texts(field: FieldSchema, values: pa.Array, fault: _MakeFault) -> pa.Array:
    at = field.kind.too_long(field, values)
    if at is not None:
        raise fault(Problem.LENGTH, at, values[at].as_py())
    return values.cast(field.arrow_type)


def _moments(values: pa.Array, zone: str, fault: _MakeFault) -> pa.Array:
    """Return texts, Arrow timestamps (those without a zone are in UTC) or microseconds as microseconds."""
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        unit = values.type.unit if pa.types.is_timestamp(values.type) else "us"
        numbers = values.cast(pa.int64())
        if (row := first_beyond_calendar(numbers, unit)) is not None:
            number = numbers[row].as_py()
            why = f"{number} {unit} since 1970 are not in the years 1 to 9999"
            raise fault(Problem.MOMENT, row, number, 0, why)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
        return values.cast(pa.int64())
    try:
        return parse_moments(values, zone)
    except InvalidMoment as error:
        raise fault(Problem.MOMENT, error.row, values[error.row].as_py(), 0, str(error)) from None


def _geometries(values: pa.Array, fault: _MakeFault) -> pa.Array:
    """Return texts (WKT) or bytes (WKB) as WKB."""
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    try:
        return wkb_of_texts(values) if is_text else wkb_of_binaries(values)
    except InvalidGeometry as error:
        raise fault(Problem.GEOMETRY, error.row, None, 0, str(error)) from None


def _default(field: FieldSchema) -> pa.Scalar:
    if field.kind.family is Family.GEOMETRY:
        return wkb_of_texts(pa.array([field.default_value]))[0]
    return pa.scalar(field.default_value, field.arrow_type)


def _documents(field: FieldSchema, given: Given, first_row: int, refusal: Refusal) -> pa.Array:
    documents = given.values
    texts = documents.cast(pa.binary()).to_pylist() if isinstance(documents, pa.Array) else documents
    rows = None if given.valid is None else (first_row + np.flatnonzero(given.valid)).tolist()
    try:
        column = json_column(field.name, texts, objects_only=field.is_dynamic, first_row=first_row, rows=rows)
        if field.is_dynamic:
            check_dynamic_keys(column, first_row)
    except InvalidParameter as error:
        raise refusal(Fault(field, Problem.DOCUMENT, 0, detail=error.message)) from error
    return column


def _check_vectors(field: FieldSchema, given: Given, fault: _MakeFault) -> None:
    stored = field.vector.to_matrix(given.values).reshape(-1)
    at = field.vector.first_not_finite(stored)
    if at is not None:
        row, position = divmod(at, field.vector.width(field.dim))
        value = stored[at].item() if given.shown is None else given.shown[at].as_py()
        raise fault(Problem.NOT_FINITE, row, float(value), position)


def _check_sparse(column: pa.Array, fault: _MakeFault) -> None:
    found = sparse.first_fault(column)
    if found is not None:
        raise fault(Problem.SPARSE, found.row, None, detail=found.why)


def check_queries(field: FieldSchema, stored: npt.NDArray[np.generic]) -> None:
    """Check query vectors, given as stored values of shape (n · width,). Raises `InvalidParameter`."""
    at = field.vector.first_not_finite(stored)
    if at is not None:
        row = at // field.vector.width(field.dim)
        fault = Fault(field, Problem.NOT_FINITE, row, float(cast(float, stored[at])))
        raise insert_refusal(fault)
