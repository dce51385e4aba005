"""Random filters that know their own answer: text, and a function from a row to true, false or None.

The answers are computed row by row in plain Python from the definition of the language, and share nothing
with the code under test.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
from filter_arrays import COLUMNS as ARRAYS
from hypothesis import HealthCheck, settings

# Machines may be slow and tests may not be flaky: the same examples every time, however long they take.
STEADY = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

Row = dict[str, Any]
Answer = Callable[[Row], Any]


@dataclass(frozen=True)
class Expr:
    text: str
    answer: Answer

    def __repr__(self) -> str:
        return self.text


# ---- rows -------------------------------------------------------------------------------------------

WORDS = ("", "a", "ab", "abc", "b%", "a_c", "b\\", "a\nb", "é", "z")
_words = st.sampled_from(WORDS)
_halves = st.integers(-8, 8).map(lambda n: n / 2)
_json_scalars = st.one_of(st.none(), st.integers(-4, 4), _halves, _words, st.booleans())
_json_lists = st.lists(st.one_of(_json_scalars, st.lists(st.integers(0, 2), max_size=2)), max_size=3)
_json_values = st.one_of(_json_scalars, _json_lists, st.fixed_dictionaries({"c": _json_scalars}))
_objects = st.dictionaries(st.sampled_from(["a", "b", "l"]), _json_values, max_size=3)
_documents = st.one_of(_objects, _objects, _objects, _json_values)

ROWS = st.fixed_dictionaries(
    {
        "id": st.one_of(st.integers(-4, 4), st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1])),
        "tiny": st.one_of(st.none(), st.integers(-4, 4), st.sampled_from([127, -128])),
        "price": st.one_of(st.none(), _halves),
        "score": st.one_of(st.none(), _halves, st.just(float(np.float32(0.1)))),
        "color": st.one_of(st.none(), _words),
        "name": st.one_of(st.none(), _words),
        "flag": st.one_of(st.none(), st.booleans()),
        "meta": st.one_of(st.none(), _documents),
        "$meta": _objects,
        **ARRAYS,
    }
)


# ---- numbers ----------------------------------------------------------------------------------------


def number(value: Any) -> Any:
    return value if type(value) in (int, float) else None


def calculate(sign: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    whole = type(left) is int and type(right) is int
    if sign in "/%" and right == 0:
        return None
    if sign == "/":
        return (abs(left) // abs(right)) * (1 if (left < 0) == (right < 0) else -1) if whole else left / right
    if sign == "%":
        return int(math.fmod(left, right)) if whole else math.fmod(left, right)
    return {"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](left, right)


def path_value(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        if isinstance(value, dict) and str(step) in value:
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def field(name: str) -> Expr:
    return Expr(name, lambda row: row[name])


_JSON_PATHS: tuple[Expr, ...] = tuple(
    Expr(text, lambda row, field=field, path=path: path_value(row[field], path))
    for text, field, path in [
        ('meta["a"]', "meta", ("a",)),
        ("meta['b'][\"c\"]", "meta", ("b", "c")),
        ('meta["l"][0]', "meta", ("l", 0)),
        ("meta[1]", "meta", (1,)),
        ("meta", "meta", ()),
        ("a", "$meta", ("a",)),
        ('$meta["b"]', "$meta", ("b",)),
        ('b["c"]', "$meta", ("b", "c")),
    ]
)
json_paths = st.sampled_from(_JSON_PATHS)
literals = st.one_of(st.integers(-5, 5), _halves)


def literal(value: Any) -> Expr:
    text = json.dumps(value) if not isinstance(value, str) else quoted(value)
    return Expr(text, lambda _: value)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=len(text) % 2 == 0)


_numeric_fields = st.sampled_from(["tiny", "price"]).map(field)
_numeric_leaves = st.one_of(
    _numeric_fields, json_paths.map(lambda path: Expr(path.text, lambda row: number(path.answer(row))))
)


def _factor(value: float) -> Expr:
    return Expr(f"({value})" if value < 0 else str(value), lambda _: value)


@st.composite
def arithmetic(draw: st.DrawFn) -> Expr:
    """One field and constants; whole constants where the field is whole, so that the result is too."""
    left = draw(_numeric_leaves)
    constants = st.integers(-5, 5) if left.text == "tiny" else literals
    for _ in range(draw(st.integers(1, 2))):
        sign = draw(st.sampled_from(["+", "-", "*", "/"]))
        right = draw(constants.filter(bool).map(_factor))
        one, two = (right, left) if draw(st.booleans()) else (left, right)
        left = Expr(
            f"({one.text} {sign} {two.text})",
            lambda row, sign=sign, one=one, two=two: calculate(sign, one.answer(row), two.answer(row)),
        )
    return left


remainders = st.builds(
    lambda path, divisor: Expr(
        f"({path.text} % {divisor})", lambda row: calculate("%", number(path.answer(row)), divisor)
    ),
    st.one_of(st.just(field("tiny")), json_paths),
    st.integers(-3, 3).filter(bool),
)


# ---- conditions -------------------------------------------------------------------------------------

_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
signs = st.sampled_from(sorted(_COMPARE))


def compare(sign: str, left: Any, right: Any) -> bool | None:
    return None if left is None or right is None else bool(_COMPARE[sign](left, right))


def comparison(left: Expr, sign: str, right: Expr, mirror: bool) -> Expr:
    text = f"{right.text} {_MIRRORED[sign]} {left.text}" if mirror else f"{left.text} {sign} {right.text}"
    return Expr(f"({text})", lambda row: compare(sign, left.answer(row), right.answer(row)))


def same_kind(value: Any, like: Any) -> bool:
    """Whether a JSON value is of a literal's type."""
    kinds = [(bool,), (int, float), (str,), (list,)]
    return any(type(value) in kind and type(like) in kind for kind in kinds)


def typed(path: Expr, like: Any) -> Expr:
    def answer(row: Row) -> Any:
        value = path.answer(row)
        return value if same_kind(value, like) else None

    return Expr(path.text, answer)


def _is_whole(target: Expr) -> bool:
    """Whether the type of the target is an integer, so that it is compared with whole numbers only."""
    return target.text == "id" or "tiny" in target.text


@st.composite
def number_comparisons(draw: st.DrawFn) -> Expr:
    target = draw(st.one_of(st.just(field("id")), _numeric_fields, arithmetic(), remainders))
    limits = st.sampled_from([2**53 + 1, 2**53, 2**63 - 1, 1000, -1000])
    values = st.one_of(st.integers(-5, 5) if _is_whole(target) else literals, limits)
    return comparison(target, draw(signs), literal(draw(values)), draw(st.booleans()))


_score_comparisons = st.builds(
    lambda sign, value, mirror: Expr(
        comparison(field("score"), sign, literal(value), mirror).text,
        lambda row: compare(sign, row["score"], float(np.float32(value))),
    ),
    signs,
    st.one_of(literals, st.just(0.1)),
    st.booleans(),
)
_text_comparisons = st.builds(
    comparison, st.sampled_from(["color", "name"]).map(field), signs, _words.map(literal), st.booleans()
)
_flag_comparisons = st.builds(
    comparison,
    st.just(field("flag")),
    st.sampled_from(["==", "!="]),
    st.booleans().map(literal),
    st.booleans(),
)
_field_comparisons = st.one_of(
    st.builds(
        comparison,
        st.sampled_from(["tiny", "price", "score"]).map(field),
        signs,
        st.sampled_from(["tiny", "price", "score", "id"]).map(field),
        st.just(False),
    ).filter(lambda expr: "id" not in expr.text or "tiny" in expr.text),  # doubles cannot hold every id
    st.builds(comparison, st.just(field("color")), signs, st.just(field("name")), st.just(False)),
)


@st.composite
def json_comparisons(draw: st.DrawFn) -> Expr:
    value = draw(st.one_of(literals, _words, st.booleans(), st.lists(literals, max_size=2)))
    unordered = isinstance(value, bool | list)
    sign = draw(st.sampled_from(["==", "!="]) if unordered else signs)
    path, mirror = typed(draw(json_paths), value), draw(st.booleans())
    if not isinstance(value, list):
        return comparison(path, sign, literal(value), mirror)

    def answer(row: Row) -> bool | None:
        found = path.answer(row)
        return None if found is None else _equal(found, value) == (sign == "==")

    return Expr(comparison(path, sign, literal(value), mirror).text, answer)


def negated(expr: Expr, how: str) -> Expr:
    return Expr(f"{how}({expr.text})", lambda row: None if (it := expr.answer(row)) is None else not it)


def _equal(one: Any, other: Any) -> bool:
    """JSON's equality: unlike Python's, true is not 1."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one is other or (same_kind(one, other) and one == other)


def _is_in(value: Any, items: list[Any]) -> bool:
    return any(_equal(value, item) for item in items)


def listed(items: list[Any], spelling: int) -> str:
    """A list in one of its spellings: JSON's, Python's, or with an element that must be computed."""
    if spelling == 1:
        return repr(items)
    if spelling == 2 and items and type(items[0]) is int:
        return json.dumps(items).replace("[", f"[{items[0]} * 1, ", 1)
    return json.dumps(items)


@st.composite
def memberships(draw: st.DrawFn) -> Expr:
    name, elements = draw(
        st.sampled_from(
            [
                ("id", st.integers(-4, 4)),
                ("tiny", st.one_of(st.integers(-4, 4), st.just(1000))),
                ("price", literals),
                ("color", _words),
                ("flag", st.booleans()),
            ]
        )
    )
    items = draw(st.lists(elements, max_size=4))
    text = listed(items, draw(st.integers(0, 2)))

    def answer(row: Row) -> bool | None:
        return None if row[name] is None else _is_in(row[name], items)

    if draw(st.booleans()):
        return Expr(f"({name} not in {text})", negated(Expr("", answer), "").answer)
    return Expr(f"({name} in {text})", answer)


def _plain_json(items: Any) -> Any:
    """Literals may not be null."""
    return [_plain_json(item) if isinstance(item, list) else item for item in items if item is not None]


@st.composite
def json_memberships(draw: st.DrawFn) -> Expr:
    path = draw(json_paths)
    items = _plain_json(draw(_json_lists))

    def answer(row: Row) -> bool | None:
        value = path.answer(row)
        if value is None or (items and not any(same_kind(value, item) for item in items)):
            return None
        return _is_in(value, items)

    return Expr(f"({path.text} in {json.dumps(items)})", answer)


@st.composite
def json_contains(draw: st.DrawFn) -> Expr:
    path = draw(json_paths)
    items = _plain_json(draw(_json_lists))
    function = draw(st.sampled_from(["json_contains", "JSON_CONTAINS_ANY", "array_contains_all"]))
    if function == "json_contains":
        items = items[:1] or [1]
    need_all = function.endswith("all")
    argument = items[0] if function == "json_contains" else items

    def answer(row: Row) -> bool | None:
        value = path.answer(row)
        if not items:
            return need_all
        if not isinstance(value, list):
            return None
        return (all if need_all else any)(_is_in(item, value) for item in items)

    return Expr(f"{function}({path.text}, {json.dumps(argument)})", answer)


def like_regex(pattern: str) -> re.Pattern[str]:
    out, position = "", 0
    while position < len(pattern):
        char, following = pattern[position], pattern[position + 1 : position + 2]
        if char == "\\" and following in ("%", "_", "\\"):
            out += re.escape(following)
            position += 1
        else:
            out += {"%": ".*", "_": "."}.get(char, re.escape(char))
        position += 1
    return re.compile(out, re.DOTALL)


@st.composite
def likes(draw: st.DrawFn) -> Expr:
    pieces = st.sampled_from(["%", "_", "a", "b", "c", "\\%", "\\_", "\\\\", "\\", "é", "\n"])
    pattern = "".join(draw(st.lists(pieces, max_size=4)))
    target = draw(st.one_of(st.just(field("color")), json_paths.map(lambda path: typed(path, ""))))
    regex = like_regex(pattern)

    def answer(row: Row) -> bool | None:
        value = target.answer(row)
        return None if value is None else regex.fullmatch(value) is not None

    return Expr(f"({target.text} like {quoted(pattern)})", answer)


@st.composite
def null_tests(draw: st.DrawFn) -> Expr:
    target = draw(st.one_of(st.sampled_from(["id", "tiny", "color", "meta"]).map(field), json_paths))
    words = draw(st.sampled_from(["is null", "IS NOT NULL", "is  Not\tnull", "exists"]))
    if words == "exists":
        if "[" not in target.text:
            target = Expr('meta["a"]', lambda row: path_value(row["meta"], ("a",)))
        return Expr(f"(exists {target.text})", lambda row: target.answer(row) is not None)
    wanted = "not" not in words.lower()
    # A whole JSON field is null when the row has none; JSON's own null is a value there.
    return Expr(f"({target.text} {words})", lambda row: (target.answer(row) is None) == wanted)


@st.composite
def chains(draw: st.DrawFn) -> Expr:
    target = draw(st.one_of(_numeric_fields, json_paths.map(lambda path: typed(path, 1))))
    bounds = st.integers(-5, 5) if _is_whole(target) else literals
    low, high = sorted(draw(st.tuples(bounds, bounds)))
    one, two = draw(st.tuples(st.sampled_from(["<", "<="]), st.sampled_from(["<", "<="])))
    if low == high:
        one = two = "<="

    def answer(row: Row) -> bool | None:
        value = target.answer(row)
        return None if value is None else _COMPARE[one](low, value) and _COMPARE[two](value, high)

    if draw(st.booleans()):
        return Expr(f"({high} {_MIRRORED[two]} {target.text} {_MIRRORED[one]} {low})", answer)
    return Expr(f"({low} {one} {target.text} {two} {high})", answer)


def logical(word: str, parts: list[Expr]) -> Expr:
    decisive = word in ("or", "||", "OR")

    def answer(row: Row) -> bool | None:
        answers = [part.answer(row) for part in parts]
        if decisive in answers:
            return decisive
        return None if None in answers else not decisive

    return Expr("(" + f" {word} ".join(part.text for part in parts) + ")", answer)


leaves = st.one_of(
    number_comparisons(),
    _score_comparisons,
    _text_comparisons,
    _flag_comparisons,
    _field_comparisons,
    json_comparisons(),
    memberships(),
    json_memberships(),
    json_contains(),
    likes(),
    null_tests(),
    chains(),
)


def branches(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    words = st.sampled_from(["and", "&&", "AND", "or", "||", "OR"])
    return st.one_of(
        st.builds(logical, words, st.lists(children, min_size=2, max_size=3)),
        st.builds(negated, children, st.sampled_from(["not ", "!", "NOT"])),
    )


FILTERS = st.recursive(leaves, branches, max_leaves=5)
