"""Arithmetic on numbers of mixed type.

Whether ``7 / 2`` is 3 or 3.5 depends on whether the operands are integers, and in JSON that may change from
row to row. So numbers are computed in two parallel columns, one of integer and one of floating results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.expr import kernels
from elanus.expr.tree import Comparator

Values = Any
"""An Arrow array, chunked array or, for a constant, scalar."""

_NO_DOUBLE = pa.scalar(None, pa.float64())


@dataclass(frozen=True, slots=True)
class Numbers:
    """One number per row, or null: the value in ``integers`` if there is one, else the one in ``floats``.

    None stands for a column of nulls.
    """

    integers: Values | None
    floats: Values | None

    @property
    def doubles(self) -> Values | None:
        """All numbers in one column; integers beyond 2**53 lose precision."""
        floats = None if self.floats is None else pc.cast(self.floats, pa.float64())
        if self.integers is None:
            return floats
        integers = pc.cast(self.integers, pa.float64(), safe=False)
        return integers if floats is None else pc.coalesce(integers, floats)


def constant(number: float) -> Numbers:
    if isinstance(number, int):
        return Numbers(pa.scalar(number, pa.int64()), None)
    return Numbers(None, pa.scalar(number, pa.float64()))


def compare_to_constant(numbers: Numbers, comparator: Comparator, number: float, rows: int) -> pa.Array:
    """Compare each number with a constant. shape (rows,)"""
    found = []
    if numbers.integers is not None:
        found.append(kernels.compare_integers(numbers.integers, comparator, number))
    if numbers.floats is not None:
        found.append(kernels.compare_floats(numbers.floats, comparator, number))
    if not found:
        return kernels.unknown(rows)
    return found[0] if len(found) == 1 else pc.coalesce(*found)


def compare(left: Numbers, comparator: Comparator, right: Numbers, rows: int) -> pa.Array:
    """Compare numbers row by row. shape (rows,)"""
    if (
        left.floats is None
        and right.floats is None
        and left.integers is not None
        and right.integers is not None
    ):
        return kernels.compare(left.integers, comparator, right.integers)
    one, other = left.doubles, right.doubles
    if one is None or other is None:
        return kernels.unknown(rows)
    return kernels.compare(one, comparator, other)


def calculate(operator: str, left: Numbers, right: Numbers) -> Numbers:
    """Compute the result row by row: an integer if both sides are integers.

    Sums, products and shifts wrap at 64 bits. A zero divisor, a shift by fewer than 0 or more than 63 bits,
    or a result that is not a number, gives null.
    """
    integers = floats = None
    if left.integers is not None and right.integers is not None:
        integers = _WHOLE[operator](*map(_long, (left.integers, right.integers)))
    in_floats = _FLOATING.get(operator)
    if in_floats is not None and (left.floats is not None or right.floats is not None):
        one, other = left.doubles, right.doubles
        if one is not None and other is not None:
            result = in_floats(one, other)
            floats = pc.if_else(pc.is_nan(result), _NO_DOUBLE, result)
    return Numbers(integers, floats)


def _long(values: Values) -> Values:
    return pc.cast(values, pa.int64())


def _shifted(shift: Callable[[Values, Values], Values]) -> Callable[[Values, Values], Values]:
    def shifted(values: Values, bits: Values) -> Values:
        allowed = pc.and_(pc.greater_equal(bits, 0), pc.less(bits, 64))
        bits = pc.if_else(allowed, bits, pa.scalar(None, pa.int64()))
        half = pc.shift_right(bits, 1)  # Arrow does not shift by 63 bits at once
        return shift(shift(values, half), pc.subtract(bits, half))

    return shifted


def _nonzero(divisor: Values) -> Values:
    return pc.if_else(pc.equal(divisor, 0), pa.scalar(None, divisor.type), divisor)


def _quotient(dividend: Values, divisor: Values) -> Values:
    """Of integers. Arrow has no quotient of the smallest integer and -1: it wraps, as products do."""
    if isinstance(divisor, pa.Scalar) and divisor.as_py() != -1:
        return pc.divide(dividend, _nonzero(divisor))
    quotient = pc.divide(dividend, _nonzero(divisor))
    return pc.if_else(pc.equal(divisor, -1), pc.negate(dividend), quotient)


def _remainder(dividend: Values, divisor: Values) -> Values:
    quotient = _quotient(dividend, divisor)
    return pc.subtract(dividend, pc.multiply(quotient, divisor))


def _floating_remainder(dividend: Values, divisor: Values) -> Values:
    with np.errstate(invalid="ignore"):  # nulls pass through as NaN, and x % 0 is NaN
        return pa.array(np.fmod(_numpy(dividend), _numpy(divisor)), from_pandas=True)


def _numpy(values: Values) -> Any:
    if isinstance(values, pa.Scalar):
        return np.float64(values.as_py())
    return kernels.one_array(values).to_numpy(zero_copy_only=False)


_WHOLE: dict[str, Callable[[Values, Values], Values]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": _quotient,
    "%": _remainder,
    "&": pc.bit_wise_and,
    "|": pc.bit_wise_or,
    "^": pc.bit_wise_xor,
    "<<": _shifted(pc.shift_left),
    ">>": _shifted(pc.shift_right),
}
_FLOATING: dict[str, Callable[[Values, Values], Values]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": lambda dividend, divisor: pc.divide(dividend, _nonzero(divisor)),
    "%": _floating_remainder,
}
