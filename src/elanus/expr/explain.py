"""Prints the bound tree as text in the filter language, in the order of evaluation.

A sample comes last, as the language has it.

The text parses to the same tree again, unless it contains a list too long to show, or a set in bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from elanus.core.moments import moment_literal
from elanus.core.structs import struct_and_name
from elanus.core.types import Family
from elanus.expr.tree import (
    Always,
    And,
    Arithmetic,
    ArrayContains,
    ArrayEqual,
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
    Moment,
    Operand,
    Or,
    Predicate,
    Regex,
    Sample,
    TextMatch,
    Visitor,
)

SHOWN_VALUES_MAX = 10
"""A longer list is shown as this many values and the number of the remaining ones."""


class Explainer(Visitor[str]):
    def always(self, node: Always) -> str:
        return "1 == 1" if node.value else "1 == 0"

    def conjunction(self, node: And) -> str:
        samples_last = sorted(node.children, key=_must_be_last)
        return f"({' and '.join(map(self.visit, samples_last))})"

    def disjunction(self, node: Or) -> str:
        return f"({' or '.join(map(self.visit, node.children))})"

    def compare(self, node: Compare) -> str:
        return f"{_operand(node.left)} {node.comparator} {_operand(node.right)}"

    def member(self, node: Member) -> str:
        return f"{_operand(node.column)} {'not in' if node.negated else 'in'} {_list(_literals(node))}"

    def json_member(self, node: JsonMember) -> str:
        return f"{_operand(node.column)} {'not in' if node.negated else 'in'} {_list(node.values.items)}"

    def json_contains(self, node: JsonContains) -> str:
        name = "json_contains_all" if node.need_all else "json_contains_any"
        text = f"{name}({_operand(node.column)}, {_list(node.values.items)})"
        return f"not {text}" if node.negated else text

    def array_contains(self, node: ArrayContains) -> str:
        name = "array_contains_all" if node.need_all else "array_contains_any"
        text = f"{name}({_operand(node.column)}, {_list(node.literals)})"
        return f"not {text}" if node.negated else text

    def array_equal(self, node: ArrayEqual) -> str:
        return f"{_operand(node.column)} {'!=' if node.negated else '=='} {_list(node.literals)}"

    def like(self, node: Like) -> str:
        text = f"{_operand(node.column)} like {_value(node.pattern.text)}"
        return f"not ({text})" if node.negated else text

    def regex(self, node: Regex) -> str:
        return f"{_operand(node.column)} {'!~' if node.negated else '=~'} {_value(node.pattern.text)}"

    def sample(self, node: Sample) -> str:
        return f"random_sample({node.factor!r})"

    def text_match(self, node: TextMatch) -> str:
        rest = f", minimum_should_match={node.minimum}" if node.minimum > 1 else ""
        name = "text_match" if node.slop is None else "phrase_match"
        rest = f", {node.slop}" if node.slop else rest
        if node.edits is not None:
            name, rest = "text_match_fuzzy", f", max_edit_distance={node.edits}"
        text = f"{name}({_operand(node.column)}, {_value(node.text)}{rest})"
        return f"not {text}" if node.negated else text

    def is_null(self, node: IsNull) -> str:
        return f"{_operand(node.column)} is {'not null' if node.negated else 'null'}"

    def column_test(self, node: ColumnTest) -> str:
        text = node.test.text(_operand(node.column))
        return f"not ({text})" if node.negated else text

    def element_match(self, node: ElementMatch) -> str:
        threshold = {"match_least": node.least, "match_most": node.most, "match_exact": node.most}
        rest = f", threshold={threshold[node.function]}" if node.function in threshold else ""
        condition = self.visit(node.condition)
        text = f"{node.function}({node.array}, {condition}{rest})"
        return f"not {text}" if node.negated else text


def _must_be_last(node: Predicate) -> bool:
    return isinstance(node, Sample) or (isinstance(node, ElementMatch) and node.chooses)


def _literals(node: Member) -> Sequence[Any]:
    if node.column.kind.family is not Family.TIME:
        return node.values  # type: ignore[no-any-return]
    return [Moment(value) for value in node.values.to_pylist()]


def _operand(operand: Operand) -> str:
    if isinstance(operand, Constant):
        return _value(operand.value)
    if isinstance(operand, Arithmetic):
        return f"({_factor(operand.left)} {operand.operator} {_factor(operand.right)})"
    if isinstance(operand, Length):
        return f"array_length({_operand(operand.column)})"
    member = struct_and_name(operand.field.name)
    if member is None or operand.field.name.startswith("$["):  # a field of an element is written as it is
        name = operand.field.name
    else:
        name = f"{member[0]}[{_value(member[1])}]"
    return name + "".join(f"[{_value(step)}]" for step in operand.path)


def _factor(operand: Operand) -> str:
    text = _operand(operand)
    return f"({text})" if text.startswith("-") else text  # -2 ** a means -(2 ** a)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    if isinstance(value, Moment):
        return moment_literal(value)
    return json.dumps(value, ensure_ascii=False)


def _list(values: Sequence[Any]) -> str:
    shown = [
        _value(getattr(value, "as_py", lambda value=value: value)()) for value in values[:SHOWN_VALUES_MAX]
    ]
    if len(values) > SHOWN_VALUES_MAX:
        shown.append(f"… {len(values) - SHOWN_VALUES_MAX:,} more")
    return f"[{', '.join(shown)}]"
