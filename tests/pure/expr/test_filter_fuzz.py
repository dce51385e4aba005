"""Random filters on random rows of every type: the evaluator's answers are those of the definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from fuzz_indexed import WithIndexes
from fuzz_runner import BACKENDS, packed, plain, run

from elanus.expr import BoundFilter, evaluate, indexed
from elanus.index import ScalarIndex

EVALUATIONS = 120_000
Record = Callable[[str, object], None]


def test_every_way_to_evaluate_a_filter_gives_the_defined_answer(record_property: Record) -> None:
    summary = run(0, EVALUATIONS)
    assert summary.evaluations >= EVALUATIONS
    assert 0.1 < summary.matches * len(BACKENDS) / summary.evaluations < 0.9, "the filters distinguish rows"
    record_property("filter fuzz", str(summary))


def test_looking_at_undecided_rows_only_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    """Every conjunction and disjunction goes on with the undecided rows alone."""
    for name in ("SELECT_ROWS_MIN", "SCATTER_COST", "TAKE_COST"):
        monkeypatch.setattr(evaluate, name, 0)
    summary = run(100_000, EVALUATIONS // 2, {"plain": plain, "packed": packed})
    record_property("filter fuzz, undecided rows only", str(summary))


def test_indexes_of_every_kind_change_no_answer(
    monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    """Every field has an index, which is used whenever it has an answer."""
    monkeypatch.setattr(indexed, "SCAN_COST_MIN", -1)
    monkeypatch.setattr(indexed, "SPARSE_SHARE_MAX", 10.0)
    monkeypatch.setattr(ScalarIndex, "rows_share_max", 10.0)
    with_indexes = WithIndexes()
    summary = run(200_000, EVALUATIONS // 6, {"indexes": with_indexes})
    kinds = {"STL_SORT", "INVERTED", "BITMAP", "Trie", "NGRAM", "HYBRID", "AUTOINDEX"}
    assert kinds == {kind for kind, times in with_indexes.used.items() if times > 3}, with_indexes.used
    record_property("filter fuzz, with indexes", str(summary))


def test_a_wrong_answer_is_reduced_to_one_row_and_a_small_filter() -> None:
    def without_nulls(bound: BoundFilter, columns: Mapping[str, pa.Array], rows: int) -> list[bool]:
        mask = plain(bound, columns, rows)
        if "color is null" not in bound.explain():
            return mask
        return [
            found and color is not None
            for found, color in zip(mask, columns["color"].to_pylist(), strict=True)
        ]

    with pytest.raises(AssertionError) as caught:
        run(0, EVALUATIONS, {"without nulls": without_nulls})
    report = str(caught.value).splitlines()
    assert ", without nulls: " in report[1]
    assert report[1].count("(") <= 2
    assert "color" in report[1]
    assert report[2].startswith("is True of {")
    assert "'color': None" in report[2]
