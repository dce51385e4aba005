"""Binds conditions on whole arrays: comparisons with a list, and what an array contains.

The type rules are the reference's: literals are of the elements' family, and numbers are equal by value.
Arrays have no order, and an array is only compared with a literal list, not with another field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from elanus.core.errors import InvalidFilter
from elanus.core.json_keys import double_of
from elanus.core.types import Family, family_of, type_name
from elanus.expr import syntax
from elanus.expr.floats import lookup_set
from elanus.expr.operands import BoundOperand, Value, shown
from elanus.expr.source import Source
from elanus.expr.tree import Always, ArrayContains, ArrayEqual, Column, Comparator, Predicate, type_of_value

_ORDERLESS = "arrays know '==' and '!=' with a list; compare an element: {name}[0] > 1"


def no_direct_comparison(source: Source, node: syntax.Node, column: Column) -> InvalidFilter:
    """The error for a whole array where only one value has a meaning."""
    what = "can not comparisons array fields directly"
    return source.error(what, node.start, _ORDERLESS.format(name=column.field.name))


def bind_array_comparison(
    source: Source, node: syntax.Node, comparator: Comparator, column: Column, other: BoundOperand
) -> Predicate:
    """Bind a comparison of a whole array with anything. Raises `InvalidFilter`."""
    if comparator not in (Comparator.EQ, Comparator.NE) or not isinstance(other, Value):
        raise no_direct_comparison(source, node, column)
    negated = comparator is Comparator.NE
    if isinstance(other.value, list):
        wrong = next((item for item in other.value if not _fits(column, item)), None)
        if wrong is None:
            return ArrayEqual(column, other.value, _row(column, other.value), negated)
        names = f"{_array_name(column)} and Array[{type_name(type_of_value(wrong))}]"
    elif _fits(column, other.value):
        what = f"cannot cast value to Array, value: {shown(other.value)}"
        raise source.error(what, node.start, f"compare with a list: {column.field.name} == [..]")
    else:
        names = f"{_array_name(column)} and {type_name(other.data_type)}"
    what = f"comparisons between {names} are not supported"
    raise source.error(what, node.start, _remedy(column))


def bind_array_contains(
    source: Source, node: syntax.Call, column: Column, verb: str, sought: Value
) -> Predicate:
    """Bind ``contains``, ``contains_all`` or ``contains_any``. Raises `InvalidFilter`.

    ``sought``: the element, or for the latter two the list of elements.
    """
    items = [sought.value] if verb == "contains" else sought.value
    for item in items:
        if not (_fits_element if verb == "contains" else _fits)(column, item):
            element, given = type_name(column.field.element_type), type_name(type_of_value(item))
            what = f"{verb} operation can't compare between array element type: {element} and {given}"
            if verb == "contains":
                what = f"cannot cast value to {element}, value: {shown(item)}: {what}"
            raise source.error(what, node.arguments[1].start, _remedy(column))
    need_all = verb == "contains_all"
    if not items and not column.field.nullable:
        return Always(need_all)
    held = [value for item in items if (value := _stored(column, item)) is not None]
    values = lookup_set(pa.array(held, column.field.element.arrow_type))
    return ArrayContains(column, items, values, len(held) < len(items), need_all, negated=False)


def _fits_element(column: Column, literal: Any) -> bool:
    """Whether a single literal may be sought: an integer is never written as 1.0, except in a list."""
    is_whole = family_of(column.field.element_type) is Family.INTEGER
    return _fits(column, literal) and not (is_whole and isinstance(literal, float))


def _fits(column: Column, literal: Any) -> bool:
    one, other = family_of(column.field.element_type), family_of(type_of_value(literal))
    return one is other or (one.is_number and other.is_number)


def _array_name(column: Column) -> str:
    return f"Array[{type_name(column.field.element_type)}]"


def _remedy(column: Column) -> str:
    return f"the elements of {column.field.name} have type {type_name(column.field.element_type)}"


def _row(column: Column, items: Sequence[Any]) -> pa.Array | None:
    """The literals in the elements' Arrow type; None if it cannot hold one of them."""
    stored = [_stored(column, item) for item in items]
    return None if None in stored else pa.array(stored, column.field.element.arrow_type)


def _stored(column: Column, literal: Any) -> Any:
    """The literal as an element; None if no element can be equal to it."""
    kind = column.field.element.kind
    if kind.family is Family.FLOATING:
        with np.errstate(over="ignore"):
            return float(column.field.element.arrow_type.to_pandas_dtype()(double_of(literal)))
    if kind.integer_range is None:
        return literal
    low, high = kind.integer_range
    return int(literal) if low <= literal <= high and literal == int(literal) else None
