"""Checks of what a search job is asked, before it reaches an index: query vectors and ``k``.

The driver refuses a wrong type, the task that has the row a wrong value. An error names the column, the row,
the value and the remedy.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidDimension, InvalidParameter, InvalidTopK
from elanus.core.limits import TOP_K_MAX
from elanus.core.schema import FieldSchema
from elanus.core.types import Matrix
from elanus.core.vectors import Space

VECTOR = "vector"


def check_k(k: object, most: int = TOP_K_MAX) -> None:
    """Raise `InvalidTopK` unless ``k`` is a whole number from 1 to ``most``."""
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= most:
        shown = repr(k) if isinstance(k, str) else k
        raise InvalidTopK(f"k is {shown}: give a whole number from 1 to {most}")


def check_query_type(given: pa.DataType, field: FieldSchema, name: str = VECTOR) -> None:
    """Raise `InvalidParameter` unless columns of this type hold query vectors of the field."""
    if _is_bytes(given):
        return
    if _is_list(given) and (
        pa.types.is_integer(given.value_type)
        or (
            field.vector.space is not Space.BITS
            and (pa.types.is_floating(given.value_type) or pa.types.is_decimal(given.value_type))
        )
    ):
        return
    wanted = "arrays of whole numbers" if field.vector.space is Space.BITS else "arrays of numbers"
    raise InvalidParameter(
        f"column {name} has the type {given}: query vectors of field {field.name} are {wanted}, or the bytes "
        "of the vectors"
    )


def query_matrix(
    column: pa.Array, field: FieldSchema, name: str = VECTOR, ids: pa.Array | None = None
) -> Matrix:
    """Return query vectors as the matrix that indexes take: lists of numbers, or the bytes of the vectors.

    ``name``: of the column, ``ids``: of the queries, both for errors. Raises `InvalidParameter` for a type
    or a value that no vector has, and `InvalidDimension` for a vector of another length.
    """
    check_query_type(column.type, field, name)
    asked = _Asked(name, ids)
    if column.null_count:
        at = asked.at(_first(column.is_null()))
        raise InvalidParameter(f"{at} is null: leave such rows out, by where('{name} is not null')")
    read = _of_bytes if _is_bytes(column.type) else _of_lists
    return read(column, field, asked)


class _Asked:
    """Says in an error which query it is about."""

    def __init__(self, name: str, ids: pa.Array | None) -> None:
        self._name = name
        self._ids = ids

    def at(self, row: int) -> str:
        return f"{self._name}{'' if self._ids is None else f' of query {self._ids[row].as_py()!r}'}"


def _of_bytes(column: pa.Array, field: FieldSchema, asked: _Asked) -> Matrix:
    form, width = field.vector, field.vector.width(field.dim)
    _check_lengths(pc.binary_length(column), form.row_bytes(field.dim), "bytes", field, asked)
    stored = np.frombuffer(b"".join(column.to_pylist()), dtype=form.dtype)
    at = form.first_not_finite(stored)
    if at is not None:
        raise _not_finite(float(stored[at]), at, width, asked)
    return stored.reshape(len(column), width)


def _of_lists(column: pa.Array, field: FieldSchema, asked: _Asked) -> Matrix:
    form, width = field.vector, field.vector.width(field.dim)
    _check_lengths(pc.list_value_length(column), width, "values", field, asked)
    values = column.flatten()
    if values.null_count:
        row, place = divmod(_first(values.is_null()), width)
        raise InvalidParameter(f"{asked.at(row)} has a null at position {place}: give all {width} values")
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    numbers = values.to_numpy(zero_copy_only=False)
    if form.space is Space.BITS:
        wrong = (numbers < 0) | (numbers > np.iinfo(np.uint8).max)
        if wrong.any():
            row, place = divmod(int(np.argmax(wrong)), width)
            value = numbers[row * width + place]
            raise InvalidParameter(
                f"{asked.at(row)} has {value} at position {place}: a byte is from 0 to 255, and holds 8 bits"
            )
        packed: Matrix = numbers.astype(np.uint8, copy=False)
        return packed.reshape(len(column), width)
    with np.errstate(over="ignore"):
        single: Matrix = numbers.astype(np.float32, copy=False)
    finite = np.isfinite(single)
    if not finite.all():
        at = int(np.argmin(finite))
        raise _not_finite(float(numbers[at]), at, width, asked)
    return single.reshape(len(column), width)


def _check_lengths(lengths: pa.Array, expected: int, unit: str, field: FieldSchema, asked: _Asked) -> None:
    wrong = pc.not_equal(lengths, expected)
    if pc.any(wrong).as_py():
        row = _first(wrong)
        raise InvalidDimension(
            f"{asked.at(row)} has {lengths[row]} {unit}: a vector of field {field.name}, of {field.dim} "
            f"dimensions, has {expected}"
        )


def _not_finite(value: float, at: int, width: int, asked: _Asked) -> InvalidParameter:
    row, place = divmod(at, width)
    return InvalidParameter(
        f"{asked.at(row)} has {value!r} at position {place}, which is no finite number of single "
        "precision: leave the row out, or correct the value"
    )


def _first(mask: pa.Array) -> int:
    return int(pc.index(mask, True).as_py())


def _is_bytes(given: pa.DataType) -> bool:
    return bool(pa.types.is_binary(given) or pa.types.is_large_binary(given))


def _is_list(given: pa.DataType) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(given) for is_kind in kinds)
