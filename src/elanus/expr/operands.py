"""Binds the parts of a filter that represent values: names, templates, constant arithmetic.

Names become fields, templates become their values, and arithmetic on constants becomes its result.

Constant arithmetic follows the reference: integer division truncates towards zero, a remainder has the sign
of the dividend, and a power is always a floating number.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from elanus.core.errors import InvalidFilter
from elanus.core.limits import FILTER_DEPTH_MAX
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import member_name
from elanus.core.types import Family, family_of, type_name
from elanus.expr import syntax
from elanus.expr.jsonvalues import INT64_MAX, INT64_MIN
from elanus.expr.long_list import types_in
from elanus.expr.misread import unquoted
from elanus.expr.moments import Shifted, moment_of, shifted
from elanus.expr.source import Source
from elanus.expr.tree import Arithmetic, Column, Constant, Length, Operand, type_of_value

_BITS = {"&": "bitand", "|": "bitor", "^": "bitxor", "<<": "shiftleft", ">>": "shiftright", "~": "bitnot"}
_VERBS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "modulo", "**": "power", **_BITS}
_CONTAINS = ("contains", "contains_all", "contains_any")
FUNCTIONS = {f"{prefix}_{verb}": verb for prefix in ("json", "array") for verb in _CONTAINS}
"""The functions that are conditions, and the verb of each."""
_LENGTH = "array_length"
SAMPLE = "random_sample"
"""The function that is a condition on no field."""
_NO_VALUE = ("none", "nil", "nan")
_LITERALS = {bool, int, float, str}


@dataclass(frozen=True, slots=True)
class Value:
    """A constant during binding: possibly a list, and possibly from a template."""

    value: Any
    template: str = ""

    @property
    def data_type(self) -> DataType:
        return type_of_value(self.value)


BoundOperand = Column | Length | Arithmetic | Value | Shifted


def shown(value: Any) -> str:
    """A literal as the reference's messages print it: ``float_val:1``, ``string_val:"x"``."""
    match value:
        case bool():
            return f"bool_val:{str(value).lower()}"
        case int():
            return f"int64_val:{value}"
        case float():
            return f"float_val:{int(value) if math.isfinite(value) and value == int(value) else value}"
        case str():
            return f'string_val:"{value}"'
        case _:
            return f"array_val:{value}"


def as_operand(bound: BoundOperand) -> Operand:
    """The operand as it appears in the bound tree. A value must not be a list."""
    assert not isinstance(bound, Shifted), "a comparison with an interval is bound by itself"
    return Constant(bound.value) if isinstance(bound, Value) else bound


class OperandBinder:
    """Binds the value nodes of one filter. Every method raises `InvalidFilter`."""

    def __init__(self, source: Source, schema: CollectionSchema, values: Mapping[str, object]) -> None:
        self._source = source
        self._schema = schema
        self._values = values

    def bind(self, node: syntax.Node, role: str = "") -> BoundOperand:
        """Bind a value node. A condition has no value and is refused.

        ``role``: "lower" or "upper" for a bound of a chain, which the error for a missing value names.
        """
        bound = self._template(node, role) if isinstance(node, syntax.Template) else self._bind(node)
        self._check_range(node, bound)
        return bound

    def _check_range(self, node: syntax.Node, bound: BoundOperand) -> None:
        # Only results are checked: -9223372036854775808 is the negative of a number that does not fit.
        value = bound.value if isinstance(bound, Value) else None
        if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
            what = f"value out of range: {self._source.of(node)}"
            raise self._source.error(what, node.start, "integers have 64 bits; write 1e20 for a float")

    def _bind(self, node: syntax.Node) -> BoundOperand:
        match node:
            case syntax.Literal():
                return Value(node.value)
            case syntax.LiteralList():
                return Value(node.values)
            case syntax.LongList():
                return Value(list(node.values))
            case syntax.Listing():
                return Value(list(map(self._element, node.items)))
            case syntax.Template():
                return self._template(node)
            case syntax.Iso():
                return Value(moment_of(self._source, node))
            case syntax.Arithmetic() if isinstance(node.right, syntax.Interval):
                bound = shifted(self._source, node, self._bind(node.left))
                return bound if isinstance(bound, Shifted) else Value(bound)
            case syntax.Interval():
                what = f"an interval cannot be used here: {self._source.of(node)}"
                raise self._source.error(what, node.start, "write it after + or -: tsz + INTERVAL 'P1D'")
            case syntax.Element():
                return self._element_field(node)
            case syntax.Name():
                return self._name(node)
            case syntax.Sign():
                return self._sign(node)
            case syntax.Arithmetic():
                return self._arithmetic(node)
            case syntax.Call() if node.function.lower() == _LENGTH:
                return self._length(node)
            case syntax.Call() if node.function.lower() not in (*FUNCTIONS, SAMPLE):
                raise unsupported_function(self._source, node)
            case _:
                what = f"a condition cannot be used as a value: {self._source.of(node)}"
                raise self._source.error(what, node.start, "join conditions with 'and', 'or' and 'not'")

    def _element_field(self, node: syntax.Element) -> Column:
        written = f"$[{node.name}]" if node.name else "$"
        what = f"{written} can only be used inside element_filter or a MATCH function"
        raise self._source.error(what, node.start, f"write match_any(clips, {written} == 1)")

    def _element(self, node: syntax.Node) -> Any:
        bound = self.bind(node)
        if isinstance(bound, Value):
            return bound.value
        what = f"array element type must be generic value, but got: {self._source.of(node)}"
        raise self._source.error(what, node.start, "a list holds literals, not fields; quote text")

    def _template(self, node: syntax.Template, role: str = "") -> Value:
        if node.name not in self._values:
            which = f"{role} value" if role else "value"
            what = f"the {which} of expression template variable name {{{node.name}}} is not found"
            given = ", ".join(sorted(self._values)) or "none"
            raise self._source.error(what, node.start, f"values given: {given}")
        value = self._values[node.name]
        if not _is_literal(value):
            given_type = type(value).__name__
            what = f"the value of expression template variable {{{node.name}}} has type {given_type}"
            remedy = "a value is a bool, an int, a float, a str, or a list of these"
            raise self._source.error(what, node.start, remedy)
        return Value(value, node.name)

    def _name(self, node: syntax.Name) -> Column:
        if len(node.path) > FILTER_DEPTH_MAX:
            what = f"the path has more than {FILTER_DEPTH_MAX} steps"
            raise self._source.error(what, node.start, "documents are not that deep")
        if node.bare is not None:
            return self._name(self._of_struct(node, node.bare))
        field = self._schema.by_name.get(node.name)
        if field is None and node.path:
            member = self._schema.by_name.get(member_name(node.name, str(node.path[0])))
            if member is not None:  # a field of a struct array: clips["title"], clips["title"][0]
                return self._name(replace(node, name=member.name, path=node.path[1:]))
        if field is None:
            return self._dynamic_key(node)
        if "" in node.path:
            what = f"invalid identifier: {self._source.of(node)}"
            raise self._source.error(what, node.start, "a key is not empty")
        if node.path and field.kind.family is Family.LIST:
            self._check_index(node, field)
        elif node.path and field.kind.family is not Family.JSON:
            what = f"{type_name(field.data_type)} data type not supported accessed with []"
            raise self._source.error(what, node.start, f"only JSON fields have keys; write {node.name} alone")
        return Column(field, node.path)

    def _of_struct(self, node: syntax.Name, position: int) -> syntax.Name:
        """``clips[title]`` is ``clips["title"]``, and ``clips[0][title]`` its first element."""
        *places, word = node.path
        if not self._names_struct(node) or len(places) > 1 or any(isinstance(p, str) for p in places):
            raise unquoted(self._source, position)
        return replace(node, path=(word, *places), bare=None)

    def _check_index(self, node: syntax.Name, field: FieldSchema) -> None:
        if isinstance(node.path[0], str):
            what = "can only access array field with integer index"
            raise self._source.error(what, node.start, f"write {node.name}[0]")
        if len(node.path) > 1:
            what = f"{type_name(field.element_type)} data type not supported accessed with []"
            raise self._source.error(what, node.start, f"an array has one index: write {node.name}[0]")

    def whole(self, node: syntax.Node) -> BoundOperand:
        """As `bind`; a struct array stands for one of its arrays, which have its nulls and lengths."""
        if isinstance(node, syntax.Name) and not node.path and self._names_struct(node):
            members = self._schema.members(node.name)
            return Column(next((m for m in members if not m.is_searched), members[0]))
        return self.bind(node)

    def _names_struct(self, node: syntax.Name) -> bool:
        return any(struct.name == node.name for struct in self._schema.structs)

    def _length(self, node: syntax.Call) -> Length:
        columns = [self.whole(argument) for argument in node.arguments]
        if (
            len(columns) == 1
            and isinstance(columns[0], Column)
            and (columns[0].is_json or columns[0].is_array)
        ):
            return Length(columns[0])
        text = self._source.of(node)
        what = f"array_length operation are only supported on json or array fields now, got: {text}"
        raise self._source.error(what, node.start, "its one argument is an array field, or a path into JSON")

    def _dynamic_key(self, node: syntax.Name) -> Column:
        if node.name.lower() == "null" and not node.path:
            what = "NULL literal is not supported in expressions"
            raise self._source.error(what, node.start, "test for null with 'is null' or 'is not null'")
        if self._names_struct(node):
            what = f"struct array field {node.name} cannot be used as a value"
            if node.path:
                what = f"field {self._source.of(node)} not exist"
            names = ", ".join(member.name for member in self._schema.members(node.name))
            raise self._source.error(what, node.start, f"name one of its fields, with quotes: {names}")
        dynamic = self._schema.dynamic_field
        means_null = node.name.lower() in _NO_VALUE
        if dynamic is not None and not means_null:
            return Column(dynamic, (node.name, *node.path))
        close = difflib.get_close_matches(node.name, self._schema.by_name, n=1)
        if means_null:
            remedy = "test for null with 'is null' or 'is not null'"
        elif close:
            remedy = f"did you mean {close[0]!r}?"
        else:
            remedy = f"the collection has {', '.join(self._schema.by_name)}; quote text"
        raise self._source.error(f"field {node.name} not exist", node.start, remedy)

    def _sign(self, node: syntax.Sign) -> BoundOperand:
        operand = self._bind(node.operand)
        self._check_number(node, node.operator, operand, operand)
        if node.operator == "+":
            return operand
        if isinstance(operand, Value):
            return Value(-operand.value if node.operator == "-" else ~operand.value)
        # -x is x * -1, and ~x is x ^ -1, of any integer in two's complement.
        operator = "*" if node.operator == "-" else "^"
        return self._calculation(node, operator, operand, Value(-1))

    def _arithmetic(self, node: syntax.Arithmetic) -> BoundOperand:
        left, right = self._bind(node.left), self._bind(node.right)
        self._check_number(node, node.operator, left, right)
        if node.operator in ("/", "%") and isinstance(right, Value) and right.value == 0:
            what = "division or modulus by zero"
            raise self._source.error(what, node.right.start, "divide by something else")
        if node.operator in ("<<", ">>") and isinstance(right, Value) and not 0 <= right.value < 64:
            what = f"shift amount must be in range [0, 64), but got: {right.value}"
            raise self._source.error(what, node.right.start, "integers have 64 bits")
        if isinstance(left, Value) and isinstance(right, Value):
            return Value(self._fold(node, left.value, right.value))
        self._check_range(node.left, left)
        self._check_range(node.right, right)
        return self._calculation(node, node.operator, left, right)

    def _calculation(
        self, node: syntax.Node, operator: str, left: BoundOperand, right: BoundOperand
    ) -> Arithmetic:
        """Arithmetic of one field and constants."""
        text = self._source.of(node)
        if operator == "**":
            what = f"power can only apply on constants: {text}"
            raise self._source.error(what, node.start, "multiply: price * price is not supported either")
        if isinstance(left, Length) or isinstance(right, Length):
            what = f"complicated arithmetic operations are not supported: {text}"
            raise self._source.error(what, node.start, "compare array_length(..) itself with a number")
        if not isinstance(left, Value) and not isinstance(right, Value):
            what = f"not supported to do arithmetic operations between multiple fields: {text}"
            raise self._source.error(what, node.start, "one field and constants; store the result in a field")
        return Arithmetic(operator, as_operand(left), as_operand(right), _result_type(left, right))

    def _check_number(
        self, node: syntax.Node, operator: str, left: BoundOperand, right: BoundOperand
    ) -> None:
        for side in (left, right):
            if isinstance(side, Column) and side.is_array:
                what = "can not comparisons array fields directly"
                raise self._source.error(what, node.start, f"use an element: {side.field.name}[0] + 1")
        if any(_kind(side) is None for side in (left, right)):
            sides = f"{type_name(left.data_type)} field and {type_name(right.data_type)}"
            what = f"'{_VERBS[operator]}' cannot perform arithmetic between {sides}"
            raise self._source.error(what, node.start, "arithmetic needs numbers on both sides")
        if Family.FLOATING not in (_kind(left), _kind(right)):
            return
        if operator == "%":
            what = "modulo can only apply on integer types"
            raise self._source.error(what, node.start, "use whole numbers on both sides of '%'")
        if operator in _BITS:
            what = "bitwise operations can only apply on integer types"
            raise self._source.error(what, node.start, f"use whole numbers with '{operator}'")

    def _fold(self, node: syntax.Arithmetic, left: Any, right: Any) -> float:
        try:
            return _calculate(node.operator, left, right)
        except (OverflowError, ZeroDivisionError, ValueError):
            what, remedy = f"no value for {self._source.of(node)}", "its result is no number of 64 bits"
            raise self._source.error(what, node.start, remedy) from None


def _calculate(operator: str, left: Any, right: Any) -> float:
    match operator:
        case "+":
            return left + right  # type: ignore[no-any-return]
        case "-":
            return left - right  # type: ignore[no-any-return]
        case "*":
            return left * right  # type: ignore[no-any-return]
        case "**":
            return math.pow(left, right)
        case "/" if isinstance(left, int) and isinstance(right, int):
            quotient = abs(left) // abs(right)
            return quotient if (left < 0) == (right < 0) else -quotient
        case "/":
            return left / right  # type: ignore[no-any-return]
        case "%":
            remainder = abs(left) % abs(right)
            return -remainder if left < 0 else remainder  # type: ignore[no-any-return]
        case "&":
            return left & right  # type: ignore[no-any-return]
        case "|":
            return left | right  # type: ignore[no-any-return]
        case "^":
            return left ^ right  # type: ignore[no-any-return]
        case "<<":
            return _wrapped(left << right)
        case ">>":
            return left >> right  # type: ignore[no-any-return]
    raise AssertionError(operator)


def _wrapped(number: int) -> int:
    """The integer of 64 bits in two's complement that has the same lower bits."""
    return (number - INT64_MIN) % 2**64 + INT64_MIN


def _kind(operand: BoundOperand) -> Family | None:
    """Integer or floating; JSON, whose values may be either; None for anything that is not a number."""
    family = family_of(operand.data_type)
    return family if family.is_number or family is Family.JSON else None


def _result_type(left: BoundOperand, right: BoundOperand) -> DataType:
    return DataType.DOUBLE if Family.FLOATING in (_kind(left), _kind(right)) else DataType.INT64


def _is_literal(value: object) -> bool:
    if isinstance(value, list):
        if types_in(value) <= _LITERALS:
            return True
        return all(_is_literal(item) for item in value if type(item) not in _LITERALS)
    return isinstance(value, bool | int | float | str)


def unsupported_function(source: Source, node: syntax.Call) -> InvalidFilter:
    """The error for a function that this release does not support, whether the reference has it or not."""
    what = f"function {node.function} is not supported in this release"
    remedy = (
        "functions are array_length, random_sample, text_match, text_match_fuzzy, phrase_match, "
        "membership_match, element_filter, match_any, match_all, match_least, match_most, match_exact, "
        "array_ and json_contains, _contains_all and _contains_any, and st_equals, st_intersects, "
        "st_contains, st_within, st_touches, st_crosses, st_overlaps, st_dwithin, st_isvalid"
    )
    return source.error(what, node.start, remedy)
