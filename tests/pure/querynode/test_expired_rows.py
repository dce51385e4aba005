"""Expired rows: no read sees them, a read as of an earlier moment does, and no cache knows of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from channel_world import Cluster
from channel_world import scenario as cluster_scenario
from hypothesis import given
from hypothesis import strategies as st
from node_world import World, scenario
from test_first_keys import NOW, NUMBERS, asked, block_of, by_examining_all, cases, counted, snapshot_of

from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp, before
from elanus.expr import compile_filter
from elanus.proxy.fanout.deadline import Patience
from elanus.querynode.block import Block
from elanus.querynode.query import query
from elanus.querynode.snapshot import Snapshot


async def old_and_new(world: World, *, sealed: bool) -> tuple[Timestamp, Timestamp]:
    """Keys 1 to 4, then 5 to 8, with their number as value. Return the timestamps of both."""
    first = await world.insert([(n, n) for n in range(1, 5)])
    second = await world.insert([(n, n) for n in range(5, 9)])
    await world.tick()
    if sealed:
        world.seal()
        await world.hand_off(world.flush())
    return Timestamp(first), Timestamp(second)


@pytest.mark.parametrize("sealed", [False, True])
def test_no_read_sees_expired_rows(sealed: bool, tmp_path: Any) -> None:
    @scenario()
    async def test(world: World) -> None:
        first, second = await old_and_new(world, sealed=sealed)
        for until, least in ((before(first), 1), (first, 5), (before(second), 5), (second, 9)):
            left = list(range(least, 9))
            assert world.keys(expired_until=until) == left
            assert world.keys("value > 2", expired_until=until) == [n for n in left if n > 2]
            assert world.keys("id in [2, 7]", expired_until=until) == [n for n in (2, 7) if n in left]
            ids = pa.array([3, 6], pa.int64())
            assert world.keys(primary_keys=ids, expired_until=until) == [n for n in (3, 6) if n in left]
            assert world.keys(limit=3, expired_until=until) == left[:3]
            assert world.keys("value > 2", limit=2, expired_until=until) == [n for n in left if n > 2][:2]
            assert world.count(expired_until=until) == len(left)
            assert world.count("value <= 6", expired_until=until) == len([n for n in left if n <= 6])
            assert world.count("id in [2, 7]", expired_until=until) == len([n for n in (2, 7) if n in left])
            assert sorted(world.nearest(1, 8, expired_until=until)) == left
            assert world.nearest(1, 1, "value > 2", expired_until=until) == [n for n in left if n > 2][:1]
        assert world.keys() == list(range(1, 9)), "where nothing expires, all are there"
        assert world.count("value <= 6") == 6

    test(tmp_path)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_read_of_the_past_finds_what_had_not_expired_then(sealed: bool, tmp_path: Any) -> None:
    @scenario()
    async def test(world: World) -> None:
        first, second = await old_and_new(world, sealed=sealed)
        deleted = await world.delete([2, 6])
        await world.tick()
        assert world.keys(expired_until=first) == [5, 7, 8]
        assert world.keys(ts=before(Timestamp(deleted)), expired_until=first) == [5, 6, 7, 8]
        assert world.keys(ts=second, expired_until=before(first)) == list(range(1, 9))
        assert world.count(ts=first, expired_until=before(first)) == 4

    test(tmp_path)


@scenario()
async def test_a_key_written_again_lives_on(world: World) -> None:
    first = await world.insert([(1, 1), (2, 2)])
    await world.insert([(1, 10)])
    await world.tick()
    rows = world.node.query(world.node_query(expired_until=Timestamp(first)))
    assert (rows["id"].to_pylist(), rows["value"].to_pylist()) == ([1], [10])


@cluster_scenario
async def test_the_nodes_of_a_cluster_leave_out_what_has_expired(world: Cluster) -> None:
    first = Timestamp(await world.insert([(1, 1), (2, 2)]))
    await world.insert([(3, 3)])
    await world.tick()

    def ask() -> tuple[list[int], int, list[int]]:
        patience = Patience(5.0)
        rows = world.proxy.query(world.node_query(expired_until=first), patience)
        number = world.proxy.count(world.node_query(expired_until=first), patience)
        hits = world.proxy.search(world.node_search(1, 5, expired_until=first), patience)
        return rows["id"].to_pylist(), number, hits.ids.tolist()

    assert await asyncio.to_thread(ask) == ([3], 1, [3])


# over blocks


def reads(snapshot: Snapshot, text: str, limit: int | None, *expired_until: int) -> list[list[int]]:
    """The keys that a query finds, with each of these moments of expiry."""
    request = asked(text, NUMBERS, limit)
    return [
        query(snapshot, replace(request, expired_until=Timestamp(until)))["id"].to_pylist()
        for until in expired_until
    ]


@given(cases(), st.integers(0, 1010))
def test_a_limit_finds_what_examining_all_rows_finds(
    case: tuple[CollectionSchema, list[Block], str, int, int], expired_until: int
) -> None:
    schema, blocks, text, limit, read_ts = case
    snapshot = snapshot_of(schema, blocks)
    for wanted in (limit, None):
        request = replace(asked(text, schema, wanted, read_ts), expired_until=Timestamp(expired_until))
        for _ in range(2):  # what the first read keeps must serve the second
            found = {name: column.to_pylist() for name, column in query(snapshot, request).items()}
            assert found == by_examining_all(snapshot, request)


def test_what_a_block_caches_does_not_depend_on_expiry() -> None:
    snapshot = snapshot_of(NUMBERS, [block_of(NUMBERS, range(10), range(1, 11))])
    with counted() as work:
        assert reads(snapshot, "price >= 0", None, 5, 0, 9, 2) == [
            list(range(5, 10)),
            list(range(10)),
            [9],
            list(range(2, 10)),
        ]
    assert (work.evaluated, work.seen) == (10, 10), "the filter and the deletes were looked at once"


def test_a_block_without_expired_rows_costs_no_mask() -> None:
    block = block_of(NUMBERS, range(10), range(100, 110))
    chosen = compile_filter("price > 20", NUMBERS)
    for some in (chosen, compile_filter("", NUMBERS)):
        plain = block.select(NOW, some)
        assert block.select(NOW, some, Timestamp(99)) is plain
        assert block.select(NOW, some, Timestamp(100)).count == plain.count - (1 if some.matches_all else 0)


@pytest.mark.parametrize("limit", [None, 5])
def test_a_block_whose_rows_have_all_expired_is_not_read(limit: int | None) -> None:
    blocks = [block_of(NUMBERS, range(10), range(1, 11)), block_of(NUMBERS, range(10), range(11, 21))]
    with counted() as work:
        assert reads(snapshot_of(NUMBERS, blocks), "price >= 0", limit, 10) == [list(range(limit or 10))]
    assert work.evaluated <= 10
    assert work.seen <= 10
