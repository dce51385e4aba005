"""Decides whether rows whose values are within known bounds can match at all.

The answer errs on one side only: it is "may match" in doubt. A leaf that is unknown for null is not true for
it, so bounds need not say whether there are nulls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.types import Family
from elanus.expr.explain import Explainer
from elanus.expr.tree import (
    Always,
    And,
    ArrayContains,
    ArrayEqual,
    Column,
    ColumnTest,
    Comparator,
    Compare,
    Constant,
    ElementMatch,
    IsNull,
    JsonContains,
    JsonMember,
    Like,
    Member,
    Operand,
    Or,
    Predicate,
    Regex,
    Sample,
    TextMatch,
    Visitor,
    columns_in,
)

Bounds = tuple[Any, Any]
"""The minimum and maximum of the values, both inclusive."""


class Pruner(Visitor[bool]):
    """Whether each node can be true for some row."""

    def __init__(self, stats: Mapping[str, tuple[object, object]]) -> None:
        """``stats``: bounds by field name; fields without bounds, and bounds of None, are left out."""
        self._stats = stats

    def always(self, node: Always) -> bool:
        return node.value

    def conjunction(self, node: And) -> bool:
        return all(map(self.visit, node.children))

    def disjunction(self, node: Or) -> bool:
        return any(map(self.visit, node.children))

    def compare(self, node: Compare) -> bool:
        if node.comparator is Comparator.NE and _may_be_nan(node.left):
            return True
        left, right = self._bounds(node.left), self._bounds(node.right)
        return left is None or right is None or _may_hold(left, node.comparator, right)

    def member(self, node: Member) -> bool:
        bounds = self._bounds(node.column)
        if len(node.values) == 0:
            return node.negated
        if bounds is None:
            return True
        low, high = (pa.scalar(bound, node.values.type) for bound in bounds)
        if node.negated and _may_be_nan(node.column):
            return True
        if node.negated:
            return bounds[0] != bounds[1] or not pc.is_in(low, value_set=node.values).as_py()
        within = pc.and_(pc.greater_equal(node.values, low), pc.less_equal(node.values, high))
        return bool(pc.any(within).as_py())

    def json_member(self, node: JsonMember) -> bool:
        return True

    def json_contains(self, node: JsonContains) -> bool:
        return True

    def array_contains(self, node: ArrayContains) -> bool:
        return True

    def array_equal(self, node: ArrayEqual) -> bool:
        return True

    def like(self, node: Like) -> bool:
        bounds, prefix = self._bounds(node.column), node.pattern.prefix
        if bounds is None or prefix is None:
            return True
        low, high = bounds
        if node.negated:
            return not (low.startswith(prefix) and high.startswith(prefix))
        return bool(high >= prefix and (low <= prefix or low.startswith(prefix)))

    def regex(self, node: Regex) -> bool:
        return True

    def sample(self, node: Sample) -> bool:
        return True

    def text_match(self, node: TextMatch) -> bool:
        return True

    def is_null(self, node: IsNull) -> bool:
        return True

    def column_test(self, node: ColumnTest) -> bool:
        return True

    def element_match(self, node: ElementMatch) -> bool:
        return True

    def _bounds(self, operand: Operand) -> Bounds | None:
        if isinstance(operand, Constant):
            return operand.value, operand.value
        if not isinstance(operand, Column) or operand.is_json or operand.path:
            return None
        low, high = self._stats.get(operand.field.name, (None, None))
        if low is None or high is None or _is_nan(low) or _is_nan(high):
            return None
        return low, high


def pruned_by(predicate: Predicate, stats: Mapping[str, tuple[object, object]]) -> str:
    """Say which condition no row within these bounds can match, and the bounds; "" if rows may match."""
    pruner = Pruner(stats)
    if pruner.visit(predicate):
        return ""
    children = predicate.children if isinstance(predicate, And) else (predicate,)
    guilty = next((child for child in children if not pruner.visit(child)), predicate)
    names = dict.fromkeys(column.field.name for column in columns_in(guilty))
    bounds = [f"{name} is {_shown(stats[name])}" for name in names if name in stats]
    return f"{Explainer().visit(guilty)}, and here {' and '.join(bounds)}" if bounds else "no row can match"


def _shown(bounds: tuple[object, object]) -> str:
    low, high = bounds
    return f"{low!r} to {high!r}"


def _may_be_nan(operand: Operand) -> bool:
    """Whether there may be NaN among the values, which bounds do not show."""
    return isinstance(operand, Column) and operand.kind.family is Family.FLOATING


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _may_hold(left: Bounds, comparator: Comparator, right: Bounds) -> bool:
    """Whether it can hold within the bounds: exactly or, if some of them are floating, between doubles."""
    if _holds(left, comparator, right):
        return True
    if not any(isinstance(bound, float) for bound in (*left, *right)):
        return False
    as_doubles = [(float(low), float(high)) for low, high in (left, right)]
    return _holds(as_doubles[0], comparator, as_doubles[1])


def _holds(left: Bounds, comparator: Comparator, right: Bounds) -> bool:
    match comparator:
        case Comparator.EQ:
            return bool(left[0] <= right[1] and right[0] <= left[1])
        case Comparator.NE:
            return not left[0] == left[1] == right[0] == right[1]
        case Comparator.LT:
            return bool(left[0] < right[1])
        case Comparator.LE:
            return bool(left[0] <= right[1])
        case Comparator.GT:
            return bool(left[1] > right[0])
        case Comparator.GE:
            return bool(left[1] >= right[0])
