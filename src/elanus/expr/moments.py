"""Moments in filters: ``tsz > ISO '2025-01-01T00:00:00Z'``, ``tsz + INTERVAL 'P1D' <= ISO '...'``.

An interval of days and less is moved to the other side of the comparison: then indexes and bounds serve it.
One with months is added to every row: how long a month is depends on the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.geometry import Boxes
from elanus.core.lookup import Between
from elanus.core.moments import Interval, is_moment, moment_literal, parse_interval, parse_moment
from elanus.core.schema import DataType
from elanus.expr import kernels, syntax
from elanus.expr.source import Source
from elanus.expr.tree import Column, ColumnTest, Comparator, Compare, Constant, Moment, Predicate

_EXAMPLE = "write tsz + INTERVAL 'P1D' > ISO '2025-01-01T00:00:00Z'"


@dataclass(frozen=True, slots=True)
class Shifted:
    """A field of moments plus an interval. It can be compared with a moment, and nothing else."""

    column: Column
    interval: Interval

    @property
    def data_type(self) -> DataType:
        return DataType.TIMESTAMPTZ


def moment_of(source: Source, node: syntax.Iso) -> Moment:
    """Return the moment of a literal. Raises `InvalidFilter`."""
    try:
        return Moment(parse_moment(node.text))
    except InvalidParameter as error:
        remedy = "write it like ISO '2025-01-01T00:00:00Z'"
        raise source.error(error.message, node.start, remedy) from None


def shifted(source: Source, node: syntax.Arithmetic, bound: Any) -> Shifted | Moment:
    """Bind ``bound + INTERVAL '...'``; ``bound``: what the left side was bound to. Raises `InvalidFilter`."""
    assert isinstance(node.right, syntax.Interval)
    try:
        interval = parse_interval(node.right.text)
        if node.operator not in "+-" or bound.data_type is not DataType.TIMESTAMPTZ:
            what = f"an interval cannot be used here: {source.of(node)}"
            raise source.error(what, node.start, "intervals are added to Timestamptz fields, or subtracted")
        if node.operator == "-":
            interval = -interval
        if isinstance(bound, Shifted):
            return Shifted(bound.column, bound.interval + interval)
    except ValueError as error:
        remedy = "durations look like P1Y2M3DT4H5M6S"
        raise source.error(str(error), node.right.start, remedy) from None
    if isinstance(bound, Column):
        return Shifted(bound, interval)
    if not is_moment(bound.value):
        what = f"timestamp out of range: {source.of(node.left)}"
        raise source.error(what, node.left.start, "moments lie in the years 1 to 9999")
    (moment,) = interval.after(np.array([bound.value], dtype=np.int64)).tolist()
    return Moment(moment)


def bind_shifted(
    source: Source, node: syntax.Node, comparator: Comparator, left: Any, right: Any
) -> Predicate:
    """Bind a comparison one of whose sides is `Shifted`. Raises `InvalidFilter`."""
    if isinstance(right, Shifted):
        left, right, comparator = right, left, comparator.mirrored
    moment = getattr(right, "value", None)
    if not isinstance(moment, Moment):
        what = f"a moment and an interval can only be compared with a moment: {source.of(node)}"
        raise source.error(what, node.start, _EXAMPLE)
    if not left.interval.months:
        return Compare(comparator, left.column, Constant(Moment(moment - left.interval.micros)))
    return ColumnTest(left.column, LaterBy(left.interval, comparator, moment), negated=False)


@dataclass(frozen=True, slots=True)
class LaterBy:
    """Whether a moment and an interval compare to another moment."""

    interval: Interval
    comparator: Comparator
    moment: Moment

    cost = 40

    def matches(self, column: pa.Array, boxes: Boxes | None = None) -> pa.Array:
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        later = self.interval.after(values)
        moved = pa.array(later, mask=column.is_null().to_numpy(zero_copy_only=False))
        return kernels.compare(moved, self.comparator, pa.scalar(int(self.moment), pa.int64()))

    def lookup(self, *, negated: bool) -> Between | None:
        """The moments from which the interval may lead there: it is longest and shortest somewhere."""
        comparator = self.comparator.opposite if negated else self.comparator
        shortest, longest = self.interval.lengths
        earliest, latest = int(self.moment) - longest, int(self.moment) - shortest
        match comparator:
            case Comparator.EQ:
                return Between(earliest, latest)
            case Comparator.GT | Comparator.GE:
                return Between(earliest, None)
            case Comparator.LT | Comparator.LE:
                return Between(None, latest)
        return None

    def text(self, operand: str) -> str:
        months, micros = self.interval.months, self.interval.micros
        parts = [(months, Interval(abs(months), 0)), (micros, Interval(0, abs(micros)))]
        added = "".join(f" {'+' if size > 0 else '-'} INTERVAL '{part}'" for size, part in parts if size)
        return f"{operand}{added} {self.comparator} {moment_literal(self.moment)}"
