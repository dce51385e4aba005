"""Runs random filters over random rows, and reduces a wrong answer to one row and the smallest filter.

PYTHONPATH=src python tests/pure/expr/fuzz_runner.py FIRST_SEED EVALUATIONS
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
from fuzz_conditions import Condition
from fuzz_generator import Generator
from fuzz_rows import FLOATING, INTEGERS, SCHEMA, TEXTS, Row, columns_of, random_rows

from elanus.expr import BoundFilter, JsonColumn, compile_filter

Backend = Callable[[BoundFilter, Mapping[str, pa.Array], int], list[bool]]
"""Evaluates a filter over columns in one way: with or without an index, in chunks, …"""

_ROWS = 24
_FILTERS_PER_BATCH = 16
_PRUNED_TOGETHER = 2


def plain(bound: BoundFilter, columns: Mapping[str, pa.Array], rows: int) -> list[bool]:
    return bound.evaluate(columns, rows).tolist()


def packed(bound: BoundFilter, columns: Mapping[str, pa.Array], rows: int) -> list[bool]:
    """The columns in other forms: two chunks, dictionaries, JSON that stays decoded."""
    forms: dict[str, Any] = {}
    for name in bound.field_names:
        column = columns[name]
        encoded = column.dictionary_encode() if name in ("tiny", "color", "name", "meta") else column
        forms[name] = pa.chunked_array([encoded.slice(0, rows // 3), encoded.slice(rows // 3)])
    if "$meta" in forms:
        forms["$meta"] = JsonColumn(forms["$meta"])
    return bound.evaluate(forms, rows).tolist()


def explained(bound: BoundFilter, columns: Mapping[str, pa.Array], rows: int) -> list[bool]:
    """By the filter's explanation, which is a filter too, and of the columns that it names."""
    again = compile_filter(bound.explain(), SCHEMA)
    return plain(again, {name: columns[name] for name in bound.field_names}, rows)


def pruned(bound: BoundFilter, columns: Mapping[str, pa.Array], rows: int) -> list[bool]:
    """Without the runs of rows that their bounds rule out. As in Parquet, bounds leave out NaN."""
    mask = plain(bound, columns, rows)
    for first in range(0, rows, _PRUNED_TOGETHER):
        part = slice(first, min(first + _PRUNED_TOGETHER, rows))
        if not bound.may_match(_bounds(columns, part)):
            mask[part] = [False] * len(mask[part])
    return mask


def _bounds(columns: Mapping[str, pa.Array], part: slice) -> dict[str, tuple[object, object]]:
    bounds = {}
    for name in (*INTEGERS, *FLOATING, *TEXTS, "flag"):
        values = [value for value in columns[name][part].to_pylist() if value is not None and value == value]
        if values:
            bounds[name] = (min(values), max(values))
    return bounds


BACKENDS: dict[str, Backend] = {"plain": plain, "packed": packed, "explained": explained, "pruned": pruned}


@dataclass(frozen=True)
class Difference:
    """A filter, a row, what is right, and what came out instead."""

    seed: int
    backend: str
    filter: str
    row: Row
    expected: bool
    found: object

    def __str__(self) -> str:
        fields = {name: self.row[name] for name in sorted(self.row) if name in self.filter or name == "$meta"}
        return (
            f"seed {self.seed}, {self.backend}: {self.filter}\n"
            f"is {self.expected} of {fields}, and not {self.found}"
        )


@dataclass
class Summary:
    """The work of a run that found no difference."""

    seeds: int = 0
    filters: int = 0
    evaluations: int = 0
    matches: int = 0

    def __str__(self) -> str:
        return (
            f"{self.filters:,} filters of {self.seeds:,} seeds, {self.evaluations:,} evaluations of a filter "
            f"on a row, no difference; {self.matches:,} rows matched"
        )


def run(first_seed: int, evaluations: int, backends: Mapping[str, Backend] = BACKENDS) -> Summary:
    """Check at least so many evaluations of a filter on a row.

    Raises `AssertionError` with the smallest case of the first difference.
    """
    summary, seed = Summary(), first_seed
    while summary.evaluations < evaluations:
        random = Random(seed)
        rows = random_rows(random, _ROWS)
        columns, generator = columns_of(rows), Generator(random)
        for _ in range(_FILTERS_PER_BATCH):
            condition = generator.filter()
            expected = [condition.holds(row) is True for row in rows]
            summary.filters += 1
            summary.matches += sum(expected)
            for name, backend in backends.items():
                if _answer(backend, condition, columns, _ROWS) != expected:
                    raise AssertionError(f"\n{smallest(seed, name, backend, condition, rows)}")
                summary.evaluations += _ROWS
        summary.seeds += 1
        seed += 1
    return summary


def _answer(backend: Backend, condition: Condition, columns: Mapping[str, pa.Array], rows: int) -> object:
    """The mask, or the error instead: a valid filter that raises is a difference, too."""
    try:
        return backend(compile_filter(condition.text, SCHEMA), columns, rows)
    except Exception as problem:  # noqa: BLE001 - whatever is raised is reported with its filter
        return f"{type(problem).__name__}: {problem}"


def smallest(seed: int, name: str, backend: Backend, condition: Condition, rows: list[Row]) -> Difference:
    """Reduce a difference to one row, and to a filter of which no part shows it."""
    differences = []
    for row in (row for row in rows if _differs(backend, condition, row)):
        least = condition
        while smaller := next((part for part in _smaller(least) if _differs(backend, part, row)), None):
            least = smaller
        found = _answer(backend, least, columns_of([row]), 1)
        differences.append(Difference(seed, name, least.text, row, least.holds(row) is True, found))
    if not differences:
        raise AssertionError(f"seed {seed}, {name}: {condition.text} is wrong for all rows together only")
    return min(differences, key=lambda difference: len(difference.filter))


def _differs(backend: Backend, condition: Condition, row: Row) -> bool:
    return _answer(backend, condition, columns_of([row]), 1) != [condition.holds(row) is True]


def _smaller(condition: Condition) -> Iterator[Condition]:
    """Each part alone, the condition without one of its parts, and with one part made smaller."""
    yield from condition.parts
    if condition.again is None:
        return
    for number, part in enumerate(condition.parts):
        others = condition.parts[:number] + condition.parts[number + 1 :]
        if others:
            yield condition.again(others)
        for smaller in _smaller(part):
            yield condition.again((*condition.parts[:number], smaller, *condition.parts[number + 1 :]))


if __name__ == "__main__":
    print(run(*map(int, sys.argv[1:])))  # noqa: T201 - this is a command
