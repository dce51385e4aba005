"""Random filters over the fields of `fuzz_rows`."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import fuzz_conditions as conditions
from fuzz_conditions import Condition, Operand
from fuzz_rows import ARRAYS, INTEGERS, MEMBERS, TEXTS, element, fraction, json_value, whole, word

_PATHS = (
    conditions.path('meta["a"]', "meta", ("a",)),
    conditions.path("meta['b'][\"a\"]", "meta", ("b", "a")),
    conditions.path('meta["l"][0]', "meta", ("l", 0)),
    conditions.path("meta[1]", "meta", (1,)),
    conditions.path('meta["0"]', "meta", ("0",)),
    conditions.path("meta", "meta", ()),
    conditions.path("a", "$meta", ("a",)),
    conditions.path('$meta["b"]', "$meta", ("b",)),
    conditions.path('l[r"a"]', "$meta", ("l", "a")),
)
_PIECES = ("%", "%", "_", "a", "b", "c", "\\%", "\\_", "\\\\", "\\", "é", "\n")
_PATTERNS = ("a", "^a", "b$", "^$", ".", "a.b", "[a-c]+", "(?i)A", "a|é", "", "^[^a]", "(?:ab)?c", "漢")
_SIGNS = tuple(conditions.COMPARE)
_EQUALITY = ("==", "!=")


class Generator:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._leaves: tuple[Callable[[], Condition], ...] = (
            self._number,
            self._number,
            self._text,
            self._flag,
            self._two_fields,
            self._json,
            self._json,
            self._chain,
            self._member,
            self._json_member,
            self._json_contains,
            self._like,
            self._regex,
            self._null,
            self._length,
            self._element,
            self._array,
            self._array_contains,
            self._element_match,
        )

    def filter(self, depth: int = 3) -> Condition:
        choice = self._random.random()
        if depth == 0 or choice < 0.35:
            return self._one_of(self._leaves)()
        if choice < 0.5:
            return conditions.inverse(self._one_of(("not ", "!", "NOT")), self.filter(depth - 1))
        parts = tuple(self.filter(depth - 1) for _ in range(self._random.choice((2, 2, 3))))
        return conditions.logical(self._one_of(("and", "&&", "AND", "or", "||", "OR")), parts)

    def _one_of(self, choices: Any) -> Any:
        return self._random.choice(choices)

    def _chance(self) -> bool:
        return self._random.random() < 0.5

    # ---- operands and literals

    def _numeric(self) -> Operand:
        name = self._one_of((*INTEGERS, "price", "score"))
        kinds = {"price": "floating", "score": "single"}
        return conditions.field(name, kinds.get(name, "integer"))

    def _json_path(self) -> Operand:
        return self._one_of(_PATHS)  # type: ignore[no-any-return]

    def _literal(self, target: Operand) -> Any:
        """A literal that may be compared with the operand: whole numbers with whole numbers."""
        if target.is_whole or self._chance():
            return whole(self._random)
        number = fraction(self._random)
        return number if math.isfinite(number) else 0.25

    def _calculated(self, target: Operand) -> Operand:
        for _ in range(self._one_of((1, 1, 2))):
            signs: tuple[str, ...] = ("+", "-", "*", "/")
            if target.kind in ("integer", "json"):
                signs += ("%", "&", "|", "^", "<<", ">>")
            sign, value = self._one_of(signs), self._literal(target)
            if sign in ("%", "&", "|", "^"):
                value = int(value) if abs(value) < 2**63 else 7
            if sign in ("/", "%") and self._chance():
                value = self._one_of((-1, 1, 2, -3))
            if sign in ("<<", ">>"):
                value = self._random.randrange(64)
            other = conditions.constant(value or 3)
            if target.kind == "single":
                target = Operand(target.text, "floating", target.value)
            swap = sign in ("+", "-", "*", "&", "|", "^") and self._random.random() < 0.3
            target = conditions.calculation(sign, *((other, target) if swap else (target, other)))
        return target

    # ---- conditions on fields

    def _number(self) -> Condition:
        target = self._numeric()
        if self._chance():
            target = self._calculated(target)
        return self._compared(target, self._literal(target), _SIGNS)

    def _compared(self, target: Operand, value: Any, signs: tuple[str, ...]) -> Condition:
        return conditions.comparison(target, self._one_of(signs), value, mirrored=self._random.random() < 0.3)

    def _text(self) -> Condition:
        target = conditions.field(self._one_of(TEXTS), "text")
        return self._compared(target, word(self._random), _SIGNS)

    def _flag(self) -> Condition:
        return self._compared(conditions.field("flag", "bool"), self._chance(), _EQUALITY)

    def _two_fields(self) -> Condition:
        if self._random.random() < 0.3:
            left, right = (conditions.field(name, "text") for name in TEXTS)
        else:
            left, right = self._numeric(), self._numeric()
        return conditions.of_two(left, self._one_of(_SIGNS), right)

    def _chain(self) -> Condition:
        target = self._one_of((self._numeric, self._json_path))()
        low, high = sorted((self._literal(target), self._literal(target)))
        if target.kind == "single":  # a chain whose bounds change places by rounding is refused
            low, high = sorted((self._random.randrange(-8, 8) / 4, self._random.randrange(-8, 8) / 4))
        one, two = self._one_of(("<", "<=")), self._one_of(("<", "<="))
        if float(low) == float(high):
            low, one, two = high, "<=", "<="
        return conditions.chain(target, low, one, two, high, falling=self._chance())

    def _member(self) -> Condition:
        name = self._one_of(("id", "tiny", "large", "price", "score", "color", "flag"))
        kinds = {"price": "floating", "score": "single", "color": "text", "flag": "bool"}
        target = conditions.field(name, kinds.get(name, "integer"))
        makers: dict[str, Callable[[], Any]] = {
            "text": lambda: word(self._random),
            "bool": self._chance,
        }
        make = makers.get(target.kind, lambda: self._literal(target))
        items = [make() for _ in range(self._random.randrange(5))]
        return conditions.member(target, items, self._spelled(items), negated=self._chance())

    def _spelled(self, items: list[Any]) -> str:
        """A list in one of its spellings: JSON's, Python's, or with an element that must be computed."""
        match self._random.randrange(3):
            case 0:
                return conditions.spelled(items)
            case 1:
                return repr(items)
        if items and type(items[0]) is int:
            return f"[{items[0]} * 1, {conditions.spelled(items)[1:]}"
        return conditions.spelled(items)

    def _like(self) -> Condition:
        pattern = "".join(self._one_of(_PIECES) for _ in range(self._random.randrange(5)))
        texts = (
            conditions.field("color", "text"),
            self._json_path(),
            conditions.path("labels[0]", "labels", (0,)),
        )
        return conditions.like(self._one_of(texts), pattern)

    def _regex(self) -> Condition:
        name = self._one_of(("color", "meta", "labels"))
        targets = {
            "color": conditions.field("color", "text"),
            "meta": self._one_of([path for path in _PATHS if path.text.startswith("meta")]),
            "labels": conditions.path("labels[1]", "labels", (1,)),
        }
        return conditions.regex(targets[name], name, self._one_of(_PATTERNS), self._one_of(("=~", "!~")))

    def _null(self) -> Condition:
        words = self._one_of(("is null", "IS NOT NULL", "is  Not\tnull", "exists"))
        if words == "exists":
            return conditions.exists(self._one_of([path for path in _PATHS if path.text != "meta"]))
        name = self._one_of(("id", "tiny", "price", "color", "flag", "meta", "clips", *ARRAYS))
        return conditions.null(self._one_of((conditions.field(name, "any"), self._json_path())), words)

    # ---- JSON

    def _json(self) -> Condition:
        target = self._json_path()
        if self._random.random() < 0.3:
            target = self._calculated(target)
            return self._compared(target, self._literal(target), _SIGNS)
        value = self._one_of((self._literal(target), word(self._random), self._chance(), self._json_items()))
        return self._compared(target, value, _EQUALITY if isinstance(value, bool | list) else _SIGNS)

    def _json_items(self) -> list[Any]:
        values = [json_value(self._random, 1) for _ in range(self._random.randrange(4))]
        return [value for value in values if value is not None and _is_literal(value)]

    def _json_member(self) -> Condition:
        items = self._json_items()
        text = conditions.spelled(items)
        return conditions.member(self._json_path(), items, text, negated=self._chance())

    def _json_contains(self) -> Condition:
        function = self._one_of(
            ("json_contains", "JSON_CONTAINS_ANY", "array_contains_all", "json_contains_all")
        )
        items = self._json_items()
        if function == "json_contains":
            items = items[:1] or [1]
        need_all = function.endswith("all")
        return conditions.contains(function, self._json_path(), items, need_all=need_all)

    # ---- arrays

    def _length(self) -> Condition:
        arrays = (conditions.field(self._one_of((*ARRAYS, "clips")), "array"), self._json_path())
        target = conditions.length(self._one_of(arrays))
        return self._compared(target, self._random.randrange(-1, 5), _SIGNS)

    def _of_array(self, name: str) -> Any:
        value = element(self._random, ARRAYS[name])
        return 0.25 if isinstance(value, float) and not math.isfinite(value) else value

    def _element(self) -> Condition:
        name = self._one_of(tuple(ARRAYS))
        kinds = {"singles": "single", "doubles": "floating", "labels": "text", "flags": "bool"}
        index = self._random.randrange(4)
        target = conditions.path(f"{name}[{index}]", name, (index,), kinds.get(name, "integer"))
        value = self._of_array(name)
        if self._random.random() < 0.3:
            return conditions.member(target, [value], conditions.spelled([value]), negated=self._chance())
        return self._compared(target, value, _EQUALITY if name == "flags" else _SIGNS)

    def _array(self) -> Condition:
        name = self._one_of(tuple(ARRAYS))
        items = [self._of_array(name) for _ in range(self._random.randrange(3))]
        target = conditions.field(name, "array")
        return conditions.array_equal(target, self._one_of(_EQUALITY), items, rounded=name == "singles")

    def _array_contains(self) -> Condition:
        name = self._one_of(tuple(ARRAYS))
        function = self._one_of(("array_contains", "ARRAY_CONTAINS_ANY", "array_contains_all"))
        items = [self._of_array(name) for _ in range(self._random.randrange(1, 4))]
        if function == "array_contains":
            items = items[:1]
        return conditions.contains(
            function,
            conditions.field(name, "array"),
            items,
            need_all=function.endswith("all"),
            rounded=name == "singles",
        )

    # ---- elements

    def _element_match(self) -> Condition:
        function = self._one_of(("MATCH_ANY", "match_all", "Match_Least", "match_most", "match_exact"))
        return conditions.element_match(function, self._of_element(2), self._one_of((1, 1, 2, 3)))

    def _of_element(self, depth: int) -> Condition:
        """A condition on one struct of ``clips``."""
        if depth and self._random.random() < 0.3:
            parts = tuple(self._of_element(depth - 1) for _ in range(2))
            return conditions.logical(self._one_of(("and", "||")), parts)
        if depth and self._random.random() < 0.2:
            return conditions.inverse("not ", self._of_element(depth - 1))
        name = self._one_of(tuple(MEMBERS))
        kind = {"size": "integer", "rate": "floating", "label": "text", "shown": "bool"}[name]
        target = Operand(f"$[{name}]", kind, lambda clip: clip[name])
        if kind == "text" and self._chance():
            return conditions.like(target, self._one_of(("a%", "%b", "_", "%")))
        if kind == "integer" and self._chance():
            target = self._calculated(target)
        value = element(self._random, MEMBERS[name])
        value = 0.25 if isinstance(value, float) and not math.isfinite(value) else value
        if target.text.startswith("$") and self._random.random() < 0.3:
            return conditions.member(target, [value], conditions.spelled([value]), negated=self._chance())
        return self._compared(target, value, _EQUALITY if kind == "bool" else _SIGNS)


def _is_literal(value: Any) -> bool:
    """Whether a JSON value can be written as a literal: objects and null cannot."""
    if isinstance(value, list):
        return all(map(_is_literal, value))
    return isinstance(value, bool | int | float | str)
