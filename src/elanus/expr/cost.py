"""The rough cost of a condition per row, which determines the order in which conditions are tried.

The unit is one comparison of numbers (0.3 ns on a plain column). The figures were measured on a million rows;
only their order matters.
"""

from __future__ import annotations

from typing import assert_never

from elanus.core.types import Family
from elanus.expr.tree import (
    Always,
    And,
    Arithmetic,
    ArrayContains,
    ArrayEqual,
    Column,
    ColumnTest,
    Compare,
    Constant,
    ElementMatch,
    IsNull,
    JsonContains,
    JsonMember,
    Length,
    Like,
    Member,
    Operand,
    Or,
    Predicate,
    Regex,
    Sample,
    TextMatch,
    Visitor,
)

_NUMBER, _LOOKUP, _TEXT, _TEXT_LOOKUP, _TEXT_SCAN, _JSON = 1, 20, 14, 36, 48, 800
_ELEMENT, _ARRAY = 40, 120
_REGEX, _SAMPLE = 120, 60
_TOKENS = 60
"""With the column's tokens made. Their making is much dearer, but is kept, whatever the order."""
_PREPARED = 6
_ELEMENTS_TYPICAL = 8
_ARITHMETIC = {"+": 3, "-": 3, "*": 3, "/": 6, "%": 10, "&": 3, "|": 3, "^": 3, "<<": 6, ">>": 6}


class _Cost(Visitor[int]):
    def __init__(self, prepared: frozenset[str]) -> None:
        self._prepared = prepared

    def always(self, node: Always) -> int:
        return 0

    def conjunction(self, node: And) -> int:
        return sum(map(self.visit, node.children))

    def disjunction(self, node: Or) -> int:
        return sum(map(self.visit, node.children))

    def compare(self, node: Compare) -> int:
        return self._operand(node.left) + self._operand(node.right)

    def member(self, node: Member) -> int:
        return self._reading(node.column, _TEXT_LOOKUP if node.column.kind.family is Family.TEXT else _LOOKUP)

    def json_member(self, node: JsonMember) -> int:
        return self._reading(node.column, _JSON)

    def json_contains(self, node: JsonContains) -> int:
        return 2 * self._reading(node.column, _JSON)

    def array_contains(self, node: ArrayContains) -> int:
        return self._reading(node.column, _ARRAY)

    def array_equal(self, node: ArrayEqual) -> int:
        return self._reading(node.column, _ARRAY)

    def like(self, node: Like) -> int:
        is_anchored = node.pattern.prefix is not None or node.pattern.is_equality
        text = _TEXT if is_anchored else _TEXT_SCAN
        return self._reading(node.column, _JSON if node.column.is_json else text)

    def regex(self, node: Regex) -> int:
        return self._reading(node.column, _JSON if node.column.is_json else _REGEX)

    def sample(self, node: Sample) -> int:
        return _SAMPLE

    def text_match(self, node: TextMatch) -> int:
        return _TOKENS

    def is_null(self, node: IsNull) -> int:
        return self._operand(node.column) if node.column.path else _NUMBER

    def column_test(self, node: ColumnTest) -> int:
        return node.test.cost + (self._reading(node.column, _JSON) if node.column.is_json else 0)

    def element_match(self, node: ElementMatch) -> int:
        return _ARRAY + _ELEMENTS_TYPICAL * self.visit(node.condition)

    def _operand(self, operand: Operand) -> int:
        match operand:
            case Arithmetic():
                return (
                    _ARITHMETIC[operand.operator] + self._operand(operand.left) + self._operand(operand.right)
                )
            case Column():
                if operand.is_element:
                    return _ELEMENT
                family = operand.kind.family
                text_or_json = {Family.TEXT: _TEXT, Family.JSON: _JSON}
                return self._reading(operand, text_or_json[family]) if family in text_or_json else _NUMBER
            case Length():
                return self._reading(operand.column, _JSON) if operand.column.is_json else _NUMBER
            case Constant():
                return _NUMBER
            case _:
                assert_never(operand)

    def _reading(self, column: Column, cost: int) -> int:
        return min(cost, _PREPARED) if column.field.name in self._prepared else cost


def cost_of(predicate: Predicate, prepared: frozenset[str] = frozenset()) -> int:
    """Return a condition's cost. ``prepared``: fields whose columns are in a form that is quick to read."""
    return _Cost(prepared).visit(predicate)
