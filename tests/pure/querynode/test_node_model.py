"""Every read of a collection at every timestamp gives exactly the model's rows.

Writes, deletes, late messages and ticks in any order; flushes, handoffs, exchanges for an indexed copy,
compactions, restarts in between. Counts and raw rows are compared too, where de-duplication cannot hide a
row that is lost or doubled.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from node_rows import Row
from node_world import World

from elanus.core.schema import DataType

keys = st.integers(0, 9)
pairs = st.lists(st.tuples(keys, st.integers(0, 12)), min_size=1, max_size=5)
upserts = st.lists(st.tuples(keys, st.integers(0, 12)), min_size=1, max_size=4, unique_by=lambda p: p[0])
partitions = st.integers(1, 2)
steps = st.one_of(
    st.tuples(st.just("insert"), pairs, partitions),
    st.tuples(st.just("upsert"), upserts, partitions, st.booleans()),
    st.tuples(st.just("delete"), st.lists(keys, min_size=1, max_size=4), st.integers(0, 2)),
    st.tuples(st.just("late"), pairs),
    st.tuples(st.just("tick"), st.integers(0, 2)),
    st.tuples(st.just("sync")),
    st.tuples(st.just("hand off")),
    st.tuples(st.just("hand off later")),
    st.tuples(st.just("index")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("restart")),
)

FILTERS = {
    "": lambda row: True,
    "value >= 5": lambda row: row.value >= 5,
    'tag == "a"': lambda row: row.tag == "a",
    "half == 2": lambda row: row.value // 2 == 2,
}


class Story:
    """Plays steps, and compares the node with the model after each of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.oldest = 0

    async def play(self, step: tuple) -> None:
        world = self.world
        match step:
            case ("insert", pairs, partition):
                await world.insert(pairs, partition)
            case ("upsert", pairs, partition, everywhere):
                await world.insert(pairs, partition, upsert=True, deletes_in=0 if everywhere else partition)
            case ("delete", keys, partition):
                await world.delete(keys, partition)
            case ("late", pairs) if world.tick_ts > 100:
                await world.insert(pairs, ts=world.tick_ts)
                await world.delete([key for key, _ in pairs], ts=world.tick_ts)
            case ("tick", behind):
                await world.tick(behind)
            case ("hand off",):
                await self.hand_off()
            case ("sync",):  # into files, and yet growing
                world.flush()
            case ("hand off later",):  # loaded now, announced after more has happened
                world.seal()
                world.flush()
                for segment_id in await self.unserved():
                    await world.node.load_segment(world.segment_request(segment_id))
            case ("index",):
                await self.exchange()
            case ("compact",):
                await self.compact()
            case ("forget",):
                await world.node.forget_deletes(7, "by-dev-rootcoord-dml_0_7v0", world.checkpoint.ts)
            case ("restart",):
                await world.restart()

    async def unserved(self) -> list[int]:
        """Finished segments that no version names yet."""
        served = {s.segment_id for s in (await self.world.node.status()).segments if s.sealed}
        return [s for s in self.world.finished() if s not in served]

    async def hand_off(self) -> None:
        self.world.seal()
        self.world.flush()
        await self.world.hand_off(await self.unserved())

    async def exchange(self) -> None:
        await self.hand_off()
        indexed = [
            s
            for s in self.world.finished()
            if not self.world.segments[s].indexes and self.world.segments[s].manifest.rows
        ]
        for segment_id in indexed:
            self.world.build_index(segment_id)
        await self.world.hand_off(indexed)

    async def compact(self) -> None:
        world = self.world
        await self.hand_off()
        for partition in (1, 2):
            manifests = [world.segments[s].manifest for s in world.finished()]
            inputs = [m.segment_id for m in manifests if m.partition_id == partition and m.rows]
            if inputs:
                await world.hand_off([world.compact(inputs)], inputs)
        self.oldest = world.checkpoint.ts  # deletes up to there are folded in: earlier reads see less

    def compare(self, pinned: list[int]) -> None:
        world = self.world
        world.node.invariants()
        served = world.node.service_time(7)
        assert served == world.tick_ts
        for ts in {served, *(max(self.oldest, p % (served + 1), 1) for p in pinned)}:
            for text, where in FILTERS.items():
                partitions = (2,) if text == "value >= 5" else ()
                self.compare_rows(ts, text, world.model.visible(ts, partitions, where), partitions)

    def compare_rows(self, ts: int, text: str, rows: list[Row], partitions: tuple[int, ...]) -> None:
        world = self.world
        request = world.node_query(text, ts, partition_ids=partitions)
        newest = world.model.newest(rows)
        found = world.node.query(request)
        assert found["id"].to_pylist() == list(newest)
        values = dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))
        for key, row in newest.items():
            same_age = {r.value for r in rows if r.key == key and r.born == row.born}
            assert values[key] in same_age
        assert found["vector"].to_pylist() == [[v, -v] for v in values.values()]
        assert world.node.count(request) == len(rows)
        limited = world.node.query(world.node_query(text, ts, partition_ids=partitions, limit=2))
        assert limited["id"].to_pylist() == list(newest)[:2]
        self.compare_keys(ts, text, rows, partitions)
        for k in (1, 3, 50):
            self.compare_search(ts, text, rows, partitions, k)

    def compare_keys(self, ts: int, text: str, rows: list[Row], partitions: tuple[int, ...]) -> None:
        world = self.world
        wanted = [world.key(n) for n in (3, 1, 77)]
        keys = world.batch([Row(key, 0, 0, 0) for key in wanted]).column("id")
        request = world.node_query(text, ts, partition_ids=partitions, primary_keys=keys)
        matching = [row for row in rows if row.key in wanted]
        assert world.node.query(request)["id"].to_pylist() == sorted({row.key for row in matching})
        assert world.node.count(request) == len(matching)

    def compare_search(
        self, ts: int, text: str, rows: list[Row], partitions: tuple[int, ...], k: int
    ) -> None:
        best: dict[int | str, float] = {}
        for row in rows:
            score = 2.0 * (row.value - 6) ** 2
            best[row.key] = min(score, best.get(row.key, score))
        hits = self.world.node.search(self.world.node_search(6, k, text, ts, partition_ids=partitions))
        found = list(zip(hits.scores.tolist(), hits.ids.tolist(), strict=True))
        assert [score for score, _ in found] == sorted(best.values())[:k]
        assert found == sorted(found)
        assert all(best[key] == score for score, key in found)
        assert [2.0 * (v - 6) ** 2 for v in hits.fields["value"].to_pylist()] == hits.scores.tolist()


async def play(
    directory: Path, script: list[tuple], pinned: list[int], key_type: DataType, index: str
) -> None:
    params = {"index_type": index, "metric_type": "L2"}
    world = World(directory, key_type=key_type, index=params)
    story = Story(world)
    await world.start()
    for step in [*script, ("tick", 0), ("hand off",), ("tick", 0)]:
        await story.play(step)
        story.compare(pinned)
    await world.node.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key_type", "index"),
    [(DataType.INT64, "HNSW"), (DataType.VARCHAR, "FLAT"), (DataType.INT64, "IVF_FLAT")],
)
@given(script=st.lists(steps, max_size=14), pinned=st.lists(st.integers(0, 200), max_size=2))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_reads_are_the_models(script: list[tuple], pinned: list[int], key_type: DataType, index: str) -> None:
    np.random.seed(0)
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(play(Path(directory), script, pinned, key_type, index))
