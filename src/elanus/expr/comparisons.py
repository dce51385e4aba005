"""Which comparisons the types allow, and what each becomes in the bound tree.

A literal compared with a Float field is first rounded to the field's precision, as in the reference, so that
``score == 0.1`` finds the rows into which 0.1 was inserted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.schema import DataType
from elanus.core.types import Family, family_of, type_name
from elanus.expr import literals, syntax
from elanus.expr.array_conditions import bind_array_comparison
from elanus.expr.floats import lookup_set
from elanus.expr.jsonvalues import INT64_MAX, INT64_MIN, JsonSet
from elanus.expr.long_list import array_from, types_in
from elanus.expr.moments import Shifted, bind_shifted
from elanus.expr.operands import BoundOperand, Value, as_operand, shown
from elanus.expr.source import Source, shorten
from elanus.expr.tree import (
    Always,
    Arithmetic,
    Column,
    Comparator,
    Compare,
    Constant,
    JsonMember,
    Length,
    Member,
    Moment,
    Predicate,
    columns_of,
)

_EQUALITY = (Comparator.EQ, Comparator.NE)
_COMPARE: dict[Comparator, Callable[[Any, Any], bool]] = {
    Comparator.EQ: operator.eq,
    Comparator.NE: operator.ne,
    Comparator.LT: operator.lt,
    Comparator.LE: operator.le,
    Comparator.GT: operator.gt,
    Comparator.GE: operator.ge,
}


def bind_comparison(
    source: Source, node: syntax.Node, comparator: Comparator, left: BoundOperand, right: BoundOperand
) -> Predicate:
    """Bind ``left comparator right``, written at ``node``. Raises `InvalidFilter`."""
    if isinstance(left, Value) and isinstance(right, Value):
        return _constants(source, node, comparator, left, right)
    if isinstance(left, Shifted) or isinstance(right, Shifted):
        return bind_shifted(source, node, comparator, left, right)
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Column) and side.is_array:
            return bind_array_comparison(source, node, comparator, side, other)
    if not _comparable(comparator, left, right):
        raise _incomparable(source, node, left, right)
    if isinstance(left, Value):
        left, right, comparator = right, left, comparator.mirrored
    assert not isinstance(left, Value)
    if isinstance(right, Value):
        if (
            isinstance(right.value, float)
            and family_of(left.data_type) is Family.INTEGER
            and not _reads_json(left)
        ):
            what = f"cannot cast value to {type_name(left.data_type)}, value: {shown(right.value)}"
            raise source.error(what, node.start, "compare whole numbers with whole numbers")
        return _with_constant(comparator, left, right)
    if any(map(_reads_json, (left, right))):
        what = "two column comparison with JSON type is not supported"
        raise source.error(what, node.start, _json_remedy(right))
    if not isinstance(left, Column) or not isinstance(right, Column):
        what = f"only comparison between two fields is supported: {source.of(node)}"
        raise source.error(what, node.start, "compare one field with another, without arithmetic")
    return Compare(comparator, left, right)


def check_chain_bound(source: Source, node: syntax.Node, column: BoundOperand, bound: Value) -> None:
    """Check the type of a literal bound in ``1 < a <= 5``. Raises `InvalidFilter`, as the reference does."""
    family = family_of(column.data_type)
    if family is Family.BOOL:
        what = "invalid range operations on boolean expr"
        raise source.error(what, node.start, _type_remedy(column))
    is_typed = family.is_number or family is Family.TEXT
    if is_typed and not bound.template and type(bound.value) not in _element_types(column.data_type):
        raise source.error("invalid range operations", node.start, _type_remedy(column))


def _constants(
    source: Source, node: syntax.Node, comparator: Comparator, left: Value, right: Value
) -> Predicate:
    if left.template or right.template:
        what = f"placeholder was not supported between two constants with operator: {comparator}"
        raise source.error(what, node.start, "a template stands for a value, not for a field")
    if not _comparable(comparator, left, right):
        text = source.of(node)
        what = f"comparison operations cannot be applied to two incompatible operands: {text}"
        raise source.error(what, node.start, "compare numbers with numbers and text with text")
    return Always(holds(comparator, left, right))


def holds(comparator: Comparator, left: BoundOperand, right: BoundOperand) -> bool:
    """Whether a comparison of two constants is true; constants of types that do not compare count as true."""
    assert isinstance(left, Value)
    assert isinstance(right, Value)
    return _family(left) is not _family(right) or _COMPARE[comparator](left.value, right.value)


def _with_constant(comparator: Comparator, left: Column | Length | Arithmetic, right: Value) -> Predicate:
    if isinstance(right.value, list):
        assert isinstance(left, Column)
        return JsonMember(left, JsonSet.of([right.value]), negated=comparator is Comparator.NE)
    value = right.value
    if isinstance(left, Column) and left.data_type is DataType.FLOAT:
        value = _rounded(value)
    return Compare(comparator, left, Constant(value))


def _rounded(number: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def _comparable(comparator: Comparator, left: BoundOperand, right: BoundOperand) -> bool:
    one, other = _family(left), _family(right)
    if Family.JSON in (one, other):
        literal = other if one is Family.JSON else one
        return comparator in _EQUALITY if literal in (Family.BOOL, Family.LIST) else literal is not None
    if one is Family.BOOL and other is Family.BOOL:
        return comparator in _EQUALITY
    return one is not None and one is other and one is not Family.LIST


def _family(operand: BoundOperand) -> Family | None:
    """The operand's family: operands of one family compare, all numbers included. None: nothing compares."""
    family = family_of(operand.data_type)
    if family.is_number:
        return Family.FLOATING
    return None if family in (Family.VECTOR, Family.GEOMETRY) else family


def _reads_json(operand: BoundOperand) -> bool:
    return any(column.is_json for column in columns_of(as_operand(operand)))


def _incomparable(source: Source, node: syntax.Node, left: BoundOperand, right: BoundOperand) -> Exception:
    for side, against in ((left, right), (right, left)):
        if isinstance(side, Value) and side.template:
            what = f"cannot cast value to {type_name(against.data_type)}, value: {shown(side.value)}"
            return source.error(what, node.start, f"give {{{side.template}}} a value of the field's type")
    names = f"{type_name(left.data_type)} and {type_name(right.data_type)}"
    what = f"comparisons between {names} are not supported"
    return source.error(what, node.start, _type_remedy(left if not isinstance(left, Value) else right))


def _type_remedy(operand: BoundOperand) -> str:
    if family_of(operand.data_type) is Family.VECTOR:
        return "vector fields cannot be filtered on"
    if family_of(operand.data_type) is Family.GEOMETRY:
        return "write st_equals(place, 'POINT(1 2)'), or another of the st_ functions"
    match _family(operand):
        case Family.FLOATING:
            kind = "whole number" if family_of(operand.data_type) is Family.INTEGER else "number"
            return f"a {kind} is due, without quotes"
        case Family.TEXT:
            return "text in quotes is due"
        case Family.TIME:
            return "moments are written like ISO '2025-01-01T00:00:00Z'"
        case Family.BOOL:
            return "booleans know '== true', '== false' and '!='"
        case _:
            return "booleans and lists know only == and !="


def _json_remedy(right: BoundOperand) -> str:
    if isinstance(right, Column) and right.field.is_dynamic and len(right.path) == 1:
        return f'if text is meant, write "{right.path[0]}"'
    return "compare JSON values with literals"


def bind_membership(source: Source, node: syntax.Member, column: Column, values: Value) -> Predicate:
    """Bind ``column in values``. Raises `InvalidFilter`."""
    items = values.value
    if column.is_json:
        return JsonMember(column, JsonSet.of(items), node.negated)
    allowed = _element_types(column.data_type)
    if not types_in(items) <= allowed or not allowed:
        wrong = next((i for i, item in enumerate(items) if type(item) not in allowed), None)
        raise _wrong_element(source, node, column, values, wrong)
    try:
        return Member(column, _member_array(column, items), node.negated)
    except OverflowError:
        wrong = next(i for i, item in enumerate(items) if not INT64_MIN <= item <= INT64_MAX)
        position = _element_start(source, node.values, wrong)
        what = f"value out of range: {shorten(str(items[wrong]))}"
        raise source.error(what, position, "integers have 64 bits") from None


def _element_types(data_type: DataType) -> set[type]:
    """The literal types that a list to look up the field in may hold; empty for vectors."""
    match family_of(data_type):
        case Family.INTEGER:
            return {int}
        case Family.FLOATING:
            return {int, float}
        case Family.TEXT:
            return {str}
        case Family.BOOL:
            return {bool}
        case Family.TIME:
            return {Moment}
        case Family.JSON | Family.LIST | Family.VECTOR | Family.GEOMETRY:
            return set()


def _member_array(column: Column, items: Sequence[Any]) -> pa.Array:
    """The distinct items in the column's Arrow type. Integers that the type cannot hold match no row."""
    arrow_type, family = column.arrow_type, column.kind.family
    if family is Family.INTEGER:
        numbers = _distinct(array_from(items, pa.int64()))
        limits = np.iinfo(arrow_type.to_pandas_dtype())
        return pa.array(numbers[(numbers >= limits.min) & (numbers <= limits.max)], arrow_type)
    if family is Family.FLOATING:
        with np.errstate(over="ignore"):
            rounded = np.asarray(array_from(items, pa.float64())).astype(arrow_type.to_pandas_dtype())
        return lookup_set(pa.array(rounded, arrow_type))
    return array_from(items, arrow_type).unique()


def _distinct(integers: pa.Array) -> npt.NDArray[np.int64]:
    """The integers without duplicates, in their order. Large lists seldom have any, and to sort six million
    takes a tenth of the time in which they are hashed."""
    numbers: npt.NDArray[np.int64] = integers.to_numpy()
    if np.any(numbers[1:] <= numbers[:-1]):
        ascending = np.sort(numbers)
        if np.any(ascending[1:] == ascending[:-1]):
            numbers = integers.unique().to_numpy()
    return numbers


def _wrong_element(
    source: Source, node: syntax.Member, column: Column, values: Value, wrong: int | None
) -> Exception:
    name = type_name(column.data_type)
    if wrong is None:
        return source.error(f"'in' is not supported on {name}", node.start, _type_remedy(column))
    item = shown(values.value[wrong])
    what = f"value '{item}' in list cannot be casted to {name}"
    if values.template:
        what = f"cannot cast value to {name}, value: {item}"
    return source.error(what, _element_start(source, node.values, wrong), _type_remedy(column))


def _element_start(source: Source, values: syntax.Node, index: int) -> int:
    match values:
        case syntax.LiteralList() | syntax.LongList():
            return values.start + literals.element_position(source.text[values.start : values.end], index)
        case syntax.Listing():
            return values.items[index].start
        case _:
            return values.start
