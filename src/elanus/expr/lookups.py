"""Translates leaves of the bound tree to lookups that a scalar index answers (`elanus.core.lookup`)."""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa

from elanus.core.lookup import Between, Lookup, OneOf, StartsWith
from elanus.core.types import Family
from elanus.expr.tree import Column, Comparator, Compare, Constant, Like, Member

_BOUNDED_BELOW = (Comparator.GT, Comparator.GE)
_STRICT = (Comparator.LT, Comparator.GT)


def lookup_of(leaf: Compare | Member | Like) -> Lookup | None:
    """The lookup for a leaf; for a negated leaf, the one to invert (``!=`` gives the lookup of ``==``).

    None if no lookup is equivalent.
    """
    match leaf:
        case Compare():
            return _compared(leaf)
        case Member():
            return OneOf(leaf.values)
        case Like():
            return None if leaf.pattern.prefix is None else StartsWith(leaf.pattern.prefix)
        case _:
            assert_never(leaf)


def _compared(node: Compare) -> Lookup | None:
    if not isinstance(node.left, Column) or not isinstance(node.right, Constant):
        return None
    value = node.right.value
    if node.comparator in (Comparator.EQ, Comparator.NE):
        return _equal(node.left, value)
    included = node.comparator not in _STRICT
    if node.comparator in _BOUNDED_BELOW:
        return Between(value, None, low_included=included)
    return Between(None, value, high_included=included)


def _equal(column: Column, value: bool | int | float | str) -> OneOf | None:
    """None for a number that the column's type cannot hold: the comparison itself handles that."""
    if column.kind.family is Family.INTEGER:
        low, high = column.kind.integer_range or (0, -1)
        if not isinstance(value, int) or not low <= value <= high:
            return None
    return OneOf(pa.array([value], column.field.arrow_type))
