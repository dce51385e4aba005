"""Grouping search, boosts, orders and aggregates on a query node, against the model of its rows."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import channel_world
import numpy as np
import pytest
from channel_world import B, Cluster
from node_world import World, scenario

from elanus.api.boosts import Boost, Boosts
from elanus.core.aggregation import Aggregate, Aggregation, combined, finished
from elanus.core.errors import InvalidParameter
from elanus.core.function_chains import Call, Chain, Chains, Limit, Map, Sort
from elanus.core.grouping import Grouping
from elanus.core.ordering import OrderBy
from elanus.core.schema import DataType
from elanus.proxy.fanout.deadline import Patience
from elanus.querynode import ranking

MANY = 100_000
"""More rows than any of these tests may have to rank."""


async def written(world: World, *pairs: tuple[int, int], seal: bool = False) -> None:
    """Rows (key, value); the tag of a row depends on its value."""
    await world.insert(pairs)
    await world.tick()
    if seal:
        world.seal()
        await world.hand_off(world.flush())


def groups(
    world: World,
    value: int,
    k: int,
    size: int = 1,
    *,
    strict: bool = False,
    field: str = "tag",
    limit: int = MANY,
) -> list[tuple[str | None, list[int]]]:
    """The groups of the rows nearest to a value: the tag, and the keys, in the order of the answer."""
    asked = world.node_search(
        value,
        k,
        grouping=Grouping(("tag",), size, strict),
        candidates_max=limit,
        output_fields=("tag",),
    )
    hits = world.node.search(asked)
    found: dict[str | None, list[int]] = {}
    for tag, key in zip(hits.fields["tag"].to_pylist(), hits.ids.tolist(), strict=True):
        found.setdefault(tag, []).append(key)
    assert (np.diff(hits.offsets) == len(hits.scores)).all()
    return list(found.items())


def expected(world: World, value: int, k: int, size: int) -> list[tuple[str | None, list[int]]]:
    """The same from the model: groups in the order of their nearest rows, as full as can be."""
    found: dict[str | None, list[int]] = {}
    rows = world.model.newest(world.model.visible(world.tick_ts)).values()
    for row in sorted(rows, key=lambda r: (abs(r.value - value), r.key)):
        found.setdefault(row.tag, []).append(int(row.key))
    return [(tag, keys[:size]) for tag, keys in list(found.items())[:k]]


@scenario()
async def test_the_best_row_of_each_group_over_all_segments(world: World) -> None:
    await written(world, *[(n, n) for n in range(40)], seal=True)
    await written(world, *[(n, n) for n in range(40, 60)])
    for value in (0, 17, 38, 55):
        for k in (1, 2, 4):
            assert groups(world, value, k) == expected(world, value, k, 1)


@scenario()
async def test_strict_groups_are_full_if_there_are_rows(world: World) -> None:
    await written(world, *[(n, n) for n in range(30)], seal=True)
    await written(world, *[(n, n) for n in range(30, 50)])
    for size in (2, 5, 9):
        assert groups(world, 20, 4, size, strict=True) == expected(world, 20, 4, size)


@scenario()
async def test_a_search_looks_beyond_a_crowd_of_one_group(world: World) -> None:
    """A thousand rows of tag a are nearest; of b and c there is one row each, far away."""
    crowd = [(n, 15 * (n % 60)) for n in range(1000)]
    await written(world, *crowd, (5001, 100_006), (5002, 200_012 - 1), seal=True)
    tags = [tag for tag, _ in groups(world, 0, 3)]
    assert tags == [tag for tag, _ in expected(world, 0, 3, 1)]
    assert len(set(tags)) == len(tags) > 1


@scenario()
async def test_the_rows_that_are_ranked_have_a_limit(world: World) -> None:
    await written(world, *[(n, 15 * n) for n in range(1000)], (5001, 100_006), seal=True)
    asked: list[int] = []
    original = ranking.Ranking.rank

    def counted(self: ranking.Ranking, blocks: list[ranking.Block]) -> ranking.Found:
        asked.append(self.request.k * len(self.request.queries))
        return original(self, blocks)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ranking.Ranking, "rank", counted)
        assert len(groups(world, 0, 2, limit=100)) == 1
        assert max(asked) == 100
        asked.clear()
        assert len(groups(world, 0, 2)) == 2
        assert asked == [2, 8, 32, 128, 512, 1001]


@scenario()
async def test_queries_of_one_request_are_independent(world: World) -> None:
    await written(world, *[(n, 15 * n) for n in range(300)], (5001, 100_006), (5002, 100_007), seal=True)
    values = [0, 100_006, 4485]
    asked = world.node_search(
        0, 2, grouping=Grouping(("tag",), 2), candidates_max=MANY, output_fields=("tag",)
    )
    queries = np.array([[v, -v] for v in values], dtype=np.float32)
    hits = world.node.search(replace(asked, queries=queries))
    for i, value in enumerate(values):
        own = hits.ids.tolist()[hits.offsets[i] : hits.offsets[i + 1]]
        alone = [key for _, keys in groups(world, value, 2, 2) for key in keys]
        assert own == alone


@scenario(key_type=DataType.VARCHAR)
async def test_groups_with_string_keys_and_deleted_rows(world: World) -> None:
    await written(world, *[(n, n) for n in range(12)], seal=True)
    await written(world, (20, 0), (21, 1))
    await world.delete([0, 1, 2])
    await world.tick()
    asked = world.node_search(
        0, 2, grouping=Grouping(("tag",), 2, strict=True), candidates_max=MANY, output_fields=("tag",)
    )
    assert world.node.search(asked).ids.tolist() == ["key-0020", "key-0003", "key-0021", "key-0007"]


@scenario()
async def test_no_rows_have_no_groups(world: World) -> None:
    assert groups(world, 0, 3) == []


@scenario()
async def test_a_boost_reorders_the_rows_that_it_matches(world: World) -> None:
    await written(world, (1, 1), (2, 2), (3, 3), seal=True)
    await written(world, (4, 4), (5, 5))
    boosts = Boosts((Boost(world.filter("value >= 4"), 0.01),))
    hits = world.node.search(world.node_search(0, 5, boosts=boosts))
    assert hits.ids.tolist() == [4, 5, 1, 2, 3]
    assert hits.scores.tolist() == pytest.approx([0.32, 0.5, 2, 8, 18])
    added = Boosts((Boost(world.filter(""), 1.0), Boost(world.filter("value == 1"), 100.0)), "sum", "sum")
    hits = world.node.search(world.node_search(0, 5, boosts=added))
    assert dict(zip(hits.ids.tolist(), hits.scores.tolist(), strict=True)) == {
        2: 9.0,
        3: 19.0,
        4: 33.0,
        5: 51.0,
        1: 103.0,
    }


@scenario()
async def test_a_random_boost_is_the_same_for_the_same_seed(world: World) -> None:
    await written(world, *[(n, 1) for n in range(20)], seal=True)

    def ranked(seed: int, field: str = "") -> list[int]:
        boosts = Boosts((Boost(world.filter(""), 1.0, is_random=True, seed=seed, random_field=field),))
        return [int(k) for k in world.node.search(world.node_search(9, 20, boosts=boosts)).ids.tolist()]

    assert ranked(1) == ranked(1)
    assert ranked(1) != ranked(2)
    assert ranked(1, "value") == sorted(ranked(1))


SUM = {"mode": "sum", "weights": (), "null_policy": "propagate"}
BY_VALUE = Map("$score", Call("num_combine", ("$score", "value"), dict(SUM)))


@scenario()
async def test_a_chain_scores_the_hits_of_each_segment(world: World) -> None:
    await written(world, (1, 1), (2, 2), (3, 3), seal=True)
    await written(world, (4, 4), (5, 5))
    chains = Chains(segment=Chain((BY_VALUE,), ("value",)))
    hits = world.node.search(world.node_search(5, 3, chains=chains))
    # a distance counts as negative: of -2 (v - 5)² + v the largest are best
    assert dict(zip(hits.ids.tolist(), hits.scores.tolist(), strict=True)) == {5: -5.0, 4: -2.0, 3: 5.0}
    assert hits.ids.tolist() == [5, 4, 3]


@scenario()
async def test_a_chain_cuts_the_hits_of_a_node_and_the_best_come_first(world: World) -> None:
    await written(world, (1, 1), (2, 2), (3, 3), seal=True)
    await written(world, (4, 4), (5, 5))
    chain = Chain((BY_VALUE, Sort("value"), Limit(3, 1)), ("value",))
    hits = world.node.search(world.node_search(5, 5, chains=Chains(node=chain), output_fields=("value",)))
    assert hits.ids.tolist() == [4, 3, 2]
    assert hits.scores.tolist() == [-2.0, 5.0, 16.0]
    assert hits.fields["value"].to_pylist() == [4, 3, 2]


@scenario()
async def test_rows_are_returned_in_the_order_of_fields(world: World) -> None:
    await written(world, (1, 5), (2, 3), (3, 9), seal=True)
    await written(world, (4, 3), (5, 7), (2, 8))

    def keys(order: OrderBy, limit: int | None = None) -> list[int]:
        rows = world.node.query(world.node_query("", order=(order,), limit=limit))
        return [int(key) for key in rows["id"].to_pylist()]

    assert keys(OrderBy("value")) == [4, 1, 5, 2, 3]
    assert keys(OrderBy("value", descending=True), 2) == [3, 2]
    asked = world.node_query("", order=(OrderBy("tag"), OrderBy("value")), output_fields=("tag", "value"))
    rows = world.node.query(asked)
    visible = world.model.newest(world.model.visible(world.tick_ts)).values()
    expected_rows = sorted(visible, key=lambda row: (row.tag is None, row.tag or "", row.value))
    assert rows["tag"].to_pylist() == [row.tag for row in expected_rows]
    assert rows["value"].to_pylist() == [row.value for row in expected_rows]


COUNTS = Aggregation(("tag",), (Aggregate("count", "*", "count(*)"), Aggregate("sum", "value", "sum(value)")))


@scenario()
async def test_groups_of_rows_are_counted_and_added(world: World) -> None:
    await written(world, *[(n, n) for n in range(30)], seal=True)
    await written(world, *[(n, n) for n in range(30, 50)])
    await world.delete([3, 33])
    await world.tick()
    part = world.node.query(world.node_query("value > 5", aggregation=COUNTS))
    result = finished(combined([part], COUNTS), COUNTS)
    rows = [row for row in world.model.visible(world.tick_ts) if row.value > 5]
    counts, sums = Counter(row.tag for row in rows), Counter[str | None]()
    for row in rows:
        sums[row.tag] += row.value
    tags = result["tag"].to_pylist()
    assert tags == ["a", "b", "c", None]
    assert result["count(*)"].to_pylist() == [counts[tag] for tag in tags]
    assert result["sum(value)"].to_pylist() == [sums[tag] for tag in tags]


@scenario()
async def test_too_many_groups_for_one_answer_are_refused(world: World) -> None:
    await written(world, *[(n, n) for n in range(200)], seal=True)
    by_key = Aggregation(("id",), (Aggregate("count", "*", "count(*)"),))
    with pytest.raises(InvalidParameter, match=r"proxy\.answer_max_mb"):
        world.node.query(world.node_query("", aggregation=by_key, answer_bytes_max=1000))


@channel_world.scenario
async def test_nodes_together_answer_as_one(cluster: Cluster) -> None:
    """The same rows on two nodes: groups, orders and aggregates over both."""
    await cluster.insert([(n, 3 * n) for n in range(20)])
    await cluster.tick()
    cluster.seal()
    (segment,) = cluster.flush()
    await cluster.load(B, [segment])
    await cluster.place({segment: B})
    await cluster.insert([(n, n) for n in range(20, 60)])
    await cluster.tick()
    patience = Patience(5.0)
    asked = cluster.node_search(
        30, 3, grouping=Grouping(("tag",), 2, strict=True), candidates_max=MANY, output_fields=("tag",)
    )
    hits = await asyncio.to_thread(cluster.proxy.search, asked, patience)
    assert hits.ids.tolist() == [key for _, keys in expected(cluster, 30, 3, 2) for key in keys]
    ordered = cluster.node_query("", order=(OrderBy("value", descending=True),), limit=5)
    rows = await asyncio.to_thread(cluster.proxy.query, ordered, patience)
    visible = cluster.model.newest(cluster.model.visible(cluster.tick_ts)).values()
    assert rows["value"].to_pylist() == sorted((row.value for row in visible), reverse=True)[:5]
    part = await asyncio.to_thread(cluster.proxy.query, cluster.node_query("", aggregation=COUNTS), patience)
    result = finished(combined([part], COUNTS), COUNTS)
    counts = Counter(row.tag for row in visible)
    assert dict(zip(result["tag"].to_pylist(), result["count(*)"].to_pylist(), strict=True)) == counts
    boosts = Boosts((Boost(cluster.filter("value > 55"), 0.0),))
    search = cluster.node_search(50, 60, boosts=boosts)
    boosted = await asyncio.to_thread(cluster.proxy.search, search, patience)
    scored = {row.key: 0 if row.value > 55 else 2 * (row.value - 50) ** 2 for row in visible}
    best = sorted(scored.items(), key=lambda hit: (hit[1], hit[0]))
    assert list(zip(boosted.ids.tolist(), boosted.scores.tolist(), strict=True)) == best
