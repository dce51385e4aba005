"""A search of many vectors in slices has the answer of one search, and ends when nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from msgspec import structs
from node_world import World, scenario

from elanus.api.querynode import NodeHits, NodeSearch
from elanus.core.errors import DeadlineExceeded
from elanus.core.schema import DataType
from elanus.core.vector_lists import Queries
from elanus.querynode import query_slices
from elanus.querynode.ranking import Ranking

QUERIES = 41


async def several_blocks(world: World) -> None:
    """Two flushed segments and growing rows; some are deleted, some have a key that others have."""
    for start in (0, 30):
        await world.insert([(key, key) for key in range(start, start + 30)])
        await world.tick()
        world.seal()
        await world.hand_off(world.flush())
    await world.insert([(key, key) for key in range(55, 90)])
    await world.delete([3, 70])
    await world.tick()


def many(world: World, k: int, text: str = "", **changes: Any) -> NodeSearch:
    values = np.linspace(-5, 95, QUERIES, dtype=np.float32)
    request = world.node_search(0, k, text)
    return structs.replace(request, queries=np.stack([values, -values], axis=1), **changes)


def parts_of(hits: NodeHits) -> dict[str, object]:
    found = {field.name: getattr(hits, field.name) for field in fields(hits)}
    found["fields"] = {name: column.to_pylist() for name, column in hits.fields.items()}
    return {n: list(v) if n in ("ids", "offsets", "scores") else v for n, v in found.items()}


@contextmanager
def slices_of(hits_max: int) -> Iterator[list[int]]:
    """Hold so many hits at a time. Yields the sizes of the slices that are searched."""
    sizes: list[int] = []
    search = Ranking._slice

    def noted(self: Ranking, blocks: Any, queries: Queries) -> Any:
        sizes.append(len(queries))
        return search(self, blocks, queries)

    with patch.object(query_slices, "HITS_MAX", hits_max), patch.object(Ranking, "_slice", noted):
        yield sizes


@pytest.mark.parametrize("hits_max", [1, 60, 400])
@pytest.mark.parametrize("key", [DataType.INT64, DataType.VARCHAR])
def test_slices_have_the_answer_of_the_whole(tmp_path: Path, key: DataType, hits_max: int) -> None:
    @scenario(key_type=key)
    async def compare(world: World) -> None:
        await several_blocks(world)
        for request in (many(world, 3), many(world, 100), many(world, 3, "value > 1000"), many(world, 1)):
            whole = world.node.search(request)
            with slices_of(hits_max) as sizes:
                assert parts_of(world.node.search(request)) == parts_of(whole)
            assert sum(sizes) == QUERIES
            assert max(sizes) <= max(4, hits_max // request.k)

    compare(tmp_path)


@scenario()
async def test_what_is_held_at_a_time_does_not_grow_with_the_vectors(world: World) -> None:
    await several_blocks(world)
    blocks = len(world.snapshot.blocks(world.tick_ts, (), False, 0))  # type: ignore[arg-type]
    with slices_of(100 * blocks) as sizes:
        world.node.search(many(world, 10))
    assert sizes == [10, 10, 10, 10, 1]


@scenario()
async def test_a_search_that_takes_long_is_divided_by_time(world: World) -> None:
    await several_blocks(world)
    with patch.object(query_slices, "SLICE_NS", 1.0), slices_of(1 << 22) as sizes:
        world.node.search(many(world, 3))
    assert sizes == [query_slices.TIMED_QUERIES_MIN, QUERIES - query_slices.TIMED_QUERIES_MIN]


@scenario()
async def test_a_search_ends_when_its_client_does_not_wait_any_longer(world: World) -> None:
    await several_blocks(world)
    clock = iter([0.0, 1.0, 4.0, 11.0, 12.0])
    with (
        patch.object(query_slices, "time", SimpleNamespace(monotonic=lambda: next(clock))),
        slices_of(1) as sizes,
        pytest.raises(DeadlineExceeded, match="waits for 10 s, in which 8 of the 41 vectors"),
    ):
        world.node.search(many(world, 3, timeout_s=10.0))
    assert sizes == [4, 4]


@scenario()
async def test_one_vector_is_not_timed(world: World) -> None:
    await several_blocks(world)
    with slices_of(1 << 22) as sizes:
        assert world.nearest(20, 1) == [20]
    assert sizes == [1]
