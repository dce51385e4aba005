"""Random filters on array fields that know their own answer, as those of `filter_oracle` do."""

from __future__ import annotations

import json

import filter_arrays as arrays
import hypothesis.strategies as st
from filter_oracle import (
    Expr,
    Row,
    branches,
    calculate,
    compare,
    comparison,
    field,
    json_paths,
    leaves,
    literal,
    path_value,
    signs,
)


def _element(name: str, index: int) -> Expr:
    return Expr(f"{name}[{index}]", lambda row: path_value(row[name], (index,)))


_indexes = st.sampled_from([0, 0, 1, 2, 5])
_lengths = st.one_of(
    st.sampled_from(list(arrays.LITERALS)).map(
        lambda name: Expr(f"array_length({name})", lambda row: None if row[name] is None else len(row[name]))
    ),
    json_paths.map(
        lambda path: Expr(
            f"ARRAY_LENGTH({path.text})",
            lambda row: len(path.answer(row)) if isinstance(path.answer(row), list) else None,
        )
    ),
)


@st.composite
def element_comparisons(draw: st.DrawFn) -> Expr:
    name = draw(st.sampled_from(list(arrays.LITERALS)))
    target, value = _element(name, draw(_indexes)), draw(arrays.LITERALS[name])
    if name in ("bytes", "longs") and isinstance(value, float):
        value = int(value)
    if draw(st.booleans()):

        def found(row: Row) -> bool | None:
            return compare("==", target.answer(row), arrays.stored(name, value))

        return Expr(f"({target.text} in {json.dumps([value])})", found)
    sign = draw(st.sampled_from(["==", "!="]) if name == "flags" else signs)
    rounded = Expr("", lambda _: arrays.stored(name, value))
    text = comparison(target, sign, literal(value), False).text
    return Expr(text, comparison(target, sign, rounded, False).answer)


_element_arithmetic = st.builds(
    lambda name, index, sign, value, bound: comparison(
        Expr(f"{name}[{index}] * 2", lambda row: calculate("*", path_value(row[name], (index,)), 2)),
        sign,
        literal(bound),
        value,
    ),
    st.sampled_from(["bytes", "longs", "doubles"]),
    _indexes,
    signs,
    st.booleans(),
    st.integers(-5, 5),
)


@st.composite
def array_equalities(draw: st.DrawFn) -> Expr:
    name, sign = draw(st.sampled_from(list(arrays.LITERALS))), draw(st.sampled_from(["==", "!="]))
    items = draw(st.lists(arrays.LITERALS[name], max_size=3))
    wanted = [arrays.stored(name, item) for item in items]

    def answer(row: Row) -> bool | None:
        return None if row[name] is None else (row[name] == wanted) == (sign == "==")

    return Expr(
        comparison(field(name), sign, Expr(json.dumps(items), answer), draw(st.booleans())).text, answer
    )


@st.composite
def array_contains(draw: st.DrawFn) -> Expr:
    name = draw(st.sampled_from(list(arrays.LITERALS)))
    function = draw(st.sampled_from(["array_contains", "ARRAY_CONTAINS_ANY", "json_contains_all"]))
    few = 1 if function == "array_contains" else 0
    items = draw(st.lists(arrays.LITERALS[name], min_size=few, max_size=3))
    if function == "array_contains":
        items = items[:1]
    argument = items[0] if function == "array_contains" else items
    held = all if function.endswith("all") else any

    def answer(row: Row) -> bool | None:
        if row[name] is None:
            return None
        return held(arrays.stored(name, item) in row[name] for item in items)

    return Expr(f"{function}({name}, {json.dumps(argument)})", answer)


_label_patterns = st.builds(
    lambda index, start: Expr(
        f'(labels[{index}] like "{start}%")',
        lambda row: None if (it := path_value(row["labels"], (index,))) is None else it.startswith(start),
    ),
    _indexes,
    st.sampled_from(["a", "", "ab"]),
)
array_conditions = (
    element_comparisons(),
    _element_arithmetic,
    array_equalities(),
    array_contains(),
    array_contains(),
    _label_patterns,
    st.builds(comparison, _lengths, signs, st.integers(-1, 4).map(literal), st.booleans()),
)

ARRAY_FILTERS = st.recursive(st.one_of(*array_conditions, leaves), branches, max_leaves=4)
