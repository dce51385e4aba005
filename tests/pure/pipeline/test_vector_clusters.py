"""Segments become clusters of a vector: no row is lost, each is of about the target size, and has spheres."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from insert_log_files import write_insert_log
from test_clusters import by, rows_in
from test_merge import CID, INTS, PID, VCHANNEL, deletes, order, segment
from vector_files import loaded

from elanus.core.ids import FieldID, SegmentID
from elanus.core.metrics import Metric
from elanus.core.nullable import spread
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.index import brute_force
from elanus.pipeline import vector_clusters
from elanus.pipeline.cluster_jobs import ClusterTask, split_job, survey_job, write_job
from elanus.pipeline.clustering import checked, outputs_of, parts_of, survey, writes_of
from elanus.pipeline.merge import merge_segments
from elanus.pipeline.vector_clusters import VectorClusters
from elanus.querynode.block import Clustered
from elanus.storage.binlog import SegmentKey, insert_log_schema, read_columns, with_system_columns
from elanus.storage.local import LocalStore
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectStore
from elanus.storage.stats_log import read_spheres, read_stats_logs

DIM = 3
SPARSE = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=DIM, nullable=True, is_clustering_key=True),
    ),
)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "store").as_uri())


def sparse_segment(store: ObjectStore, tmp_path: Path, number: int, keys: list[int]) -> SegmentManifest:
    """Every third row has no vector; those of the others are around one of four places."""
    key = SegmentKey(CID, PID, SegmentID(number), VCHANNEL)
    valid = np.array([k % 3 != 0 for k in keys])
    vectors = np.array([[100 * (k % 4), k / 1000, 0] for k in keys if k % 3], np.float32).reshape(-1, DIM)
    column = spread(SPARSE.field("v").vector.to_column(vectors), valid)
    batch = pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), column], schema=SPARSE.arrow_schema)
    file_schema = insert_log_schema(SPARSE, key)
    rows = with_system_columns(batch, 1000 * number, Timestamp(10), file_schema)
    file = write_insert_log(store, f"insert_log/7/8/{number}/a", SPARSE, key, [rows], tmp_path)
    return SegmentManifest(SegmentID(number), CID, PID, VCHANNEL, (file,), (), NO_TIMESTAMP)


def vectors_of(table: pa.Table, dim: int = 4) -> np.ndarray:
    column = table.column("v").combine_chunks().drop_null()
    return np.asarray(column.flatten().to_numpy()).reshape(-1, dim)


def test_segments_are_of_near_vectors_and_have_spheres(store: ObjectStore, tmp_path: Path) -> None:
    chance = np.random.default_rng(2)
    keys = chance.permutation(300).tolist()
    inputs = [segment(store, tmp_path, n + 1, [(10, sorted(keys[n::3]))]) for n in range(3)]
    asked = by(order(inputs), "v", 60)
    outputs = outputs_of(asked, store, tmp_path, "a2-x")
    tables = rows_in(store, outputs)
    assert sorted(k for t in tables for k in t.column("id").to_pylist()) == list(range(300))
    assert max(t.num_rows for t in tables) <= 60
    assert 6 <= len(tables) <= 8
    everything = pa.concat_tables(tables).sort_by("id")
    files = [f for m in inputs for f in m.insert_logs]
    before = read_columns(store, files, everything.column_names).sort_by("id")
    assert everything.to_pylist() == before.to_pylist(), "vectors and all"
    for output, table in zip(outputs, tables, strict=True):
        keys = table.column("id").to_pylist()
        assert keys == sorted(keys), "sorted by primary key"
        assert len(keys) > 1.2 * (max(keys) - min(keys)) / 2, "the vectors are a line: so are its parts"
        assert output.cluster is not None
        assert (output.cluster.field_id, output.cluster.low) == (FieldID(102), None)
        spheres = read_spheres(store, output.stats_logs)
        assert spheres is not None
        assert len(spheres) > 1, "several small spheres describe it"
        rows = vectors_of(table)
        distances = np.linalg.norm(rows[:, None] - spheres.centroids, axis=2)
        assert (distances - spheres.radii).min(axis=1).max() <= 1e-4, "each row is in a sphere"
        assert (spheres.radii < 40).all()
        assert (spheres.best_scores(rows, Metric.L2) == 0).all()
        (stats,) = read_stats_logs(store, output.stats_logs)
        assert stats.rows == len(keys)


def test_rows_without_a_vector_are_a_cluster_of_their_own(store: ObjectStore, tmp_path: Path) -> None:
    inputs = [sparse_segment(store, tmp_path, n + 1, list(range(n, 240, 2))) for n in range(2)]
    asked = by(order(inputs, schema=SPARSE), "v", 50)
    outputs = outputs_of(asked, store, tmp_path, "a2-x")
    tables = rows_in(store, outputs, SPARSE)
    assert sum(t.num_rows for t in tables) == 240
    assert max(t.num_rows for t in tables) <= 50
    for output, table in zip(outputs, tables, strict=True):
        nulls = table.column("v").null_count
        assert nulls in (0, table.num_rows), "never mixed"
        spheres = read_spheres(store, output.stats_logs)
        assert spheres is not None
        if nulls:
            assert len(spheres) == 0
        else:
            assert (spheres.radii < 60).all(), "no sphere is around two places"
    assert sum(t.num_rows for t in tables if t.column("v").null_count) == 80


def test_rows_that_are_all_without_a_vector(store: ObjectStore, tmp_path: Path) -> None:
    one = sparse_segment(store, tmp_path, 1, list(range(0, 300, 3)))
    outputs = outputs_of(by(order([one], schema=SPARSE), "v", 40), store, tmp_path, "a2-x")
    assert sum(t.num_rows for t in rows_in(store, outputs, SPARSE)) == 100
    assert [len(s) for o in outputs if (s := read_spheres(store, o.stats_logs)) is not None] == [0] * 3


def test_equal_vectors_are_cut_into_segments(store: ObjectStore, tmp_path: Path) -> None:
    one = sparse_segment(store, tmp_path, 1, [k for k in range(480) if k % 12 == 4])
    two = sparse_segment(store, tmp_path, 2, [4 + 12 * k for k in range(40, 90)])
    outputs = outputs_of(by(order([one, two], schema=SPARSE), "v", 20), store, tmp_path, "a2-x")
    tables = rows_in(store, outputs, SPARSE)
    assert sum(t.num_rows for t in tables) == 90
    assert max(t.num_rows for t in tables) <= 20


def test_the_survey_reads_few_row_groups_and_is_repeatable(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [segment(store, tmp_path, n + 1, [(10, list(range(n, 900, 30)))]) for n in range(30)]
    monkeypatch.setattr(vector_clusters, "_SAMPLE_MIN", 30)
    monkeypatch.setattr(vector_clusters, "_SAMPLE_OF_CENTROID", 1)
    files = [f for m in inputs for f in m.insert_logs]
    sample, share = vector_clusters.sample_vectors(store, files, INTS.field("v"), 30, 7)
    assert (len(sample), share) == (32, 1.0)  # 8 each of 4 row groups of 30 rows
    asked = by(order(inputs), "v", 300)
    one, two = survey(asked, store), survey(asked, store)
    assert isinstance(one, VectorClusters)
    assert isinstance(two, VectorClusters)
    assert (one.centroids == two.centroids).all(), "a repeated task finds the same"
    assert len(one.centroids) <= 4096


def test_dead_rows_are_left_out_and_a_rewritten_cluster_keeps_its_spheres(
    store: ObjectStore, tmp_path: Path
) -> None:
    one = segment(store, tmp_path, 1, [(10, list(range(60)))])
    delta = deletes(store, tmp_path, "d", (20, list(range(0, 60, 2)), 0))
    asked = by(order([one], delta), "v", 10)
    outputs = outputs_of(asked, store, tmp_path, "a2-x")
    assert sorted(k for t in rows_in(store, outputs) for k in t.column("id").to_pylist()) == list(
        range(1, 60, 2)
    )
    first = outputs[0]
    cluster = replace(
        one, segment_id=first.segment_id, insert_logs=first.insert_logs, stats_logs=first.stats_logs,
        cluster=first.cluster,
    )  # fmt: skip
    kept = merge_segments(order([cluster]), store, tmp_path, "a3-y")
    before, after = (read_spheres(store, o.stats_logs) for o in (first, kept))
    assert before is not None
    assert after is not None
    assert (before.centroids == after.centroids).all()
    assert kept.cluster == first.cluster
    lost = replace(cluster, stats_logs=("stats_log/gone",))
    assert merge_segments(order([lost]), store, tmp_path, "a4-z").cluster is None


def test_a_query_node_loads_the_spheres_and_does_without_damaged_ones(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "files")
    one = sparse_segment(store, tmp_path, 1, list(range(120)))
    first = outputs_of(by(order([one], schema=SPARSE), "v", 30), store, tmp_path, "a2-x")[0]
    cluster = replace(
        one, segment_id=first.segment_id, insert_logs=first.insert_logs, stats_logs=first.stats_logs,
        cluster=first.cluster,
    )  # fmt: skip
    spec = brute_force(DataType.FLOAT_VECTOR, DIM, Metric.L2)
    spheres = read_spheres(store, first.stats_logs)
    assert spheres is not None

    def clustered(manifest: SegmentManifest) -> Clustered | None:
        return loaded(store, SPARSE, manifest, {FieldID(101): spec}, (), tmp_path).clustered

    found = clustered(cluster)
    assert found is not None
    assert (found.field_id, found.group) == (FieldID(101), (VCHANNEL, PID))
    assert (found.spheres.centroids == spheres.centroids).all()
    assert clustered(replace(cluster, cluster=None)) is None
    assert clustered(replace(cluster, stats_logs=("stats_log/gone",))) is None
    path = store.local_path(first.stats_logs[0], tmp_path)
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.unlink()
    path.write_bytes(content)
    assert clustered(cluster) is None


def test_the_steps_are_tasks_that_travel(store: ObjectStore, tmp_path: Path) -> None:
    inputs = [segment(store, tmp_path, n + 1, [(10, list(range(n, 120, 3)))]) for n in range(3)]
    asked = by(order(inputs), "v", 40)
    task = ClusterTask("a2-s", asked, (tmp_path / "store").as_uri(), str(tmp_path / "scratch"))

    def run(job):  # type: ignore[no-untyped-def]
        (plan,) = pickle.loads(pickle.dumps(job.plans))
        return pickle.loads(pickle.dumps(job.task(plan)))

    found = run(survey_job(task))
    parts = [replace(task, order=p, found=found, attempt=f"a2-{n}") for n, p in enumerate(parts_of(asked))]
    chunks = [chunk for part in parts for chunk in run(split_job(part))]
    assert asked.clustering is not None
    steps = writes_of(asked.clustering, chunks, found)
    outputs = [run(write_job(replace(task, step=s, attempt=f"a2-w{s.number}"))) for s in steps]
    assert sum(t.num_rows for t in rows_in(store, checked(tuple(outputs), chunks))) == 120
