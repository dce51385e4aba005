"""Segments become clusters: no row is lost or added, and each segment has a range of the clustering key."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from test_merge import INTS, STRINGS, deletes, order, segment

from elanus.api.datacoord import SegmentOutput
from elanus.api.datanode import CompactionOrder
from elanus.core.clustering import Cluster, Clustering, Key, cluster_count, segments_max
from elanus.core.errors import Internal
from elanus.core.ids import FieldID, SegmentID
from elanus.core.schema import ROW_ID_FIELD, TIMESTAMP_FIELD, CollectionSchema
from elanus.pipeline import clustering
from elanus.pipeline.cluster_jobs import ClusterTask, split_job, survey_job, write_job
from elanus.pipeline.clustering import checked, outputs_of, parts_of, writes_of
from elanus.storage.binlog import read_columns
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectStore
from elanus.storage.stats_log import read_stats_logs

FIRST = SegmentID(500)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "store").as_uri())


def by(asked: CompactionOrder, field: str, rows_max: int) -> CompactionOrder:
    rows = sum(manifest.rows for manifest in asked.inputs)
    field_id = asked.schema.field(field).field_id
    ids = segments_max(rows, rows_max)
    of = Clustering(field_id, cluster_count(rows, rows_max), rows_max, FIRST, ids)
    return replace(asked, segment_id=SegmentID(0), clustering=of)


def rows_in(
    store: ObjectStore, outputs: tuple[SegmentOutput, ...], schema: CollectionSchema = INTS
) -> list[pa.Table]:
    names = [ROW_ID_FIELD, TIMESTAMP_FIELD, *schema.by_name]
    return [read_columns(store, output.insert_logs, names) for output in outputs]


@pytest.mark.parametrize("schema", [INTS, STRINGS], ids=["int64", "string"])
def test_each_segment_has_a_range_of_the_key(  # type: ignore[no-untyped-def]
    schema, store: ObjectStore, tmp_path: Path
) -> None:
    one = segment(store, tmp_path, 1, [(10, list(range(0, 60, 2))), (12, [71, 75])], schema)
    two = segment(store, tmp_path, 2, [(15, list(range(1, 60, 2)))], schema)
    asked = by(order([one, two], schema=schema), "id", 20)
    outputs = outputs_of(asked, store, tmp_path, "a2-x")
    tables = rows_in(store, outputs, schema)
    assert [o.segment_id for o in outputs] == list(range(FIRST, FIRST + len(outputs)))
    assert len(outputs) == 4
    assert max(t.num_rows for t in tables) <= 20
    bounds: list[Key] = []
    for output, table in zip(outputs, tables, strict=True):
        keys = table.column("id").to_pylist()
        assert keys == sorted(keys), "sorted by primary key"
        assert output.cluster == Cluster(FieldID(100), keys[0], keys[-1])
        bounds += [keys[0], keys[-1]]
        (stats,) = read_stats_logs(store, output.stats_logs)
        assert (stats.rows, stats.pk_min, stats.pk_max) == (len(keys), keys[0], keys[-1])
    assert bounds == sorted(bounds), "the ranges do not overlap"
    both = read_columns(store, (*one.insert_logs, *two.insert_logs), tables[0].column_names)
    everything = sorted(pa.concat_tables(tables).to_pylist(), key=lambda r: r[ROW_ID_FIELD])
    assert everything == sorted(both.to_pylist(), key=lambda r: r[ROW_ID_FIELD]), "vectors and all"


def test_rows_without_a_value_and_a_frequent_value_go_where_there_is_room(
    store: ObjectStore, tmp_path: Path
) -> None:
    # Every third row has no name; the rest have distinct ones.
    one = segment(store, tmp_path, 1, [(10, list(range(40)))])
    outputs = outputs_of(by(order([one]), "name", 10), store, tmp_path, "a2-x")
    tables = rows_in(store, outputs)
    assert sorted(key for t in tables for key in t.column("id").to_pylist()) == list(range(40))
    assert max(t.num_rows for t in tables) <= 10
    assert sum(t.column("name").null_count for t in tables) == 14
    texts = [sorted(t.column("name").drop_null().to_pylist()) for t in tables]
    ordered = [text for part in texts for text in part]
    assert ordered == sorted(ordered), "the ranges do not overlap"
    cluster = outputs[-1].cluster
    assert cluster is not None
    assert (cluster.low, cluster.high) == (texts[-1][0], texts[-1][-1])


def test_dead_and_expired_rows_are_left_out(store: ObjectStore, tmp_path: Path) -> None:
    one = segment(store, tmp_path, 1, [(5, [90, 91]), (10, list(range(30)))])
    delta = deletes(store, tmp_path, "d", (20, list(range(0, 30, 2)), 0), (101, [1], 0))
    asked = by(order([one], delta, expire=5), "id", 10)
    found = rows_in(store, outputs_of(asked, store, tmp_path, "a2-x"))
    assert [key for t in found for key in t.column("id").to_pylist()] == list(range(1, 30, 2))


def test_nothing_is_left_of_rows_that_are_all_dead(store: ObjectStore, tmp_path: Path) -> None:
    one = segment(store, tmp_path, 1, [(10, list(range(30)))])
    assert outputs_of(by(order([one], expire=10), "id", 10), store, tmp_path, "a2-x") == ()


def test_a_cluster_that_is_rewritten_alone_stays_one(store: ObjectStore, tmp_path: Path) -> None:
    of = Cluster(FieldID(100), 3, 9)
    one = replace(segment(store, tmp_path, 1, [(10, [3, 9])]), cluster=of)
    (alone,) = outputs_of(order([one]), store, tmp_path, "a2-x")
    assert alone.cluster == of
    two = segment(store, tmp_path, 2, [(10, [4])])
    (merged,) = outputs_of(order([one, two]), store, tmp_path, "a2-y")
    assert merged.cluster is None


def test_the_boundaries_come_from_a_sample_of_all_inputs(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "SAMPLE_ROWS_MAX", 40)
    inputs = [segment(store, tmp_path, n + 1, [(10, list(range(n, 400, 4)))]) for n in range(4)]
    asked = by(order(inputs), "id", 100)
    starts = clustering.survey(asked, store)
    assert starts == clustering.survey(asked, store), "a repeated task finds the same"
    assert len(starts) == 4
    tables = rows_in(store, outputs_of(asked, store, tmp_path, "a2-x"))
    assert sum(t.num_rows for t in tables) == 400
    assert max(t.num_rows for t in tables) <= 100


def test_the_steps_are_tasks_that_travel(store: ObjectStore, tmp_path: Path) -> None:
    inputs = [segment(store, tmp_path, n + 1, [(10, list(range(n, 60, 3)))]) for n in range(3)]
    asked = by(order(inputs), "id", 20)
    store_url = (tmp_path / "store").as_uri()

    def run(job):  # type: ignore[no-untyped-def]
        (plan,) = pickle.loads(pickle.dumps(job.plans))
        outcome = job.task(plan)
        assert job.inputs
        return outcome, job.output([outcome])

    task = ClusterTask("a2-s", asked, store_url, str(tmp_path / "scratch"))
    starts, _ = run(survey_job(task))
    parts = [replace(task, order=p, found=starts, attempt=f"a2-{n}") for n, p in enumerate(parts_of(asked))]
    assert len(parts) == 3, "each has as many rows as a segment may have"
    split = [run(split_job(part)) for part in parts]
    assert sum(output.rows for _, output in split) == 60
    chunks = [chunk for found, _ in split for chunk in found]
    assert asked.clustering is not None
    steps = writes_of(asked.clustering, chunks)
    written = [run(write_job(replace(task, step=step, attempt=f"a2-w{step.number}"))) for step in steps]
    outputs = checked(tuple(output for output, _ in written), chunks)
    assert sum(t.num_rows for t in rows_in(store, outputs)) == 60
    with pytest.raises(Internal, match="their inputs"):
        checked(outputs[1:], chunks)
