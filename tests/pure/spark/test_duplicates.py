"""Groups of near duplicates, held against a search of all pairs and against the plainest union-find."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshot_world import DIM, World, vectors

from elanus.core.schema import DataType
from elanus.spark.components import forest, pairs_schema
from elanus.spark.duplicates import delete_filters, pairs_of
from elanus.spark.searches import SearchJob, segment_sets

PAIRS = pairs_schema(pa.int64())


def batch(*pairs: tuple[int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"key": a, "keep": b} for a, b in pairs], schema=PAIRS)


def groups(pairs: list[tuple[int, int]]) -> dict[int, int]:
    """The smallest key of each key's group, without those that are the smallest."""
    smallest = {key: key for pair in pairs for key in pair}
    for _ in smallest:
        for a, b in pairs:
            smallest[a] = smallest[b] = min(smallest[a], smallest[b])
    return {key: keep for key, keep in smallest.items() if key != keep}


@given(st.lists(st.tuples(st.integers(-9, 20), st.integers(-9, 20)), max_size=40), st.integers(0, 40))
def test_the_forest_has_the_components_of_the_pairs(pairs: list[tuple[int, int]], cut: int) -> None:
    whole = forest([batch(*pairs)], PAIRS)
    assert {r["key"]: r["keep"] for r in whole.to_pylist()} == groups(pairs)
    assert whole.num_rows == len(groups(pairs))
    parts = [forest([batch(*some)], PAIRS) for some in (pairs[:cut], pairs[cut:])]
    assert forest(parts, PAIRS).equals(whole), "in parts first, the same"


def test_a_long_chain_takes_few_rounds() -> None:
    chain = np.arange(100_000)
    order = np.random.default_rng(3).permutation(chain[:-1])
    pairs = pa.RecordBatch.from_arrays([pa.array(order), pa.array(order + 1)], schema=PAIRS)
    found = forest([pairs], PAIRS)
    assert found.num_rows == 99_999
    assert set(found.column("keep").to_pylist()) == {0}


def test_strings_have_the_smallest_of_their_order() -> None:
    texts = pairs_schema(pa.string())
    pairs = pa.RecordBatch.from_pylist(
        [{"key": "b", "keep": "a10"}, {"key": "b", "keep": "a9"}], schema=texts
    )
    assert forest([pairs], texts).to_pylist() == [{"key": "a9", "keep": "a10"}, {"key": "b", "keep": "a10"}]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("sets", [1, 2])
def test_rows_that_are_close_are_found_across_segments(tmp_path: Path, exact: bool, sets: int) -> None:
    world = World(tmp_path)
    rows = vectors(60)
    world.index(world.add(list(range(60)), rows))
    copies = rows[:10] + np.float32(0.001)
    world.add(list(range(100, 110)), copies)
    world.add([200, 201], np.stack([copies[3] + np.float32(0.001), np.full(DIM, 50, np.float32)]))
    world.delete(20, 4)
    plan = world.plan(k=6, params={"radius": 0.01, "ef": 64}, exact=exact)
    job = SearchJob(plan, segment_sets(world.snapshot, plan, sets))
    held = job.segments
    parts = [pairs_of(job, m, s, PAIRS, threads=1) for m in held for s in job.sets]
    found = {r["key"]: r["keep"] for r in forest(parts, PAIRS).to_pylist()}
    live = {key: row for key, row in world.vectors.items() if key != 4}
    close = [
        (a, b)
        for a, one in live.items()
        for b, other in live.items()
        if float(((one - other) ** 2).sum()) < 0.01
    ]
    assert found == groups(close)
    assert found[200] == 3
    assert 104 not in found, "the row that it copies was deleted"


def test_keys_become_filters_for_a_delete() -> None:
    assert list(delete_filters(iter([1, 2, 3]), size=2)) == ["id in [1, 2]", "id in [3]"]
    assert list(delete_filters(iter(["a", 'b"']), "name")) == ["name in ['a', 'b\"']"]
    assert list(delete_filters(iter([]))) == []


def test_a_collection_may_have_string_keys(tmp_path: Path) -> None:
    world = World(tmp_path, DataType.VARCHAR)
    world.add(["x", "y"], np.zeros((2, DIM), np.float32))
    plan = world.plan(k=3, params={"radius": 0.01})
    job = SearchJob(plan, segment_sets(world.snapshot, plan, 1))
    texts = pairs_schema(pa.string())
    (row,) = pairs_of(job, world.manifests[0], job.sets[0], texts, threads=1).to_pylist()
    assert row == {"key": "y", "keep": "x"}
