"""Translates leaves of the bound tree to lookups that a scalar index answers (`elanus.core.lookup`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from elanus.core.lookup import Between, Holds, HoldsSuch, Inside, Lookup, Matching, OneOf, StartsWith
from elanus.core.schema import Scalar
from elanus.core.types import DataType, Family
from elanus.expr.jsonvalues import Path
from elanus.expr.like import LikePattern
from elanus.expr.long_list import array_from, types_in
from elanus.expr.tree import (
    And,
    ArrayContains,
    ArrayEqual,
    Column,
    ColumnTest,
    Comparator,
    Compare,
    Constant,
    ElementMatch,
    JsonContains,
    JsonMember,
    Like,
    Member,
    Predicate,
    element_name,
)

_BOUNDED_BELOW = (Comparator.GT, Comparator.GE)
_STRICT = (Comparator.LT, Comparator.GT)
_WILDCARD = re.compile(r"(?:\\.|[^\\%_])+")


@dataclass(frozen=True, slots=True, eq=False)
class LeafLookup:
    """A lookup in the index of a leaf's column.

    ``name`` and ``path``: the field, and the place in its JSON documents (empty for other fields).
    ``is_exact``: whether the rows found are those of the leaf; otherwise the leaf holds for some of them.
    ``negated``: the leaf holds for the other rows with a value.
    """

    name: str
    path: Path
    lookup: Lookup
    is_exact: bool = True
    negated: bool = False
    is_json: bool = False


def lookup_of(leaf: Predicate) -> LeafLookup | None:
    """The lookup for a leaf; None if an index cannot help."""
    match leaf:
        case Compare(left=Column() as column, right=Constant(value=value)):
            return _compared(column, leaf.comparator, value)
        case Member(negated=False) if leaf.column.is_element:
            return _with_element(leaf.column, _any_of(leaf.values))
        case Member() if not leaf.column.path and not _has_special(leaf.values):
            return LeafLookup(leaf.column.field.name, (), OneOf(leaf.values), negated=leaf.negated)
        case JsonMember() if not leaf.negated:
            values = _of_one_type(leaf.values.items)
            return None if values is None else _in_json(leaf.column, OneOf(values))
        case Like():
            return _like(leaf)
        case ArrayContains() if not (leaf.need_all and leaf.has_impossible):
            return _holding(leaf.column, leaf.values, leaf.need_all, leaf.negated)
        case ArrayEqual() if leaf.values is not None and not leaf.negated:
            found = _holding(leaf.column, leaf.values.unique(), need_all=True, negated=False)
            return None if found is None else LeafLookup(found.name, (), found.lookup, is_exact=False)
        case JsonContains() if not leaf.negated:
            values = _of_one_type(leaf.values.items)
            return None if values is None else _in_json(leaf.column, Holds(values, leaf.need_all))
        case ElementMatch() if not leaf.negated and leaf.least is not None and leaf.least > 0:
            return _having_element(leaf)
        case ColumnTest():
            lookup = leaf.test.lookup(negated=leaf.negated)
            return None if lookup is None else LeafLookup(leaf.column.field.name, (), lookup, is_exact=False)
    return None


def windows(conditions: Sequence[Predicate]) -> Iterator[tuple[tuple[Predicate, ...], LeafLookup]]:
    """Yield conditions that together bound one value, as ``a > 1 and a < 5`` do, and one lookup for them."""
    compared: dict[tuple[object, ...], list[Compare]] = {}
    for condition in conditions:
        match condition:
            case Compare(left=Column() as column, right=Constant(value=value)) if value == value:  # no NaN
                key = (column.field.name, column.path, isinstance(value, str))
                compared.setdefault(key, []).append(condition)
    for of_one_value in compared.values():
        found = list(_bounding(of_one_value)) if len(of_one_value) > 1 else []
        if len(found) > 1:
            (_, asked, both), *others = found
            for _, _, bounds in others:
                both = _both(both, bounds)
            lookup = HoldsSuch(both) if isinstance(asked.lookup, HoldsSuch) else both
            yield tuple(condition for condition, _, _ in found), replace(asked, lookup=lookup)


def _bounding(conditions: Sequence[Compare]) -> Iterator[tuple[Predicate, LeafLookup, Between]]:
    for condition in conditions:
        asked = lookup_of(condition)
        bounds = None if asked is None or asked.negated else _bounds_of(asked.lookup)
        if asked is not None and bounds is not None:
            yield condition, asked, bounds


def _bounds_of(lookup: Lookup) -> Between | None:
    inner = lookup.lookup if isinstance(lookup, HoldsSuch) else lookup
    return inner if isinstance(inner, Between) else None


def inside_of(asked: LeafLookup, rest: Path) -> Inside | None:
    """The lookup in an index of whole documents; ``rest``: the leaf's path below it. None: no equivalent."""
    lookup = asked.lookup
    if not asked.is_json:
        return None
    if isinstance(lookup, Between) and lookup.low is not None and lookup.low == lookup.high:
        lookup = OneOf(pa.array([lookup.low]))
    return Inside(rest, lookup) if isinstance(lookup, OneOf | Holds) else None


def _in_json(column: Column, lookup: Lookup) -> LeafLookup:
    """Rows of a JSON path. Numbers in its index are rounded, so the leaf decides about those found."""
    return LeafLookup(column.field.name, column.path, lookup, is_exact=False, is_json=True)


def _compared(column: Column, comparator: Comparator, value: Any) -> LeafLookup | None:
    negated = comparator is Comparator.NE
    if column.is_json:
        if negated:
            return None  # it is unknown for rows of another type, which the index does not distinguish
        lookup = _compared_in_json(comparator, value)
        return None if lookup is None else _in_json(column, lookup)
    if column.is_element:
        return _with_element(column, _element_compared(column, comparator, value))
    one = _equal(column, value) if comparator in (Comparator.EQ, Comparator.NE) else _range(comparator, value)
    return None if one is None else LeafLookup(column.field.name, (), one, negated=negated)


def _range(comparator: Comparator, value: Any) -> Between:
    included = comparator not in _STRICT
    if comparator in _BOUNDED_BELOW:
        return Between(value, None, low_included=included)
    return Between(None, value, high_included=included)


def _equal(column: Column, value: Scalar) -> OneOf | Between:
    """Numbers by their place in the order: whole ones equal fractions, and 0.0 equals -0.0."""
    if column.kind.family in (Family.INTEGER, Family.FLOATING, Family.TIME):
        return Between(value, value)
    return OneOf(pa.array([value], column.field.arrow_type))


def _compared_in_json(comparator: Comparator, value: Any) -> Lookup | None:
    if isinstance(value, bool | str):
        if comparator is Comparator.EQ:
            return OneOf(pa.array([value]))
        return None if isinstance(value, bool) else _range(comparator, value)
    number = _rounded(value)
    if number is None:
        return None
    if comparator is Comparator.EQ:
        return Between(number, number)
    if comparator in _BOUNDED_BELOW:
        return Between(number, None)
    return Between(None, number)


def _rounded(number: float) -> float | None:
    """A number as float64. Rounding keeps the order, so rows beyond a bound are never lost."""
    try:
        rounded = float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    return None if math.isnan(rounded) else rounded


def _of_one_type(items: Sequence[Any]) -> pa.Array | None:
    """The items without duplicates, if an index of one type has them all: numbers, texts or booleans."""
    kinds = types_in(items)
    if kinds == {str}:
        return pa.array(dict.fromkeys(items), pa.string())
    if kinds == {bool}:
        return pa.array(dict.fromkeys(items), pa.bool_())
    if kinds == {int}:
        with suppress(OverflowError):
            return array_from(items, pa.int64()).cast(pa.float64(), safe=False).unique().sort()
    if kinds and kinds <= {int, float}:
        numbers = [_rounded(item) for item in items]
        return None if None in numbers else pa.array(np.unique(np.array(numbers, np.float64)))
    return None


def _has_special(values: pa.Array) -> bool:
    """Whether an index would not agree with Arrow's sets: there 0.0 is not -0.0, and NaN equals NaN."""
    if not pa.types.is_floating(values.type):
        return False
    numbers = values.to_numpy(zero_copy_only=False)
    return bool((np.isnan(numbers) | (numbers == 0)).any())


def _having_element(leaf: ElementMatch) -> LeafLookup | None:
    """Rows with an element that one of the conditions asks for: the leaf decides about those found."""
    condition = leaf.condition
    arrays = {element_name(column.field): column for column in leaf.columns}
    ranges: dict[str, Between] = {}
    for part in condition.children if isinstance(condition, And) else (condition,):
        name, lookup = _of_element(part)
        match lookup:
            case Holds():
                return _with_element(arrays[name], lookup)
            case HoldsSuch(Between() as bounds):
                ranges[name] = _both(ranges[name], bounds) if name in ranges else bounds
            case HoldsSuch():
                return _with_element(arrays[name], lookup)
    return next((_with_element(arrays[name], HoldsSuch(bounds)) for name, bounds in ranges.items()), None)


def _of_element(part: Predicate) -> tuple[str, Holds | HoldsSuch | None]:
    """The field of a condition on one element, and a lookup of the arrays with such an element."""
    match part:
        case Member(negated=False):
            return part.column.field.name, _any_of(part.values)
        case Compare(left=Column() as column, right=Constant(value=value)):
            return column.field.name, _element_compared(column, part.comparator, value)
        case Like(negated=False):
            return part.column.field.name, _element_like(part.pattern)
    return "", None


def _both(one: Between, other: Between) -> Between:
    """The bounds of two conditions on the same element."""
    lows = [(b.low, not b.low_included) for b in (one, other) if b.low is not None]
    highs = [(b.high, b.high_included) for b in (one, other) if b.high is not None]
    low, is_open = max(lows) if lows else (None, False)
    high, is_closed = min(highs) if highs else (None, True)
    return Between(low, high, low_included=not is_open, high_included=is_closed)


def _with_element(column: Column, lookup: Holds | HoldsSuch | None) -> LeafLookup | None:
    """Rows whose array has such an element at any place: the leaf decides about those found."""
    return None if lookup is None else LeafLookup(column.field.name, (), lookup, is_exact=False)


def _any_of(values: pa.Array) -> Holds | None:
    return None if not len(values) or _has_special(values) else Holds(values, need_all=False)


def _element_compared(column: Column, comparator: Comparator, value: Any) -> Holds | HoldsSuch | None:
    """A lookup of the arrays that have an element of which a comparison is true."""
    if comparator is Comparator.NE:
        return None
    if comparator is not Comparator.EQ:
        return HoldsSuch(_range(comparator, value))
    if column.kind.family is Family.FLOATING:
        return HoldsSuch(Between(value, value))
    if not _is_stored_as(column, value):
        return None
    return Holds(pa.array([value], column.arrow_type), need_all=False)


def _element_like(pattern: LikePattern) -> Holds | HoldsSuch | None:
    match _matching(pattern):
        case OneOf(values):
            return Holds(values, need_all=False)
        case StartsWith() as prefix:
            return HoldsSuch(prefix)
    return None


def _is_stored_as(column: Column, value: Scalar) -> bool:
    """Whether the type of a field, which holds no fractions, has this very value."""
    if column.kind.integer_range is None:
        return column.kind.family in (Family.TEXT, Family.BOOL)
    low, high = column.kind.integer_range
    return type(value) is int and low <= value <= high


def _holding(column: Column, values: pa.Array, need_all: bool, negated: bool) -> LeafLookup | None:
    if not len(values) or _has_special(values):
        return None
    return LeafLookup(column.field.name, (), Holds(values, need_all), negated=negated)


def _like(leaf: Like) -> LeafLookup | None:
    column, pattern = leaf.column, leaf.pattern
    if column.is_element:
        return None if leaf.negated else _with_element(column, _element_like(pattern))
    if column.is_json and leaf.negated:
        return None
    lookup = _matching(pattern)
    if lookup is None:
        return None
    if column.is_json:
        return _in_json(column, lookup)
    if column.field.data_type is not DataType.VARCHAR:
        return None
    return LeafLookup(column.field.name, (), lookup, negated=leaf.negated)


def _matching(pattern: LikePattern) -> Lookup | None:
    if pattern.is_equality:
        return OneOf(pa.array([pattern.plain], pa.string()))
    if pattern.prefix is not None:
        return StartsWith(pattern.prefix)
    fragments = (pattern.plain,) if pattern.plain is not None else _fragments(pattern)
    return Matching(fragments, pattern.matches)


def _fragments(pattern: LikePattern) -> tuple[str, ...]:
    """The texts between the wildcards, without escapes."""
    return tuple(re.sub(r"\\(.)", r"\1", part) for part in _WILDCARD.findall(pattern.arrow_text))
