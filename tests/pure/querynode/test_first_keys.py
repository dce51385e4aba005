"""A query with a limit examines the rows it needs, and returns what examining all of them would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.api.querynode import NodeQuery
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.reduce import comparable_keys, primary_keys
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.expr import BoundFilter, compile_filter
from elanus.querynode.block import Block
from elanus.querynode.deletes import DeleteBatch
from elanus.querynode.gather import rows_of_blocks
from elanus.querynode.keys import SortedKeys
from elanus.querynode.query import query
from elanus.querynode.snapshot import Snapshot, SnapshotSegment
from elanus.querynode.visibility import Visibility

NOW = Timestamp(10**9)


def schema_of(key: DataType) -> CollectionSchema:
    fields = (
        FieldSchema(100, "id", key, is_primary=True, max_length=64),  # type: ignore[arg-type]
        FieldSchema(101, "price", DataType.INT64),  # type: ignore[arg-type]
        FieldSchema(102, "tag", DataType.VARCHAR, max_length=8),  # type: ignore[arg-type]
        FieldSchema(103, "vector", DataType.FLOAT_VECTOR, dim=2),  # type: ignore[arg-type]
    )
    return CollectionSchema("books", fields)


NUMBERS, STRINGS = schema_of(DataType.INT64), schema_of(DataType.VARCHAR)


def block_of(schema: CollectionSchema, keys: Sequence[Any], row_ts: Sequence[int]) -> Block:
    price = np.arange(len(keys)) * 7 % 100
    columns = {
        "id": pa.array(keys, schema.primary_field.arrow_type),
        "price": pa.array(price),
        "tag": pa.array([f"t{n % 5}" for n in range(len(keys))]),
    }
    bounds = {"id": (min(keys), max(keys)), "price": (0, 99)}
    return Block(schema, columns, {}, np.array(row_ts, dtype=np.int64), bounds=bounds)


def snapshot_of(schema: CollectionSchema, blocks: Sequence[Block]) -> Snapshot:
    segments = tuple(SnapshotSegment(SegmentID(n), PartitionID(1), True, (b,)) for n, b in enumerate(blocks))
    return Snapshot(CollectionID(1), schema, {}, 1, NOW, None, segments)


def asked(text: str, schema: CollectionSchema, limit: int | None, read_ts: int = NOW) -> NodeQuery:
    found = compile_filter(text, schema)
    return NodeQuery(CollectionID(1), (), found, None, ("price",), limit, Timestamp(read_ts))


def by_examining_all(snapshot: Snapshot, request: NodeQuery) -> dict[str, list[Any]]:
    """The oracle: all rows that match, sorted, the newest of each key, the first ``limit``."""
    blocks = snapshot.blocks(request.read_ts, (), ignore_growing=False)
    rows = [block.select(request.read_ts, request.filter).rows() for block in blocks]
    rows = [
        some[block.row_ts[some] > request.expired_until] for block, some in zip(blocks, rows, strict=True)
    ]
    found = rows_of_blocks(blocks, rows)
    ids = found.column("id", snapshot.schema.primary_field.arrow_type)
    keys = comparable_keys(primary_keys(ids))
    order = np.lexsort((-found.timestamps(), keys))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = keys[order][1:] != keys[order][:-1]
    best = found.select(order[first][: request.limit])
    return {name: best.column(name, pa.int64()).to_pylist() for name in ("id", "price")}


FILTERS = [
    "",
    "price < 30",
    "price == 42",
    "tag == 't1' and price > 10",
    "price > 1000",
    "tag in ['t0', 't3'] or price < 5",
]


@st.composite
def cases(draw: st.DrawFn) -> tuple[CollectionSchema, list[Block], str, int, int]:
    schema = draw(st.sampled_from([NUMBERS, STRINGS]))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    span = draw(st.sampled_from([20, 300, 5000]))
    blocks = []
    for _ in range(draw(st.integers(1, 5))):
        count = draw(st.integers(1, 400))
        numbers = chance.integers(0, span, count)
        if draw(st.booleans()):
            numbers.sort()
        stamps = chance.permutation(1000)[:count] + 1
        blocks.append(block_of(schema, [key_of(schema, n) for n in numbers.tolist()], stamps.tolist()))
        dead = np.unique(chance.integers(0, span, draw(st.integers(0, 30))))
        if len(dead):
            blocks[-1].delete(deletes_of(schema, dead.tolist(), chance))
    text = draw(st.sampled_from(FILTERS))
    for comparator in draw(st.sets(st.sampled_from([">", ">=", "<", "<=", "=="]), max_size=2)):
        bound = f"id {comparator} {literal(schema, draw(st.integers(-1, span)))}"
        text = f"({text}) and {bound}" if text else bound
    return schema, blocks, text, draw(st.integers(1, 500)), draw(st.sampled_from([NOW, 1500, 700, 1]))


def key_of(schema: CollectionSchema, number: int) -> int | str:
    return number if schema is NUMBERS else f"k{number:05d}" * (1 + number % 3)


def literal(schema: CollectionSchema, number: int) -> str:
    return str(number) if schema is NUMBERS else f"'{key_of(schema, number)}'"


def deletes_of(schema: CollectionSchema, numbers: list[int], chance: np.random.Generator) -> DeleteBatch:
    keys = pa.array([key_of(schema, n) for n in numbers], schema.primary_field.arrow_type)
    stamps = chance.integers(1001, 2000, len(numbers))
    return DeleteBatch(SortedKeys(keys), stamps.astype(np.int64), PartitionID(0))


@given(cases())
def test_the_rows_are_those_that_examining_all_of_them_finds(
    case: tuple[CollectionSchema, list[Block], str, int, int],
) -> None:
    schema, blocks, text, limit, read_ts = case
    snapshot = snapshot_of(schema, blocks)
    request = asked(text, schema, limit, read_ts)
    for _ in range(2):  # what the first read keeps must serve the second
        found = {name: column.to_pylist() for name, column in query(snapshot, request).items()}
        assert found == by_examining_all(snapshot, request)


class Work:
    """Rows for which a filter was evaluated, and rows whose visibility was looked up."""

    evaluated = 0
    seen = 0


@contextmanager
def counted() -> Iterator[Work]:
    work = Work()
    find, sees, select = BoundFilter.find, Visibility.sees, Visibility._select

    def evaluating(self: BoundFilter, columns: Any, rows: int, *indexes: Any) -> Any:
        work.evaluated += rows
        return find(self, columns, rows, *indexes)

    def looking(self: Visibility, rows: Any, read_ts: Timestamp) -> Any:
        work.seen += len(rows)
        return sees(self, rows, read_ts)

    def selecting(self: Visibility, ts: Timestamp) -> Any:
        work.seen += len(self.row_ts)
        return select(self, ts)

    with (
        patch.object(BoundFilter, "find", evaluating),
        patch.object(Visibility, "sees", looking),
        patch.object(Visibility, "_select", selecting),
    ):
        yield work


ROWS = 40_000


def shuffled(schema: CollectionSchema, blocks: int, *, apart: bool) -> Snapshot:
    """``apart``: each block has keys of its own range, as auto ids have; otherwise all have one range."""
    chance = np.random.default_rng(5)
    made = []
    for n in range(blocks):
        numbers = chance.permutation(ROWS) + n * ROWS if apart else chance.permutation(ROWS) * blocks + n
        keys = [n if schema is NUMBERS else f"k{n:08d}" for n in numbers.tolist()]
        made.append(block_of(schema, keys, range(1, ROWS + 1)))
    return snapshot_of(schema, made)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("text", ["", "price < 50"])
def test_a_limit_costs_what_it_returns(text: str, *, apart: bool) -> None:
    snapshot = shuffled(NUMBERS, 4, apart=apart)
    for limit in (10, 1000):
        request = asked(text, NUMBERS, limit)
        with counted() as work:
            assert len(query(snapshot, request)["id"]) == limit
        assert work.seen <= 8 * limit + 4 * 64
        assert work.evaluated <= work.seen
        assert (work.evaluated > 0) == bool(text)


@pytest.mark.parametrize("schema", [NUMBERS, STRINGS])
def test_a_page_costs_what_it_returns_wherever_it_begins(schema: CollectionSchema) -> None:
    snapshot, size = shuffled(schema, 2, apart=False), 500
    every = query(snapshot, asked("price < 50", schema, None))["id"].to_pylist()
    for start in (0, len(every) // 2, len(every) - 3 * size):
        last = every[start] if schema is NUMBERS else f"'{every[start]}'"
        request = asked(f"(price < 50) and id > {last}", schema, size)
        with counted() as work:
            assert query(snapshot, request)["id"].to_pylist() == every[start + 1 : start + 1 + size]
        assert work.seen + work.evaluated <= 16 * size


def test_the_pages_of_a_rare_filter_evaluate_it_once_altogether() -> None:
    """Each page has another bound; what is left of its filter is the same."""
    snapshot, last, pages = shuffled(NUMBERS, 2, apart=False), -1, 0
    with counted() as work:
        while True:
            found = query(snapshot, asked(f"(price == 42) and id > {last}", NUMBERS, 300))["id"].to_pylist()
            if not found:
                break
            last, pages = found[-1], pages + 1
    assert pages == 3  # of 300, 300, and 200
    assert work.evaluated <= 2 * ROWS * (1 + 1 / 4)
    assert work.seen <= ROWS
    kept = snapshot.segments[0].blocks[0]._matching
    assert len(kept) == 1


def test_only_texts_of_the_rows_that_are_looked_at_are_looked_at() -> None:
    keys, tags = list(range(40)), [f"t{n // 4}" for n in range(40)]
    columns = {
        "id": pa.array(keys),
        "price": pa.array(keys),
        "tag": pa.array(tags).dictionary_encode(),
    }
    block = Block(NUMBERS, columns, {}, np.ones(40, dtype=np.int64), bounds={})
    row_filter, seen = compile_filter("tag like '%3'", NUMBERS), list[int]()

    def counted_entries(bound: BoundFilter, columns: dict[str, pa.Array], rows: int, **how: Any) -> Any:
        tags = columns["tag"]
        seen.append(len(tags.dictionary if isinstance(tags, pa.DictionaryArray) else tags))
        return evaluate(bound, columns, rows, **how)

    evaluate = BoundFilter.evaluate
    with patch.object(BoundFilter, "evaluate", counted_entries):
        few = block.narrow(NOW, np.arange(10, 15), row_filter)
        many = block.narrow(NOW, np.arange(40), row_filter)
    assert few.tolist() == [12, 13, 14]
    assert many.tolist() == [12, 13, 14, 15]
    assert seen == [5, 10]


def test_blocks_beyond_the_limit_are_not_read() -> None:
    snapshot = shuffled(NUMBERS, 8, apart=True)
    with counted() as work, patch.object(Block, "narrow", autospec=True, side_effect=Block.narrow) as narrow:
        query(snapshot, asked("", NUMBERS, 5))
    assert work.seen == 64
    assert [call.args[0] for call in narrow.call_args_list] == [snapshot.segments[0].blocks[0]]


def test_no_rows_are_wanted() -> None:
    snapshot = shuffled(NUMBERS, 1, apart=True)
    with counted() as work:
        found = query(snapshot, asked("price < 50", NUMBERS, 0))
    assert [len(column) for column in found.values()] == [0, 0]
    assert found["id"].type == pa.int64()
    assert work.seen == 0


def test_the_order_of_strings_is_made_once_and_is_counted_as_memory() -> None:
    snapshot = shuffled(STRINGS, 1, apart=True)
    (block,) = snapshot.segments[0].blocks
    before = block.memory_bytes
    with patch.object(pc, "sort_indices", side_effect=pc.sort_indices) as sort:
        for bound in ("k00000007", "k00000100"):
            query(snapshot, asked(f"id >= '{bound}'", STRINGS, 3))
    assert sort.call_count == 1
    assert block.memory_bytes == before + 4 * ROWS
