"""The filter language row by row: conditions that know their text and whether a row satisfies them.

It is written from the definition of the language, in plain Python, and shares nothing with the evaluator
under test. A condition is true, false, or None for unknown.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fuzz_rows import Row, single

Truth = bool | None
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Operand:
    """A value of each row: None where there is none. ``kind``: the type of the field, or "json"."""

    text: str
    kind: str
    value: Callable[[Row], Any]

    @property
    def is_whole(self) -> bool:
        return self.kind == "integer"


@dataclass(frozen=True)
class Condition:
    """``parts`` are the conditions it is made of, and ``again`` makes the same of others."""

    text: str
    holds: Callable[[Row], Truth]
    parts: tuple[Condition, ...] = ()
    again: Callable[[tuple[Condition, ...]], Condition] | None = None


# ---- operands


def field(name: str, kind: str) -> Operand:
    return Operand(name, kind, lambda row: row[name])


def path(text: str, name: str, steps: tuple[str | int, ...], kind: str = "json") -> Operand:
    return Operand(text, kind, lambda row: walk(row[name], steps))


def walk(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(value, dict) and str(step) in value:
            value = value[str(step)]
        elif isinstance(value, list) and str(step).isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def length(target: Operand) -> Operand:
    def count(row: Row) -> int | None:
        value = target.value(row)
        return len(value) if isinstance(value, list) else None

    return Operand(f"array_length({target.text})", "integer", count)


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def wrapped(number: int) -> int:
    """The number in 64 bits of two's complement."""
    return (number + 2**63) % 2**64 - 2**63


def calculated(sign: str, left: Any, right: Any) -> Any:
    """Integers stay integers and wrap; a zero divisor, and whatever gives no number, is unknown."""
    if not is_number(left) or not is_number(right):
        return None
    if type(left) is int and type(right) is int:
        return _whole_calculated(sign, left, right)
    if sign in ("%", "&", "|", "^", "<<", ">>") and sign != "%":
        return None
    result = _calculated(sign, float(left), float(right))
    return None if result is None or math.isnan(result) else result


def _whole_calculated(sign: str, left: int, right: int) -> int | None:
    match sign:
        case "/" | "%" if right == 0:
            return None
        case "/":
            quotient = abs(left) // abs(right)
            return wrapped(quotient if (left < 0) == (right < 0) else -quotient)
        case "%":
            return int(math.copysign(1, left)) * (abs(left) % abs(right))
        case "<<" | ">>" if not 0 <= right < 64:
            return None
    operators: dict[str, Callable[[int, int], int]] = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "&": operator.and_,
        "|": operator.or_,
        "^": operator.xor,
        "<<": operator.lshift,
        ">>": operator.rshift,
    }
    return wrapped(operators[sign](left, right))


def _calculated(sign: str, left: float, right: float) -> float | None:
    if sign in "/%" and right == 0:
        return None
    if sign == "%":
        return math.nan if math.isinf(left) else math.fmod(left, right)
    if sign == "/":
        return left / right
    return {"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](left, right)


def calculation(sign: str, left: Operand, right: Operand) -> Operand:
    kinds = {left.kind, right.kind}
    kind = "floating" if "floating" in kinds else "json" if "json" in kinds else "integer"
    return Operand(
        f"({left.text} {sign} {right.text})",
        kind,
        lambda row: calculated(sign, left.value(row), right.value(row)),
    )


# ---- literals


def spelled(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(spelled, value))}]"
    return json.dumps(value, ensure_ascii=isinstance(value, str) and len(value) % 2 == 0)


def constant(value: Any) -> Operand:
    kind = {bool: "bool", int: "integer", float: "floating", str: "text", list: "list"}[type(value)]
    text = spelled(value)
    return Operand(f"({text})" if text.startswith("-") else text, kind, lambda _: value)


def kind_of(value: Any) -> str | None:
    """The kinds of JSON values that compare with each other."""
    kinds = {bool: "bool", int: "number", float: "number", str: "text", list: "list"}
    return kinds.get(type(value))


def json_equal(one: Any, other: Any) -> bool:
    """JSON's equality: unlike Python's, true is not 1."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(json_equal, one, other))
    return kind_of(one) is not None and kind_of(one) == kind_of(other) and bool(one == other)


# ---- conditions


def compared(sign: str, left: Any, right: Any) -> Truth:
    if left is None or right is None:
        return None
    if type(left) is float or type(right) is float:  # doubles hold integers beyond 2**53 with rounding
        left, right = float(left), float(right)
    return bool(COMPARE[sign](left, right))


def comparison(target: Operand, sign: str, value: Any, *, mirrored: bool) -> Condition:
    """A comparison with a literal. A Float field's literal is rounded to its precision."""
    shown = constant(value).text
    stored = single(float(value)) if target.kind == "single" else value

    def holds(row: Row) -> Truth:
        found = target.value(row)
        if target.kind == "json" and kind_of(found) != kind_of(value):
            return None
        if isinstance(value, list) and found is not None:
            return json_equal(found, value) == (sign == "==")
        return _exactly(sign, found, stored) if target.kind == "integer" else compared(sign, found, stored)

    text = f"{shown} {MIRRORED[sign]} {target.text}" if mirrored else f"{target.text} {sign} {shown}"
    return Condition(f"({text})", holds)


def _exactly(sign: str, found: int | None, value: int) -> Truth:
    return None if found is None else bool(COMPARE[sign](found, value))


def of_two(left: Operand, sign: str, right: Operand) -> Condition:
    return Condition(
        f"({left.text} {sign} {right.text})", lambda row: compared(sign, left.value(row), right.value(row))
    )


def chain(target: Operand, low: Any, one: str, two: str, high: Any, *, falling: bool) -> Condition:
    both = [
        comparison(target, MIRRORED[one], low, mirrored=False),
        comparison(target, two, high, mirrored=False),
    ]
    lower, upper = constant(low).text, constant(high).text
    text = f"{lower} {one} {target.text} {two} {upper}"
    if falling:
        text = f"{upper} {MIRRORED[two]} {target.text} {MIRRORED[one]} {lower}"
    return Condition(f"({text})", lambda row: every([part.holds(row) for part in both]))


def member(target: Operand, items: list[Any], text: str, *, negated: bool) -> Condition:
    stored = [single(float(item)) for item in items] if target.kind == "single" else items

    def holds(row: Row) -> Truth:
        found = target.value(row)
        if found is None:
            return None
        if target.kind == "json" and items and kind_of(found) not in map(kind_of, items):
            return None
        return any(json_equal(found, item) for item in stored) != negated

    return Condition(f"({target.text} {'not in' if negated else 'in'} {text})", holds)


def contains(
    function: str, target: Operand, items: list[Any], *, need_all: bool, rounded: bool = False
) -> Condition:
    argument: Any = items if function.lower().endswith(("all", "any")) else items[0]
    stored = [single(float(item)) for item in items] if rounded else items

    def holds(row: Row) -> Truth:
        value = target.value(row)
        if not items:
            return need_all
        if not isinstance(value, list):
            return None
        return (all if need_all else any)(any(json_equal(it, item) for it in value) for item in stored)

    return Condition(f"{function}({target.text}, {spelled(argument)})", holds)


def array_equal(target: Operand, sign: str, items: list[Any], *, rounded: bool) -> Condition:
    stored = [single(float(item)) for item in items] if rounded else items

    def holds(row: Row) -> Truth:
        value = target.value(row)
        return None if value is None else json_equal(value, stored) == (sign == "==")

    return Condition(f"({target.text} {sign} {spelled(items)})", holds)


def like(target: Operand, pattern: str) -> Condition:
    out, position = "", 0
    while position < len(pattern):
        char, following = pattern[position], pattern[position + 1 : position + 2]
        if char == "\\" and following in ("%", "_", "\\"):
            out += re.escape(following)
            position += 1
        else:
            out += {"%": ".*", "_": "."}.get(char, re.escape(char))
        position += 1
    expression = re.compile(out, re.DOTALL)

    def holds(row: Row) -> Truth:
        value = target.value(row)
        return expression.fullmatch(value) is not None if isinstance(value, str) else None

    return Condition(f"({target.text} like {spelled(pattern)})", holds)


def regex(target: Operand, name: str, pattern: str, sign: str) -> Condition:
    """Patterns that Python and RE2 read alike."""
    expression = re.compile(pattern, re.DOTALL)

    def holds(row: Row) -> Truth:
        value = target.value(row)
        if row[name] is None:
            return None
        return (isinstance(value, str) and expression.search(value) is not None) == (sign == "=~")

    return Condition(f"({target.text} {sign} {spelled(pattern)})", holds)


def null(target: Operand, words: str) -> Condition:
    wanted = "not" not in words.lower()
    return Condition(f"({target.text} {words})", lambda row: (target.value(row) is None) == wanted)


def exists(target: Operand) -> Condition:
    return Condition(f"(exists {target.text})", lambda row: target.value(row) is not None)


# ---- of elements


def element_match(function: str, part: Condition, threshold: int) -> Condition:
    """``part`` is a condition on one of the structs in ``clips``."""
    wanted: dict[str, Callable[[int, int], bool]] = {
        "match_any": lambda count, _: count >= 1,
        "match_all": lambda count, total: count == total,
        "match_least": lambda count, _: count >= threshold,
        "match_most": lambda count, _: count <= threshold,
        "match_exact": lambda count, _: count == threshold,
    }
    name = function.lower()

    def holds(row: Row) -> Truth:
        if row["clips"] is None:
            return None
        count = sum(part.holds(clip) is True for clip in row["clips"])
        return wanted[name](count, len(row["clips"]))

    option = f", threshold={threshold}" if name in ("match_least", "match_most", "match_exact") else ""
    return Condition(f"{function}(clips, {part.text}{option})", holds)


# ---- of conditions


def every(truths: list[Truth]) -> Truth:
    return False if False in truths else None if None in truths else True


def some(truths: list[Truth]) -> Truth:
    return True if True in truths else None if None in truths else False


def logical(word: str, parts: tuple[Condition, ...]) -> Condition:
    decide = some if word in ("or", "||", "OR") else every
    return Condition(
        "(" + f" {word} ".join(part.text for part in parts) + ")",
        lambda row: decide([part.holds(row) for part in parts]),
        parts,
        lambda others: others[0] if len(others) == 1 else logical(word, others),
    )


def inverse(word: str, part: Condition) -> Condition:
    return Condition(
        f"{word}({part.text})",
        lambda row: None if (truth := part.holds(row)) is None else not truth,
        (part,),
        lambda others: inverse(word, others[0]),
    )
