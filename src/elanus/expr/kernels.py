"""Arrow's comparisons, adapted to the types of the filter language.

Every function returns an Arrow boolean array of the column's length: true, false, or null for unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.expr.jsonvalues import UNKNOWN
from elanus.expr.tree import Comparator

_COMPARE: dict[Comparator, Callable[[Any, Any], Any]] = {
    Comparator.EQ: pc.equal,
    Comparator.NE: pc.not_equal,
    Comparator.LT: pc.less,
    Comparator.LE: pc.less_equal,
    Comparator.GT: pc.greater,
    Comparator.GE: pc.greater_equal,
}


def unknown(rows: int) -> pa.Array:
    return pa.nulls(rows, pa.bool_())


def known(column: pa.Array | pa.ChunkedArray, outcome: bool) -> pa.Array:
    """``outcome`` wherever the column has a value."""
    return one_array(pc.if_else(pc.is_valid(column), outcome, UNKNOWN))


def one_array(result: pa.Array | pa.ChunkedArray) -> pa.Array:
    return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result


def as_mask(answer: pa.Array) -> npt.NDArray[np.bool_]:
    """Return Arrow booleans as a numpy mask (n,), null as false.

    numpy unpacks them in a tenth of Arrow's time.
    """
    return np.unpackbits(as_bits(answer), count=len(answer), bitorder="little").view(np.bool_)


def as_bits(answer: pa.Array) -> npt.NDArray[np.uint8]:
    """Return Arrow booleans as packed bits, null as false: row i is bit ``i % 8`` of byte ``i // 8``."""
    answer = pc.fill_null(answer, False) if answer.null_count else answer
    rows, first = len(answer), answer.offset
    bits = np.frombuffer(answer.buffers()[1], np.uint8) if rows else np.empty(0, np.uint8)
    if first % 8:
        unpacked = np.unpackbits(bits, count=first + rows, bitorder="little")[first:]
        return np.packbits(unpacked, bitorder="little")
    bits = bits[first // 8 : (first + rows + 7) // 8]
    if rows % 8 and bits[-1] >> rows % 8:  # Arrow leaves the bits beyond the last row as they come
        bits = bits.copy()
        bits[-1] &= (1 << rows % 8) - 1
    return bits


def from_bits(bits: npt.NDArray[np.uint8], rows: int) -> pa.Array:
    """Return packed bits as Arrow booleans, without a copy: row i is bit ``i % 8`` of byte ``i // 8``."""
    return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bits)])


def on_values(column: pa.Array | pa.ChunkedArray, test: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Test each value. On a dictionary-encoded column each distinct value is tested once."""
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array(
            [on_values(chunk, test) for chunk in column.chunks], pa.bool_()
        ).combine_chunks()
    if not pa.types.is_dictionary(column.type):
        return test(column)
    outcomes = test(column.dictionary)
    if column.indices.null_count or outcomes.null_count:
        return outcomes.take(column.indices)
    # numpy's gather takes half the time of Arrow's, which handles nulls.
    return pa.array(outcomes.to_numpy(zero_copy_only=False)[column.indices.to_numpy()])


def decoded(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The column without dictionary encoding."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def compare(left: Any, comparator: Comparator, right: Any) -> pa.Array:
    """Compare two columns of comparable Arrow types, dictionary-encoded or not, or a column and a scalar."""
    return one_array(_COMPARE[comparator](left, right))


def compare_to_text(column: pa.Array | pa.ChunkedArray, comparator: Comparator, text: str) -> pa.Array:
    scalar = pa.scalar(text, pa.string())
    return on_values(column, lambda values: compare(values, comparator, scalar))


def compare_integers(column: pa.Array | pa.ChunkedArray, comparator: Comparator, number: float) -> pa.Array:
    """Compare integers with any number, exactly: ``a > 1.5`` is ``a >= 2``, and ``a == 1.5`` never holds."""
    if isinstance(number, float):
        if math.isnan(number):
            return known(column, comparator is Comparator.NE)
        if math.isinf(number):
            return known(column, _beyond(comparator, above=number > 0))
        if number != int(number):
            if comparator in (Comparator.EQ, Comparator.NE):
                return known(column, comparator is Comparator.NE)
            rounds_up = comparator in (Comparator.LT, Comparator.GE)
            number = math.ceil(number) if rounds_up else math.floor(number)
    number = int(number)
    bits = column.type.bit_width - 1
    if not -(1 << bits) <= number < 1 << bits:
        return known(column, _beyond(comparator, above=number > 0))
    return compare(column, comparator, pa.scalar(number, column.type))


def _beyond(comparator: Comparator, above: bool) -> bool:
    """The outcome of comparing any value with a bound above (or below) all values of the type."""
    smaller = (Comparator.LT, Comparator.LE, Comparator.NE)
    larger = (Comparator.GT, Comparator.GE, Comparator.NE)
    return comparator in (smaller if above else larger)


def compare_floats(column: pa.Array | pa.ChunkedArray, comparator: Comparator, number: float) -> pa.Array:
    """Compare floating numbers with a number, which is rounded to the column's precision."""
    with np.errstate(over="ignore"):
        scalar = pa.scalar(column.type.to_pandas_dtype()(number), column.type)
    return compare(column, comparator, scalar)


def is_nan(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Which floating numbers are NaN."""
    return one_array(pc.is_nan(column))


def is_member(column: pa.Array | pa.ChunkedArray, members: pa.Array) -> pa.Array:
    """Which values are members. ``members`` have the column's value type, and are a `lookup_set`."""

    def test(values: pa.Array) -> pa.Array:
        found = pc.is_in(values, value_set=members)
        return pc.if_else(pc.is_valid(values), found, UNKNOWN) if values.null_count else found

    return on_values(column, test)
