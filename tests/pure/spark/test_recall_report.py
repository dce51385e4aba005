"""The recall of searches of a snapshot under several settings, and which of them are worth their time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from snapshot_world import World, vectors

from elanus.spark.recall import RecallPoint, RecallReport, compared, drawn, measured, with_frontier
from elanus.spark.searches import SearchJob, segment_sets


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    for number in range(2):
        manifest = made.add(list(range(1000 * number, 1000 * number + 800)), vectors(800, number))
        made.index(manifest)
    return made


def point(recall: float, query_us: float) -> RecallPoint:
    return RecallPoint({"ef": 1}, recall, recall, recall, query_us)


def missing_every_second(hits: pa.RecordBatch) -> pa.RecordBatch:
    return hits.filter(pc.equal(pc.bit_wise_and(hits.column("rank"), 1), 1))


@pytest.mark.parametrize("sets", [1, 2])
def test_recall_is_measured_against_all_rows_of_all_sets(world: World, sets: int) -> None:
    plan = world.plan(k=10)
    job = SearchJob(plan, segment_sets(world.snapshot, plan, sets))
    queries, settings = vectors(40, 9), [{"ef": 399}, {"ef": 400}]
    answers = [m for some in job.sets for m in measured(job, settings, queries, some, threads=1)]
    assert [m.setting for m in answers] == [-1, 0, 1] * sets
    exact_us, points = compared(job, settings, 10, None, 40, answers)
    assert {p.params["ef"]: p.recall for p in points} == {399: 1.0, 400: 1.0}
    assert exact_us > 0
    worse = [replace(m, hits=missing_every_second(m.hits)) if m.setting == 0 else m for m in answers]
    by_ef = {p.params["ef"]: p for p in compared(job, settings, 10, None, 40, worse)[1]}
    assert by_ef[400].recall == 1.0
    assert by_ef[399].low < by_ef[399].recall < by_ef[399].high
    if sets == 1:
        assert by_ef[399].recall == 0.5
    (truth,) = [m.hits for m in answers if m.setting == -1][:1]
    if sets == 1:
        assert truth.slice(0, 10).column("key").to_pylist() == world.nearest(queries[0], 10)


def test_a_drawn_row_is_no_hit_of_its_own(world: World) -> None:
    world.delete(20, *range(400))
    plan = world.plan(k=4)
    job = SearchJob(plan, segment_sets(world.snapshot, plan, 1))
    sample = [row for number in range(2) for row in drawn(job, 0.1, number)]
    assert 60 < len(sample) < 200
    assert all(key >= 400 and (world.vectors[key] == vector).all() for key, vector in sample)
    assert [k for k, _ in sample] == [k for number in range(2) for k, _ in drawn(job, 0.1, number)], (
        "drawn again"
    )
    own = [key for key, _ in sample[:5]]
    queries = np.stack([vector for _, vector in sample[:5]])
    answers = measured(job, [{"ef": 200}], queries, job.sets[0], threads=1)
    hits = next(m for m in answers if m.setting == -1).hits
    assert hits.filter(pc.equal(hits.column("rank"), 1)).column("key").to_pylist() == own
    _, (only,) = compared(job, [{"ef": 200}], 3, own, 5, answers)
    assert only.recall == 1.0


def test_the_frontier_holds_what_nothing_quicker_equals() -> None:
    points = with_frontier([point(0.9, 30), point(0.5, 10), point(0.4, 20), point(0.9, 40), point(0.99, 50)])
    assert [(p.recall, p.on_frontier) for p in points] == [
        (0.5, True),
        (0.4, False),
        (0.9, True),
        (0.9, False),
        (0.99, True),
    ]
    report = RecallReport("docs", "v", 10, 5, 99.0, points)
    assert [p.recall for p in report.frontier] == [0.5, 0.9, 0.99]
    cheapest = report.cheapest(0.8)
    assert cheapest is not None
    assert cheapest.query_us == 30
    assert report.cheapest(0.999) is None
    assert str(report).splitlines()[1].startswith("* 0.5000 [")


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report = RecallReport("docs", "v", 10, 5, 99.0, with_frontier([point(0.9, 30), point(0.5, 10)]))
    report.plot(tmp_path / "recall.png")
    assert (tmp_path / "recall.png").read_bytes().startswith(b"\x89PNG")
