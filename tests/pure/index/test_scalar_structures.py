"""The structures of scalar indexes: their answers, their estimates, and when they decline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from elanus.core.lookup import Between, Holds, Lookup, Matching, OneOf, PackedRows, RowNumbers, StartsWith
from elanus.core.schema import DataType
from elanus.index import DamagedIndexFile, ScalarIndex, build, load, resolve_index
from elanus.index.scalar import bitmap
from elanus.index.scalar.bitmap import Bitmap
from elanus.index.scalar.postings import Postings

T = DataType


def made(kind: str, data_type: DataType, column: pa.Array, **params: str) -> ScalarIndex:
    index = build(resolve_index({"index_type": kind, **params}, data_type, 0), column, 1)
    assert isinstance(index, ScalarIndex)
    return index


def rows(index: ScalarIndex, lookup: Lookup) -> list[int] | None:
    found = index.find(lookup)
    estimate = index.estimate(lookup)
    assert (found is None) == (estimate is None)
    if found is None or estimate is None:
        return None
    if isinstance(found, PackedRows):
        numbers = np.flatnonzero(np.unpackbits(found.bits, count=index.rows, bitorder="little")).tolist()
    else:
        numbers = sorted(found.rows.tolist())
        assert len(set(numbers)) == len(numbers)
    assert len(numbers) <= estimate
    return numbers


def among(*values: Any) -> OneOf:
    return OneOf(pa.array(values))


NUMBERS = pa.array([5, None, -3, 7, 5, 2**62], pa.int64())


@pytest.mark.parametrize("kind", ["STL_SORT", "INVERTED", "BITMAP", "AUTOINDEX"])
def test_whole_numbers(kind: str) -> None:
    index = made(kind, T.INT64, NUMBERS)
    assert rows(index, among(5)) == [0, 4]
    assert rows(index, among(5, 6, -3)) == [0, 2, 4]
    assert rows(index, among(6)) == []
    assert rows(index, Between(5, None)) == [0, 3, 4, 5]
    assert rows(index, Between(5, None, low_included=False)) == [3, 5]
    assert rows(index, Between(None, 5)) == [0, 2, 4]
    assert rows(index, Between(None, 5.5)) == [0, 2, 4]
    assert rows(index, Between(4.5, 5.5, low_included=False, high_included=False)) == [0, 4]
    assert rows(index, Between(2**62 - 0.5, None)) == [5]
    assert rows(index, Between(2**70, None)) == []
    assert rows(index, Between(None, float("inf"))) == [0, 2, 3, 4, 5]
    assert rows(index, Between(5.5, 5.5)) == []
    for other in (among("5"), among(True), Between("a", None), StartsWith("5"), Holds(pa.array([5]), False)):
        assert rows(index, other) is None


def test_repeated_and_single_numbers_are_stored_as_suits_them() -> None:
    single = made("STL_SORT", T.INT64, pa.array(range(1000)))
    repeated = made("STL_SORT", T.INT64, pa.array([n % 10 for n in range(1000)]))
    assert 12_000 <= single.memory_bytes < 12_100
    assert repeated.memory_bytes < 4_300


TEXTS = pa.array(["b", "", None, "ab", "a", "é", "b", "abc", "日本"], pa.string())


@pytest.mark.parametrize("kind", ["INVERTED", "Trie", "STL_SORT", "BITMAP", "NGRAM", "AUTOINDEX"])
def test_texts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grams = {"min_gram": "1", "max_gram": "2"} if kind == "NGRAM" else {}
    index = made(kind, T.VARCHAR, TEXTS, **grams)
    for most in (64, 0):  # one by one, and hashed
        monkeypatch.setattr("elanus.index.scalar.keys._SINGLY_MAX", most)
        assert rows(index, among("b")) == [0, 6]
        assert rows(index, among("")) == [1]
        assert rows(index, among("é", "none")) == [5]
        assert rows(index, among("none")) == []
    assert rows(index, StartsWith("ab")) == [3, 7]
    assert rows(index, StartsWith("日")) == [8]
    assert rows(index, StartsWith("")) == [0, 1, 3, 4, 5, 6, 7, 8]
    assert rows(index, Between("ab", "b")) == [0, 3, 6, 7]
    assert rows(index, Between("ab", "b", low_included=False, high_included=False)) == [7]
    assert rows(index, among(1)) is None
    assert rows(index, Between(1, None)) is None


def test_booleans() -> None:
    for kind in ("BITMAP", "INVERTED", "AUTOINDEX"):
        index = made(kind, T.BOOL, pa.array([True, None, False, True]))
        assert rows(index, among(True)) == [0, 3]
        assert rows(index, among(False)) == [2]
        assert rows(index, among(1)) is None


ARRAYS = pa.array([[1, 2, 2], None, [], [2, 3], [3]], pa.list_(pa.int64()))


@pytest.mark.parametrize("kind", ["INVERTED", "BITMAP", "AUTOINDEX"])
def test_elements_of_arrays(kind: str) -> None:
    index = made(kind, T.ARRAY, ARRAYS)
    assert rows(index, Holds(pa.array([2]), need_all=False)) == [0, 3]
    assert rows(index, Holds(pa.array([1, 3]), need_all=False)) == [0, 3, 4]
    assert rows(index, Holds(pa.array([2, 3]), need_all=True)) == [3]
    assert rows(index, Holds(pa.array([2, 9]), need_all=True)) == []
    assert rows(index, Holds(pa.array([9]), need_all=False)) == []
    assert rows(index, among(2)) is None


def contains(fragment: str) -> Matching:
    return Matching((fragment,), lambda texts: pc.match_substring(texts, fragment))


def test_fragments_of_texts() -> None:
    texts = [f"{n:04d} caffè" for n in range(500)] + [None, "x"]
    index = made("NGRAM", T.VARCHAR, pa.array(texts, pa.string()), min_gram="2", max_gram="3")
    assert rows(index, contains("012")) == [12, *range(120, 130)]
    assert rows(index, contains("0123 c")) == [123]
    assert rows(index, contains("fff")) == []
    assert rows(index, contains("x")) is None, "shorter than the shortest gram"
    assert rows(index, contains("caffè")) is None, "in almost every text: a scan is quicker"
    both = Matching(("01", "3 c"), lambda texts: pc.match_like(texts, "%01%3 c%"))
    assert rows(index, both) == [n for n in range(500) if f"{n:04d}".find("01") in (0, 1) and n % 10 == 3]


def test_few_values_are_bits_and_many_are_row_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elanus.index.scalar.kinds.KEYS_MAX", 3)
    for kind in ("BITMAP", "AUTOINDEX"):
        few = made(kind, T.INT64, pa.array([1, 2, 3, None] * 4))
        many = made(kind, T.INT64, pa.array([1, 2, 3, 4] * 4))
        assert isinstance(few, Bitmap)
        assert isinstance(many, Postings)
        assert rows(few, among(2)) == rows(many, among(2)) == [1, 5, 9, 13]
    limited = made("HYBRID", T.INT64, pa.array([1, 2, 3] * 4), bitmap_cardinality_limit="2")
    assert isinstance(limited, Postings)


def test_a_bitmap_does_not_unite_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitmap, "UNITED_MAX", 2)
    index = made("BITMAP", T.INT64, pa.array([1, 2, 3, 4]))
    assert rows(index, Between(1, 2)) == [0, 1]
    assert rows(index, Between(1, 3)) is None


def test_more_values_than_rows_worth_finding_are_not_looked_up() -> None:
    index = made("STL_SORT", T.INT64, pa.array(range(2000)))
    assert rows(index, OneOf(pa.array(range(100)))) == list(range(100))
    assert rows(index, OneOf(pa.array(range(101)))) is None


@pytest.mark.parametrize("mapped", ["true", "false"])
@pytest.mark.parametrize("kind", ["INVERTED", "BITMAP", "NGRAM"])
def test_a_file_brings_back_the_index_and_damage_is_noticed(kind: str, mapped: str, tmp_path: Path) -> None:
    params = {"index_type": kind, "min_gram": "1", "max_gram": "2", "mmap.enabled": mapped}
    spec = resolve_index(params, T.VARCHAR, 0)
    index = build(spec, TEXTS, 1)
    file = tmp_path / "index"
    index.save(file)
    again = load(file, resolve_index(spec.flattened(), T.VARCHAR, 0))
    assert isinstance(again, ScalarIndex)
    assert again.memory_bytes == index.memory_bytes
    assert rows(again, among("b")) == [0, 6]
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    damaged = tmp_path / "damaged"
    damaged.write_bytes(content)
    with pytest.raises(DamagedIndexFile):
        load(damaged, spec)


def test_an_index_of_no_values() -> None:
    for kind, data_type, column in (
        ("STL_SORT", T.INT64, pa.array([None, None], pa.int64())),
        ("BITMAP", T.VARCHAR, pa.array([None, None], pa.string())),
        ("INVERTED", T.ARRAY, pa.array([None, []], pa.list_(pa.int64()))),
    ):
        index = made(kind, data_type, column)
        lookup = Holds(pa.array([1]), False) if data_type is T.ARRAY else OneOf(column)
        assert rows(index, lookup if data_type is T.ARRAY else OneOf(column[:0])) == []


@pytest.mark.parametrize("distinct", [1000, 40])
@pytest.mark.parametrize("missing", [False, True])
def test_many_rows_are_found_as_bits(distinct: int, missing: bool) -> None:
    """Also as the complement of a few, where no value is missing."""
    values = np.random.default_rng(4).permutation(1000) % distinct
    column = pa.array(values, mask=values == 3 if missing else None)
    index = made("STL_SORT", T.INT64, column)
    shown = values if not missing else np.where(values == 3, -1, values)
    for share in (0.06, 0.5, 0.99):
        end = int(distinct * share)
        assert isinstance(index.find(Between(0, end)), PackedRows)
        assert rows(index, Between(0, end)) == np.flatnonzero((shown >= 0) & (shown <= end)).tolist()
        assert rows(index, Between(5, None)) == np.flatnonzero(shown >= 5).tolist()
    several = [n for n in range(0, distinct, 3) if n != 3]
    wanted = np.flatnonzero(np.isin(values, several))
    if len(several) <= 64:  # more are not looked up
        assert rows(index, among(*several)) == wanted.tolist()
    few = sorted(set(range(min(distinct, 60))) - {7, 9, 3})
    assert rows(index, among(*few)) == np.flatnonzero(np.isin(values, few)).tolist()


def test_an_index_of_sorted_values_is_quick_at_both_ends() -> None:
    numbers = np.arange(1000)
    whole, gaps = (made("STL_SORT", T.INT64, pa.array(numbers, mask=mask)) for mask in (None, numbers == 3))
    assert [whole.finds_quickly(n) for n in (0, 50, 100, 500, 900, 1000)] == [True] * 3 + [False] + [True] * 2
    assert [gaps.finds_quickly(n) for n in (100, 500, 900)] == [True, False, False]
    lists = made("INVERTED", T.ARRAY, pa.array([[n] for n in range(1000)]))
    assert not lists.finds_quickly(999)


def test_answers_are_of_two_forms() -> None:
    assert isinstance(made("BITMAP", T.INT64, NUMBERS).find(among(5)), PackedRows)
    assert isinstance(made("INVERTED", T.INT64, pa.array(range(40))).find(among(5)), RowNumbers)
    assert isinstance(made("INVERTED", T.INT64, NUMBERS).find(among(5)), PackedRows)
