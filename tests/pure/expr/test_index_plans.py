"""Which indexes a filter uses, counted by what they are asked, and what the explanation says about it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from filter_schemas import DYNAMIC
from indexed_columns import built, params_of

from elanus.core.lookup import Found, Lookup, PackedRows, RowNumbers
from elanus.expr import JsonColumn, compile_filter, indexed, kernels
from elanus.index import RowMask, ScalarIndex

ROWS = 10_000
COLUMNS: Mapping[str, pa.Array] = {
    "id": pa.array(range(ROWS)),
    "tiny": pa.array([n % 100 for n in range(ROWS)], pa.int8()),
    "price": pa.array([n / 10 for n in range(ROWS)]),
    "color": pa.array([f"c{n % 3}" if n % 7 else None for n in range(ROWS)]),
    "name": pa.array([f"user {n:05d}" for n in range(ROWS)]),
    "labels": pa.array([[f"l{n % 50}", "all"] for n in range(ROWS)]),
    "longs": pa.array([[n] for n in range(ROWS)]),
    "doubles": pa.array([[n / 10 + 0.5, float("nan")] for n in range(ROWS)]),
    "meta": pa.array([json.dumps({"a": n % 1000 if n % 2 else str(n), "t": [n % 400]}) for n in range(ROWS)]),
}


@pytest.fixture(autouse=True)
def compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares any scan with an index, however cheap it is."""
    monkeypatch.setattr(indexed, "SCAN_COST_MIN", 0)


class Asked:
    """An index that counts what it is asked."""

    def __init__(self, index: ScalarIndex) -> None:
        self.index = index
        self.rows_share_max, self.has_bits = index.rows_share_max, index.has_bits
        self.title, self.finds_quickly = index.title, index.finds_quickly
        self.found = 0

    def estimate(self, lookup: Lookup) -> int | None:
        return self.index.estimate(lookup)

    def find(self, lookup: Lookup) -> Found | None:
        self.found += 1
        return self.index.find(lookup)


def indexes(**kinds: str) -> dict[tuple[str, tuple[str | int, ...]], Asked]:
    made = dict(built(name, COLUMNS[name], params_of(kind)) for name, kind in kinds.items())
    return {key: Asked(index) for key, index in made.items()}


def path(text: str, cast: str) -> dict[tuple[str, tuple[str | int, ...]], Asked]:
    params = {"index_type": "INVERTED", "json_path": text, "json_cast_type": cast}
    key, index = built("meta", COLUMNS["meta"], params)
    return {key: Asked(index)}


def explained(text: str, over: Mapping[tuple[str, tuple[str | int, ...]], Asked]) -> str:
    """The explanation; the answer is compared with the scan's."""
    chosen = compile_filter(text, DYNAMIC)
    assert np.array_equal(chosen.evaluate(COLUMNS, ROWS, over), chosen.evaluate(COLUMNS, ROWS))
    return chosen.explain_indexes(COLUMNS, ROWS, over)


def used(over: Mapping[tuple[str, tuple[str | int, ...]], Asked]) -> set[str]:
    return {name for (name, _), index in over.items() if index.found}


@pytest.mark.parametrize(
    ("text", "is_used"),
    [
        ("price < 100", True),  # a tenth of the rows
        ("price >= 10 and price < 110", True),
        ("price >= 10", True),  # all but a hundredth
        ("price < 300", False),
        ("price < 100 and tiny < 50", True),  # each condition has its bits
        ("price < 100 or tiny == 3", True),
        ("price < 300 or tiny == 3", False),
        ('color >= "c0"', False),  # where values are missing, the others are not all that is left out
    ],
)
def test_one_condition_that_finds_or_leaves_out_some_rows_is_answered_by_bits(
    text: str, is_used: bool
) -> None:
    over = indexes(price="STL_SORT", color="STL_SORT")
    explained(text, over)
    assert bool(used(over)) == is_used


def test_an_index_that_finds_few_rows_is_used() -> None:
    over = indexes(price="STL_SORT")
    assert explained("price < 10", over) == "index price (STL_SORT): at most 100 of 10,000 rows"
    assert used(over) == {"price"}


def test_an_index_that_finds_many_rows_is_not() -> None:
    over = indexes(price="STL_SORT")
    assert (
        explained("price < 200", over) == "scan price < 200: index price (STL_SORT) finds 20.0% of the rows"
    )
    assert used(over) == set()


def test_the_rows_without_a_value_are_the_complement() -> None:
    over = indexes(tiny="INVERTED")
    assert explained("tiny != 5", over) == "index tiny (INVERTED) for tiny != 5"
    assert used(over) == {"tiny"}


def test_bits_are_used_for_any_share() -> None:
    over = indexes(color="BITMAP")
    for text in ('color == "c1"', 'color != "c1"', 'color in ["c0", "c1"]', 'not (color like "c%")'):
        assert explained(text, over).startswith("index color (BITMAP)")
        assert used(over) == {"color"}
        over["color", ()].found = 0


def test_the_most_selective_index_goes_first_and_alone() -> None:
    over = indexes(price="STL_SORT", tiny="INVERTED", name="Trie")
    text = 'tiny == 5 and price < 20 and name like "user 0000%"'
    assert explained(text, over) == (
        "index name (Trie): at most 10 of 10,000 rows, then (tiny == 5 and price < 20) on these"
    )
    assert used(over) == {"name"}


def test_alternatives_need_an_index_each() -> None:
    over = indexes(price="STL_SORT", tiny="INVERTED")
    assert explained("tiny == 5 or price < 10", over) == (
        "index tiny (INVERTED) and price (STL_SORT): at most 200 of 10,000 rows"
    )
    assert used(over) == {"price", "tiny"}
    fewer = indexes(price="STL_SORT")
    assert explained("tiny == 5 or price < 10", fewer) == (
        "scan tiny == 5: no index on tiny; index price (STL_SORT) for price < 10"
    )


def test_alternatives_that_find_many_rows_together_are_scanned_where_one_does() -> None:
    over = indexes(price="STL_SORT", tiny="INVERTED")
    assert explained("tiny == 5 or price < 60", over) == (
        "index tiny (INVERTED) for tiny == 5; index price (STL_SORT) for price < 60"
    )
    assert explained("tiny == 5 or price < 200", over) == (
        "index tiny (INVERTED) for tiny == 5; "
        "scan price < 200: index price (STL_SORT) finds 20.0% of the rows"
    )


def test_fragments_need_grams() -> None:
    text = 'name like "%0123%"'
    assert explained(text, indexes(name="Trie")) == f"scan {text}: index name (Trie) does not answer it"
    name, index = built("name", COLUMNS["name"], {"index_type": "NGRAM", "min_gram": "2", "max_gram": "4"})
    over = {name: Asked(index)}
    assert explained(text, over) == "index name (NGRAM): at most 11 of 10,000 rows"


def test_elements_of_arrays() -> None:
    over = indexes(labels="INVERTED")
    assert explained('array_contains(labels, "l7")', over) == (
        "index labels (INVERTED): at most 200 of 10,000 rows"
    )
    assert explained('array_contains_all(labels, ["l7", "all"])', over).startswith("index labels")
    assert explained('labels == ["l7", "all"]', over).endswith('rows, then labels == ["l7", "all"] on these')
    assert explained('array_contains(labels, "all")', over).startswith("scan")
    assert explained('labels[0] == "l7"', over).startswith("index labels")
    assert explained('labels[1] in ["l7", "l9"]', over).startswith("index labels")
    for text in ('labels[0] != "l7"', 'labels[0] not in ["l7"]', 'labels[0] > "l48"', 'labels[1] == "all"'):
        assert explained(text, over).startswith("scan"), text


def test_ranges_and_prefixes_of_elements() -> None:
    over = indexes(labels="INVERTED", longs="INVERTED")
    for text, most in (("longs[0] >= 9990", 10), ("longs[0] < 5", 5), ("9000 < longs[0] < 9003", 2)):
        condition = compile_filter(text, DYNAMIC).explain()
        found = f"index longs (INVERTED): at most {most} of 10,000 rows, then {condition} on these"
        assert explained(text, over) == found
    assert used(over) == {"longs"}
    assert explained("longs[0] > 9000 and longs[1] < 9000", over).startswith("scan longs[0] > 9000")
    assert explained("longs[0] != 3", over).startswith("scan")
    assert explained('labels[0] like "l7%"', over).startswith("index labels (INVERTED): at most 200 of")
    assert explained('labels[0] like "l7"', over).startswith("index labels (INVERTED): at most 200 of")
    assert explained('not (labels[0] like "l7%")', over).startswith("scan")
    floats = indexes(doubles="INVERTED")
    assert explained("doubles[0] == 0.5", floats).startswith("index doubles (INVERTED): at most 1 of")
    assert explained("doubles[0] > 999.8", floats).startswith("index doubles (INVERTED): at most 6 of")


def test_bounds_of_one_value_are_one_lookup() -> None:
    over = indexes(price="STL_SORT", name="Trie", tiny="BITMAP")
    window = "index price (STL_SORT): at most 9 of 10,000 rows"
    assert explained("500 < price < 501", over) == window
    assert explained("price < 501 and price > 500 and price <= 700", over) == window
    assert explained('price > 500 and color == "c1" and price < 501', over) == (
        f'{window}, then color == "c1" on these'
    )
    assert explained("(price > 500 and price < 501) or name == 'user 00001'", over).startswith("index price")
    text = 'name >= "user 05000" and name < "user 05003"'
    assert explained(text, over) == "index name (Trie): at most 3 of 10,000 rows"
    assert explained("price > 700 and price < 300", over).startswith("index price (STL_SORT): at most 0 of")
    assert explained("price > 500 and price < 800", over).startswith("scan price > 500")
    paths = path('meta["a"]', "DOUBLE")
    text = 'meta["a"] > 500 and meta["a"] < 503'
    assert explained(text, paths).endswith(f"at most 20 of 10,000 rows, then ({text}) on these")
    assert explained('meta["a"] > 500 and meta["a"] < "503"', paths).startswith("scan")
    for values in ({"x": float("nan"), "y": 3.0}, {"x": 3.0, "y": float("nan")}):
        chosen = compile_filter("price > {x} and price > {y}", DYNAMIC, values)
        assert not chosen.evaluate(COLUMNS, ROWS, over).any()


def test_paths_of_json_documents() -> None:
    over = path('meta["a"]', "DOUBLE")
    text = 'meta["a"] == 7'
    assert explained(text, over) == (
        f"index meta['a'] (INVERTED): at most 10 of 10,000 rows, then {text} on these"
    )
    assert used(over) == {"meta"}
    assert explained('meta["a"] == "7"', over).endswith("does not answer it")
    assert explained('meta["b"] == 7', over).endswith("no index on meta")
    assert explained('meta["a"] != 7', over).endswith("no index answers it")
    texts = path('meta["a"]', "VARCHAR")
    assert explained('meta["a"] in ["8", "10"]', texts).startswith("index meta['a']")
    arrays = path('meta["t"]', "ARRAY_DOUBLE")
    assert explained('json_contains(meta["t"], 7)', arrays).startswith("index meta['t']")


def test_whole_documents() -> None:
    over = path("meta", "JSON")
    assert explained('meta["a"] == 7', over) == (
        'index meta (INVERTED): at most 10 of 10,000 rows, then meta["a"] == 7 on these'
    )
    assert explained('meta["a"] in ["8", "10"]', over).startswith("index meta (INVERTED): at most 2 of")
    assert explained('json_contains(meta["t"], 7)', over).startswith("index meta (INVERTED): at most 25 of")
    assert explained('json_contains_all(meta["t"], [7, 8])', over).startswith("index meta (INVERTED)")
    assert explained('meta["t"][0] == 7', over).startswith("index meta (INVERTED): at most 25 of")
    assert explained('meta["t"]["00"] == 7', over).startswith("scan")
    assert explained('meta["a"] < 7', over).startswith("scan")


def test_a_path_is_decoded_only_for_the_rows_found(monkeypatch: pytest.MonkeyPatch) -> None:
    over = path('meta["a"]', "DOUBLE")
    column = JsonColumn(COLUMNS["meta"])
    chosen = compile_filter('meta["a"] == 7', DYNAMIC)
    expected = chosen.evaluate(COLUMNS, ROWS)
    assert np.array_equal(chosen.evaluate({"meta": column}, ROWS, over), expected)
    assert column.cached_bytes == 0
    assert np.array_equal(chosen.evaluate({"meta": column}, ROWS), expected)
    assert column.cached_bytes > 0


def test_a_scan_that_is_cheap_is_not_compared_with_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexed, "SCAN_COST_MIN", 600_000)
    over = indexes(tiny="BITMAP", labels="INVERTED") | path('meta["a"]', "DOUBLE")
    assert explained("tiny == 5", over) == "scan tiny == 5: as quick as asking an index"
    assert explained('array_contains(labels, "l7")', over).startswith("index labels")
    text = 'meta["a"] == 7'
    column = JsonColumn(COLUMNS["meta"])
    chosen = compile_filter(text, DYNAMIC)
    assert chosen.explain_indexes({"meta": column}, ROWS, over).startswith("index meta")
    column.values(("a",))
    assert chosen.explain_indexes({"meta": column}, ROWS, over).endswith("as quick as asking an index")


def test_no_indexes() -> None:
    chosen = compile_filter("tiny == 5", DYNAMIC)
    assert chosen.explain_indexes(COLUMNS, ROWS, {}) == "scan: no index"
    assert explained("tiny + 1 == 5", indexes(tiny="BITMAP")) == "scan (tiny + 1) == 5: no index answers it"


def test_bits_decide_about_the_rows_of_another_index() -> None:
    over = indexes(price="STL_SORT", color="BITMAP")
    assert explained('price < 20 and color == "c1"', over) == (
        "index price (STL_SORT) and color (BITMAP): at most 200 of 10,000 rows"
    )
    assert used(over) == {"price", "color"}


def test_bits_of_a_field_without_nulls_decide_a_negation() -> None:
    over = indexes(price="STL_SORT", tiny="BITMAP")
    assert explained("price < 20 and tiny not in [3, 5]", over) == (
        "index price (STL_SORT) and tiny (BITMAP): at most 200 of 10,000 rows"
    )
    with_nulls = indexes(price="STL_SORT", color="BITMAP")
    assert explained('price < 20 and color != "c1"', with_nulls) == (
        'index price (STL_SORT): at most 200 of 10,000 rows, then color != "c1" on these'
    )


def test_rows_of_two_bitmaps_are_found_by_bits_alone() -> None:
    over = indexes(tiny="BITMAP", color="BITMAP")
    assert explained('tiny == 7 and color == "c1"', over) == (
        "index tiny (BITMAP) and color (BITMAP): at most 100 of 10,000 rows"
    )


@pytest.mark.parametrize(
    ("text", "rows"), [("price > 10 and price < 20", 99), ("price > 10 and price < 900", 8899)]
)
def test_conditions_that_bound_a_value_are_one_question(text: str, rows: int) -> None:
    over = indexes(price="STL_SORT")
    estimates: list[Lookup] = []
    index = over["price", ()]
    counted = index.index.estimate
    index.index.estimate = lambda lookup: estimates.append(lookup) or counted(lookup)  # type: ignore[method-assign, func-returns-value]
    found = compile_filter(text, DYNAMIC).find(COLUMNS, ROWS, over)
    assert isinstance(found, RowNumbers if rows < 500 else PackedRows)
    assert RowMask(found, ROWS).count == rows
    assert len(estimates) == 1


@pytest.mark.parametrize("rows", [1, 8, 13, 800])
@pytest.mark.parametrize("first", [0, 3, 8])
def test_answers_of_a_scan_are_bits(rows: int, first: int) -> None:
    answers = pa.array([None if n % 5 == 0 else n % 3 == 0 for n in range(900)])[first : first + rows]
    for answer in (answers, answers.fill_null(True)):
        expected = np.array([value is True for value in answer.to_pylist()])
        np.testing.assert_array_equal(kernels.as_bits(answer), np.packbits(expected, bitorder="little"))
        np.testing.assert_array_equal(kernels.as_mask(answer), expected)
