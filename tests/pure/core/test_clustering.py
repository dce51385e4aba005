"""Where clusters begin, which rows are in which, and which segments are rewritten by their clustering key."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.clustering import (
    Cluster,
    boundaries,
    cluster_count,
    cluster_of,
    clusters_of,
    segments_max,
    slices,
)
from elanus.core.compaction import (
    EXCHANGE_MAX,
    INPUTS_MAX,
    Candidate,
    CompactionThresholds,
    choose,
    choose_clusterings,
)
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import compose

KEY = FieldID(101)
MAX_ROWS = 100


def values_of(kind: str, numbers: list[int | None]) -> pa.Array:
    if kind == "string":
        return pa.array([None if n is None else f"é{n:05}" for n in numbers], pa.string())
    return pa.array(numbers, {"int64": pa.int64(), "float32": pa.float32(), "int8": pa.int8()}[kind])


@pytest.mark.parametrize("kind", ["int64", "float32", "string", "int8"])
@given(
    numbers=st.lists(st.none() | st.integers(0, 120), min_size=1, max_size=60),
    clusters=st.integers(1, 9),
)
def test_clusters_are_ranges_that_do_not_overlap(kind: str, numbers: list[int | None], clusters: int) -> None:
    values = values_of(kind, numbers)
    starts = boundaries(values, clusters)
    assert len(starts) < clusters or clusters == 1
    found = clusters_of(values, starts)
    assert len(found) == len(numbers), "each row is in one cluster"
    parts = [
        [v for v, c in zip(values.to_pylist(), found, strict=True) if c == n and v is not None]
        for n in range(len(starts) + 1)
    ]
    filled = [part for part in parts if part]
    assert all(max(one) < min(two) for one, two in pairwise(filled))
    assert not found[[v is None for v in values.to_pylist()]].any(), "rows without a value are in the first"


def test_clusters_are_of_about_equal_size() -> None:
    values = pa.array(np.random.default_rng(5).normal(size=10_000))
    starts = boundaries(values.slice(0, 2000), 10)
    sizes = np.bincount(clusters_of(values, starts))
    assert len(sizes) == 10
    assert sizes.min() > 700
    assert sizes.max() < 1300


def test_a_value_that_is_nearly_everywhere_is_one_cluster() -> None:
    values = pa.array([7] * 95 + [1, 2, 3, 8, 9])
    starts = boundaries(values, 4)
    assert starts == (7,)
    assert np.bincount(clusters_of(values, starts)).tolist() == [3, 97]


def test_nan_is_in_the_last_cluster_and_has_no_bounds() -> None:
    values = pa.array([1.0, float("nan"), 5.0, None])
    assert clusters_of(values, boundaries(values, 2)).tolist() == [0, 1, 1, 0]
    assert cluster_of(KEY, values) == Cluster(KEY, None, None)
    assert cluster_of(KEY, values.slice(2)) == Cluster(KEY, 5.0, 5.0)
    assert cluster_of(KEY, pa.array([None], pa.int64())) == Cluster(KEY, None, None)


def test_large_integers_are_compared_exactly() -> None:
    values = pa.array([2**62, 2**62 + 1, 2**62 + 2])
    assert clusters_of(values, (2**62 + 1,)).tolist() == [0, 1, 1]


@given(sizes=st.lists(st.integers(0, 350), max_size=8), rows_max=st.integers(1, 100))
def test_clusters_that_are_too_large_are_cut_into_as_many_segments_as_there_are_ids(
    sizes: list[int], rows_max: int
) -> None:
    found = slices(sizes, rows_max)
    for cluster, rows in enumerate(sizes):
        parts = [s for s in found if s.cluster == cluster]
        assert [s.part for s in parts] == list(range(len(parts)))
        ends = [rows * n // max(1, len(parts)) for n in range(len(parts) + 1)]
        assert all(0 < last - first <= rows_max for first, last in pairwise(ends))
    if len(sizes) <= cluster_count(sum(sizes), rows_max):
        assert len(found) <= segments_max(sum(sizes), rows_max)


def candidate(number: int, rows: int, dead: int = 0, clustering: int = 0, partition: int = 1) -> Candidate:
    info = SegmentInfo(
        SegmentID(number),
        CollectionID(1),
        PartitionID(partition),
        "v0",
        SegmentState.FLUSHED,
        MAX_ROWS,
        compose(1),
        compose(1),
        rows=rows,
        manifest=f"m{number}",
        clustering=clustering,
    )
    return Candidate(info, dead, 0, 0)


def ids(groups: list[tuple[SegmentInfo, ...]]) -> list[list[int]]:
    return [[info.segment_id for info in group] for group in groups]


def test_a_partition_is_rewritten_as_a_whole_if_one_segment_cannot_hold_it() -> None:
    large = [candidate(1, 80), candidate(2, 90, clustering=7), candidate(3, 5)]
    small = [candidate(4, 20, partition=2), candidate(5, 20, partition=2)]
    chosen, left = choose_clusterings([*large, *small], MAX_ROWS)
    assert ids(chosen) == [[1, 2, 3]]
    assert left == small


@pytest.mark.parametrize("rows", [1, 10, 80])
def test_a_partition_of_many_segments_is_rewritten_in_parts(rows: int) -> None:
    many = [candidate(number, rows) for number in range(2 * INPUTS_MAX + 1)]
    chosen, left = choose_clusterings(many, MAX_ROWS)
    assert [number for group in ids(chosen) for number in group] == list(range(len(many)))
    assert left == []
    exchanges = [len(group) * cluster_count(rows * len(group), MAX_ROWS) for group in chosen]
    assert max(map(len, chosen)) <= INPUTS_MAX
    assert 0.9 * EXCHANGE_MAX < max(exchanges) <= EXCHANGE_MAX


def test_what_a_commit_of_the_largest_plan_writes_is_bounded_by_its_segments() -> None:
    """Every output names all inputs, or readers would not know what it replaces."""
    first = 440_000_000_000_000_000
    many = [candidate(first + number, 80) for number in range(INPUTS_MAX)]
    (inputs, *_), _ = choose_clusterings(many, MAX_ROWS)
    parents = tuple(info.segment_id for info in inputs)
    outputs = [replace(inputs[0], compacted_from=parents)] * cluster_count(80 * len(inputs), MAX_ROWS)
    written = sum(len(msgspec.json.encode(info)) for info in (*inputs, *outputs))
    assert written / (len(inputs) + len(outputs)) < 3000


def test_many_clusters_of_one_compaction_stay_next_to_new_segments() -> None:
    made = [candidate(number, 90, clustering=7) for number in range(200)]
    new = [candidate(1000 + number, 90) for number in range(3)]
    chosen, left = choose_clusterings([*made, *new], MAX_ROWS)
    assert ids(chosen) == [[1000, 1001, 1002]]
    assert left == made
    few, worn = made[:20], [*made[1:], replace(made[0], dead_rows=1)]
    assert len(choose_clusterings([*few, *new], MAX_ROWS)[0][0]) == 23, "these are clustered together"
    assert choose_clusterings([*worn, *new], MAX_ROWS)[1] == []
    other = [candidate(2000 + number, 90, clustering=8) for number in range(200)]
    assert choose_clusterings([*made, *other], MAX_ROWS) == ([], [*made, *other])


def test_clusters_without_dead_rows_and_without_new_segments_stay() -> None:
    clusters = [candidate(n, 80, clustering=7) for n in (1, 2)]
    assert choose_clusterings(clusters, MAX_ROWS) == ([], clusters)
    worn = replace(clusters[0], dead_rows=1)
    assert ids(choose_clusterings([worn, clusters[1]], MAX_ROWS)[0]) == [[1, 2]]
    other = candidate(2, 80, clustering=8)
    assert ids(choose_clusterings([clusters[0], other], MAX_ROWS)[0]) == [[1, 2]]


def test_other_compactions_never_merge_clusters() -> None:
    thresholds = CompactionThresholds(0.2, 1000, 2)
    clusters = [candidate(1, 10, clustering=7), candidate(2, 10, dead=5, clustering=7)]
    small = [candidate(3, 10), candidate(4, 10)]
    for force in (False, True):
        assert ids(choose([*clusters, *small], thresholds, MAX_ROWS, force=force)) == [[3, 4], [2]]
    found = ids(choose([*clusters, *small], thresholds, MAX_ROWS, force=True, rows_target=MAX_ROWS))
    assert sorted(found) == [[1], [2], [3, 4]]
