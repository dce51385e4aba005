"""Lists of thousands of literals: they are read in pieces, so that other threads run meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from filter_schemas import PLAIN, TEXT_KEY

from elanus.core import limits
from elanus.core.errors import InvalidFilter
from elanus.expr import BoundFilter, compile_filter, kept_by_filter, syntax
from elanus.expr.key_range import shape
from elanus.expr.long_list import LongLiterals, array_from, types_in
from elanus.expr.parse import parse
from elanus.expr.source import Source

PIECE = 16_384
LENGTHS = [PIECE, PIECE + 1, PIECE + 63, PIECE + 64, PIECE + 65, 2 * PIECE, 40_000]
GAP_MAX_S = 0.15
"""A third of what the list takes if it is scanned as a whole."""
NUMBERS = 2_000_000


def values_of(text: str) -> Any:
    tree = parse(Source(text))
    assert isinstance(tree, syntax.Member)
    assert isinstance(tree.values, syntax.LiteralList | syntax.LongList)
    assert (tree.values.start, tree.values.end) == (text.index("["), text.rindex("]") + 1)
    return list(tree.values.values)


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize(
    "item",
    [
        lambda n: n - 7000,
        lambda n: n / 8 - 700,
        lambda n: f'{n}, "[]" \\ ]',
        lambda n: n % 3 == 0,
        lambda n: (n, f"{n}", n / 4, n % 2 == 0)[n % 4],
        lambda n: n if n % 5000 else 2**70,
    ],
    ids=["integers", "floats", "texts", "booleans", "mixed", "beyond 64 bits"],
)
def test_all_values_are_read(count: int, item: Callable[[int], Any]) -> None:
    items = [item(number) for number in range(count)]
    assert [(type(value), value) for value in values_of(f"id in {items}")] == [
        (type(value), value) for value in items
    ]


@pytest.mark.parametrize("count", LENGTHS)
def test_blanks_and_a_last_comma_change_nothing(count: int) -> None:
    text = " ,\n ".join(map(str, range(count)))
    assert values_of(f"id in [ {text} , ]") == values_of(f"id in [{text}\t]") == list(range(count))


def test_spellings_that_are_not_json() -> None:
    assert values_of(f"id in [{','.join(['017', '+1', '-017', '.5', '1.'] * 2000)}]")[:5] == [
        15,
        1,
        -15,
        0.5,
        1.0,
    ]


@pytest.mark.parametrize("last", ["2 * 3", "0x06", "{six}", "6"])
def test_a_long_list_may_end_with_something_else(last: str) -> None:
    bound = compile_filter(f"id in [{','.join(map(str, range(10, 19_000)))}, {last}]", PLAIN, {"six": 6})
    assert bound.evaluate({"id": pa.array([5, 6, 9, 10, 18_999, 19_000])}, 6).tolist() == [0, 1, 0, 1, 1, 0]


def test_values_are_those_of_a_short_list_for_every_kind_of_column() -> None:
    columns: list[tuple[str, pa.Array, list[Any]]] = [
        ("id", pa.array([3, 5000, -1], pa.int64()), [*range(20_000)]),
        ("tiny", pa.array([3, 100, -1], pa.int8()), [*range(20_000)]),
        ("price", pa.array([3.0, 0.5, -0.0], pa.float64()), [n / 2 for n in range(20_000)]),
        ("price", pa.array([3e17, 5.0, 0.1], pa.float64()), [3 * 10**17 + n for n in range(20_000)]),
        ("score", pa.array([3.0, 5000, 0.1], pa.float32()), [*range(20_000), 0.1]),
        ("color", pa.array(["3", "x", None]), [f"{n}" for n in range(20_000)]),
        ("flag", pa.array([True, False, None]), [True] * 20_000),
        ("meta", pa.array(["3", "3.0", '"3"']), [*range(20_000)]),
    ]
    for name, column, items in columns:
        for negated in ("", "not "):
            long = compile_filter(f"{name} {negated}in {items}", PLAIN)
            by_template = compile_filter(f"{name} {negated}in {{items}}", PLAIN, {"items": items})
            found, same = (bound.evaluate({name: column}, 3).tolist() for bound in (long, by_template))
            assert found == same, name
            assert long.explain() == by_template.explain()
            assert found[0] == (not negated), name


def test_numbers_in_json_are_equal_by_value() -> None:
    items = [*range(20_000), 2**53 + 1, 2**63 - 1, -(2**63)]
    bound = compile_filter(f"meta['n'] in {items}", PLAIN)
    texts = ["3", "3.0", "9007199254740993", "9007199254740992.0", "9223372036854775807",
             "9.223372036854775807e18", "-9223372036854775808", "-9.223372036854775808e18"]  # fmt: skip
    column = pa.array([f'{{"n": {text}}}' for text in texts])
    assert bound.evaluate({"meta": column}, len(texts)).tolist() == [1, 1, 1, 0, 1, 0, 1, 1]


def test_an_array_may_be_compared_with_a_long_list() -> None:
    bound = compile_filter(f"array_contains_any(longs, {list(range(5, 19_000))})", PLAIN)
    assert bound.evaluate({"longs": pa.array([[4], [4, 5]])}, 2).tolist() == [False, True]


@pytest.mark.parametrize("index", [0, PIECE - 1, PIECE, 17_000, 18_999])
def test_the_position_of_a_wrong_literal_is_named(index: int) -> None:
    items: list[Any] = list(range(19_000))
    items[index] = "x"
    text = f"id in {items}"
    with pytest.raises(InvalidFilter, match="cannot be casted to Int64") as refusal:
        compile_filter(text, PLAIN)
    assert refusal.value.position == text.index("'x'")
    items[index] = 2**70
    text = f"id in {items}"
    with pytest.raises(InvalidFilter, match="value out of range") as refusal:
        compile_filter(text, PLAIN)
    assert refusal.value.position == text.index(str(2**70))


def test_a_long_list_with_another_value_is_none_of_plain_literals() -> None:
    numbers = ",".join(map(str, range(limits.FILTER_UNLISTED_MAX_CHARS // 4)))
    assert compile_filter(f"id in [{numbers}]", PLAIN) is not None
    with pytest.raises(InvalidFilter, match="outside of lists of plain literals"):
        compile_filter(f"id in [{numbers}, 2 * 3]", PLAIN)
    with pytest.raises(InvalidFilter, match="outside of lists of plain literals"):
        compile_filter(f"f({numbers})", PLAIN)


def test_equal_long_lists_have_equal_shapes() -> None:
    one, same, other = (
        compile_filter(f"id > 1 and price in {[*range(19_000), last]}", PLAIN) for last in (1.5, 1.5, 2.5)
    )
    assert shape(one.predicate) == shape(same.predicate) != shape(other.predicate)
    assert one.split_by_key()[1] is same.split_by_key()[1]
    literals = [LongLiterals([[1, 2], ["a"]]) for _ in range(2)]
    assert shape(literals[0]) == shape(literals[1])


def test_a_sequence_in_pieces() -> None:
    items = LongLiterals([[1, 2], [0.5, "a"], [2**70, 4], [True]])
    assert (len(items), list(items), items[3], items[1:5]) == (
        7,
        [1, 2, 0.5, "a", 2**70, 4, True],
        "a",
        [2, 0.5, "a", 2**70],
    )
    assert types_in(items) == {int, float, str, bool}
    with pytest.raises(IndexError):
        items[7]
    with pytest.raises(OverflowError):
        array_from(LongLiterals([[1, 2], [2**70]]), pa.int64())


def longest_gap_s(work: Callable[[], object]) -> float:
    """Return for how long another thread does not run while ``work`` does. A machine that is busy with other
    things delays it too, so it is tried again."""
    found = [GAP_MAX_S]
    while found[-1] >= GAP_MAX_S and len(found) <= 10:
        done = threading.Event()
        worker = threading.Thread(target=lambda done=done: (work(), done.set()))
        longest_s, last_s = 0.0, time.perf_counter()
        worker.start()
        while not done.is_set():
            time.sleep(0.001)
            now_s = time.perf_counter()
            longest_s, last_s = max(longest_s, now_s - last_s), now_s
        worker.join()
        found.append(longest_s)
    return min(found)


@pytest.mark.parametrize("name", ["id", "meta['n']"])
def test_other_threads_run_while_millions_of_numbers_are_read(name: str) -> None:
    text = f"{name} in [{','.join(map(str, range(NUMBERS)))}]"
    assert longest_gap_s(lambda: compile_filter(text, PLAIN)) < GAP_MAX_S


def test_other_threads_run_while_a_template_of_millions_of_numbers_is_bound() -> None:
    values = {"items": list(range(NUMBERS))}
    assert longest_gap_s(lambda: compile_filter("id in {items}", PLAIN, values)) < GAP_MAX_S


def test_texts_of_a_key_are_read_in_pieces() -> None:
    keys = [f"key {number}" for number in range(50_000)]
    assert compile_filter(f"key in {keys}", TEXT_KEY).primary_keys() == pa.array(keys)


def long_filter(numbers: int) -> BoundFilter:
    return compile_filter("id in {keys}", PLAIN, {"keys": list(range(numbers))})


def test_caches_do_not_keep_long_filters_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_by_filter, "long_filters", kept_by_filter.LongFilters())
    cache: kept_by_filter.KeptByFilter[int] = kept_by_filter.KeptByFilter()
    short, lasting = long_filter(10), long_filter(10_000)
    assert (short.is_long, lasting.is_long) == (False, True)
    for number, one in enumerate((short, lasting, *(long_filter(10_000) for _ in range(30)))):
        cache.put(one, number)
    assert len(cache) == 1 + 1 + kept_by_filter.FILTERS_KEPT
    assert (cache.get(short), cache.get(lasting), max(cache.values())) == (0, 1, 31)
    del lasting, one
    assert len(cache) == 1 + kept_by_filter.FILTERS_KEPT, (
        "the last ones are held, for the next page of an iterator"
    )
    monkeypatch.setattr(kept_by_filter, "LONG_KEPT_BYTES", 2_000_000)
    cache.put(long_filter(10_000), 32)
    assert sorted(cache.values()) == [0, 31, 32]
    cache.put(long_filter(100_000), 33)
    assert sorted(cache.values()) == [0, 33], "one of any size"
