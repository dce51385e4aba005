"""Searches of a snapshot's segments as tasks do them, held against distances computed by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from snapshot_world import DIM, HITS, World, schema, vectors

import elanus.spark.segment_search as module
from elanus.core.errors import (
    FieldNotFound,
    InvalidParameter,
    InvalidTopK,
    NotSupported,
    TimestampTooOld,
)
from elanus.core.schema import DataType
from elanus.core.timestamps import Timestamp
from elanus.spark.hits import reduced
from elanus.spark.searches import search_plan, segment_sets
from elanus.spark.snapshot import shown_at


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two segments with an index and one without."""
    made = World(tmp_path)
    for number in range(3):
        manifest = made.add(list(range(100 * number, 100 * number + 100)), vectors(100, number))
        if number:
            made.index(manifest)
    return made


def keys(answers: list[list[tuple[Any, float]]]) -> list[list[Any]]:
    return [[key for key, _ in hits] for hits in answers]


@pytest.mark.parametrize("sets", [1, 2, 3])
@pytest.mark.parametrize("exact", [False, True])
def test_the_nearest_rows_of_all_segments(world: World, sets: int, exact: bool) -> None:
    queries = vectors(20, 99)
    answers = world.hits(world.plan(k=5, exact=exact, params={"ef": 100}), queries, sets)
    assert keys(answers) == [world.nearest(query, 5) for query in queries]
    best = world.vectors[answers[0][0][0]]
    assert answers[0][0][1] == pytest.approx(float(((best - queries[0]) ** 2).sum()), rel=1e-5)


def test_indexes_are_used_and_exact_searches_do_without(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []
    load = module.load
    monkeypatch.setattr(module, "load", lambda path, spec: loaded.append(path) or load(path, spec))
    world.hits(world.plan(), vectors(1))
    assert len(loaded) == 2
    world.hits(world.plan(exact=True), vectors(1))
    assert len(loaded) == 2


def test_deletes_the_filter_and_the_moment_decide_which_rows_may_be_found(world: World) -> None:
    (query,) = vectors(1, 99)
    first, second = world.nearest(query, 2)
    world.delete(20, first)
    world.delete(40, second)
    assert keys(world.hits(world.plan(k=1), query[None])) == [[second]]
    past = replace(world.snapshot, read_ts=Timestamp(15))
    plan = search_plan(past, world.store.url, field="v", k=1)
    assert keys(world.hits(plan, query[None])) == [[first]], "as of a moment before the delete"
    some = world.hits(world.plan(k=4, filter="id >= 250"), query[None])
    assert keys(some) == [world.nearest(query, 4, lambda key: key >= 250 and key != first)]
    assert world.hits(world.plan(filter="id > 1000"), query[None]) == [[]]


def test_delta_logs_are_decoded_once_for_all_segments_of_a_set(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, calls = module.read_delta_log, []
    monkeypatch.setattr(
        module, "read_delta_log", lambda store, file: calls.append(file.path) or read(store, file)
    )
    world.delete(20, 1)
    world.delete(21, 2)
    world.hits(world.plan(), vectors(1))
    assert sorted(calls) == ["delta_log/0.parquet", "delta_log/1.parquet"]


def test_a_key_that_several_rows_have_is_found_once_and_takes_no_other_rows_place(tmp_path: Path) -> None:
    world = World(tmp_path)
    near, far = np.zeros((6, DIM), np.float32), np.ones((3, DIM), np.float32)
    world.add([1, 1, 1, 1, 1, 1], near)
    world.add([2, 3, 1], far)
    for sets in (1, 2):
        answers = world.hits(world.plan(k=3), np.zeros((2, DIM), np.float32), sets)
        assert answers == [[(1, 0.0), (2, 4.0), (3, 4.0)]] * 2


def test_keys_may_be_strings(tmp_path: Path) -> None:
    world = World(tmp_path, DataType.VARCHAR)
    for number in range(2):
        world.add([f"k{number}{n:02}" for n in range(50)], vectors(50, number))
    queries = vectors(4, 9)
    for sets in (1, 2):
        answers = world.hits(world.plan(filter='id > "k010"'), queries, sets)
        assert keys(answers) == [world.nearest(q, 3, lambda key: key > "k010") for q in queries]


def test_a_radius_leaves_out_what_is_further_away(world: World) -> None:
    (query,) = vectors(1, 99)
    answers = world.hits(world.plan(k=50, params={"radius": 2.0}), query[None])
    within = [k for k, row in world.vectors.items() if float(((row - query) ** 2).sum()) < 2.0]
    assert sorted(keys(answers)[0]) == sorted(within)
    assert 0 < len(within) < 50


def test_a_damaged_index_file_costs_time_and_no_rows(world: World) -> None:
    path = world.store.local_path(world.files[0].path, world.scratch)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    queries = vectors(3, 99)
    assert keys(world.hits(world.plan(params={"ef": 100}), queries)) == [world.nearest(q, 3) for q in queries]


@pytest.mark.parametrize("what", ["index", "rows"])
def test_a_file_that_is_gone_names_the_lease(world: World, what: str) -> None:
    path = world.files[0].path if what == "index" else world.manifests[0].insert_logs[0].path
    world.store.delete(path)
    with pytest.raises(InvalidParameter, match=r"lease has ended.*lease_s"):
        world.hits(world.plan(), vectors(1))


def test_what_is_wrong_with_a_search_fails_before_any_task(world: World) -> None:
    with pytest.raises(FieldNotFound):
        search_plan(world.snapshot, "", field="nothing", k=1)
    with pytest.raises(NotSupported, match="no dense vectors"):
        search_plan(world.snapshot, "", field="price", k=1)
    with pytest.raises(NotSupported, match="no dense vectors"):
        search_plan(replace(world.snapshot, schema=schema()), "", field="terms", k=1)
    with pytest.raises(InvalidTopK):
        world.plan(k=0)
    with pytest.raises(InvalidParameter, match="ef"):
        world.plan(params={"ef": -1})
    with pytest.raises(Exception, match="nonsense"):
        world.plan(filter="nonsense > 1")


def test_a_moment_that_the_files_no_longer_show(world: World) -> None:
    assert shown_at(world.snapshot, None).read_ts == 30
    assert shown_at(world.snapshot, 20).read_ts == 20
    with pytest.raises(InvalidParameter, match="later than the snapshot"):
        shown_at(world.snapshot, 31)
    folded = replace(world.manifests[0], deletes_from=Timestamp(25))
    with pytest.raises(TimestampTooOld, match="up to 25"):
        shown_at(replace(world.snapshot, segments=(folded,)), 20)


def test_a_moment_before_the_collection_was_created(world: World) -> None:
    """As seconds since 1970, where a hybrid timestamp is meant."""
    snapshot = replace(world.snapshot, created=Timestamp(20))
    assert shown_at(snapshot, 20).read_ts == 20
    assert shown_at(snapshot, 12).read_ts == 12  # a copy, which has rows of then
    with pytest.raises(InvalidParameter, match=r"as_of is 1 \(1970-01-01T00:00:00Z\), .* created at"):
        shown_at(snapshot, 1)


def test_sets_hold_each_segment_once_and_about_the_same_memory(world: World) -> None:
    plan = world.plan()
    for slots in (1, 2, 3, 8):
        sets = segment_sets(world.snapshot, plan, slots)
        assert len(sets) == min(slots, 3)
        assert sorted(m.segment_id for some in sets for m in some) == [1000, 1001, 1002]
    rows = (700 << 20) // (8 + 4 * DIM)
    large = tuple(replace(m, insert_logs=(replace(m.insert_logs[0], rows=rows),)) for m in world.manifests)
    snapshot = replace(world.snapshot, segments=large)
    sets = segment_sets(snapshot, world.plan(exact=True), 1)
    assert [len(some) for some in sets] == [1, 1, 1], "a task opens a gigabyte, not two"
    assert sorted(map(len, segment_sets(snapshot, plan, 1))) == [1, 2], "one has no index"
    assert segment_sets(replace(world.snapshot, segments=()), plan, 4) == ()


def test_the_reduce_keeps_the_best_of_each_query_and_key() -> None:
    def batch(*rows: tuple[int, int, float]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(
            [{"query_id": q, "rank": 1, "key": key, "score": score} for q, key, score in rows], schema=HITS
        )

    parts = [batch((1, 5, 0.5), (1, 7, 0.7), (2, 5, 0.1)), batch((1, 4, 0.5), (1, 5, 0.2)), batch()]
    rows = reduced(parts, HITS, 2, bigger=False).to_pylist()
    assert [(r["query_id"], r["rank"], r["key"]) for r in rows] == [(1, 1, 5), (1, 2, 4), (2, 1, 5)]
    rows = reduced(parts, HITS, 2, bigger=True).to_pylist()
    assert [(r["query_id"], r["rank"], r["key"]) for r in rows] == [(1, 1, 7), (1, 2, 4), (2, 1, 5)]
    assert reduced([], HITS, 2, bigger=True).num_rows == 0


def test_the_reduce_takes_a_query_without_an_id() -> None:
    parts = [
        pa.RecordBatch.from_pylist(
            [{"query_id": q, "rank": 1, "key": key, "score": score} for q in (None, 3)], schema=HITS
        )
        for key, score in ((5, 0.5), (4, 0.25))
    ]
    rows = reduced(parts, HITS, 1, bigger=False).to_pylist()
    assert [(r["query_id"], r["rank"], r["key"]) for r in rows] == [(None, 1, 4), (3, 1, 4)]
