"""Building an index from the binlogs of a segment, without Spark."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from insert_log_files import write_insert_log
from streams import MINE, SCHEMA, rows

from elanus.core.errors import InvalidParameter
from elanus.core.ids import BuildID, CollectionID, IndexID, PartitionID, SegmentID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.index.build import load
from elanus.index.build_work import build_seconds
from elanus.index.resolve import resolve_index
from elanus.pipeline.index_build import IndexBuildPlan, build_index_file, index_build_job
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.local import LocalStore
from elanus.storage.port import ObjectExists

KEY = SegmentKey(CollectionID(7), PartitionID(1), SegmentID(50), MINE)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "files")


@pytest.fixture
def plan(store: LocalStore, tmp_path: Path) -> IndexBuildPlan:
    """A segment of two insert logs, rows 0 … 5."""
    schema = insert_log_schema(SCHEMA, KEY)
    files = tuple(
        write_insert_log(
            store,
            f"insert_log/7/1/50/{first}.parquet",
            SCHEMA,
            KEY,
            [with_system_columns(rows(first, first + 1, first + 2), first, Timestamp(5), schema)],
            tmp_path,
        )
        for first in (0, 3)
    )
    manifest = SegmentManifest(
        KEY.segment_id, KEY.collection_id, KEY.partition_id, MINE, files, (), Timestamp(0)
    )
    return IndexBuildPlan(
        attempt="try-1",
        build_id=BuildID(90),
        version=2,
        index_id=IndexID(91),
        field=SCHEMA.field("v"),
        params={"index_type": "FLAT", "metric_type": "L2"},
        manifest=manifest,
        threads=1,
        store_url=store.url,
        scratch_dir=str(tmp_path),
    )


def test_the_file_holds_the_rows_in_the_order_of_the_manifest(
    plan: IndexBuildPlan, store: LocalStore, tmp_path: Path
) -> None:
    file = build_index_file(plan, store, tmp_path, "one")
    assert file.path == "index_files/90/2/1/50/one"
    assert (file.build_id, file.index_id, file.field_id, file.segment_id) == (90, 91, 101, 50)
    assert (file.rows, file.size_bytes) == (6, store.head(file.path).size_bytes)
    spec = resolve_index(file.params, plan.field.data_type, plan.field.dim)
    index = load(store.local_path(file.path, tmp_path), spec)
    assert index.reconstruct(np.arange(6)).tolist() == [[n, -n] for n in range(6)]
    assert not (tmp_path / "index").exists()


def test_two_attempts_do_not_touch_each_other(
    plan: IndexBuildPlan, store: LocalStore, tmp_path: Path
) -> None:
    assert build_index_file(plan, store, tmp_path, "one") != build_index_file(plan, store, tmp_path, "two")
    with pytest.raises(ObjectExists):
        build_index_file(plan, store, tmp_path, "one")


def test_parameters_out_of_their_domain_are_refused(
    plan: IndexBuildPlan, store: LocalStore, tmp_path: Path
) -> None:
    wrong = replace(plan, params={"index_type": "HNSW", "M": "1"})
    with pytest.raises(InvalidParameter, match="M"):
        build_index_file(wrong, store, tmp_path, "one")
    assert list(store.list("index_files")) == []


def test_a_job_names_its_segment_and_travels(plan: IndexBuildPlan, store: LocalStore, tmp_path: Path) -> None:
    job = index_build_job(plan)
    assert job.inputs == ("segment 50, field v",)
    assert pickle.loads(pickle.dumps(job.plans)) == (plan,)
    file = build_index_file(plan, store, tmp_path, "one")
    output = job.output([file])
    assert (output.objects, output.rows, output.size_bytes) == ((file.path,), 6, file.size_bytes)
    assert output.index_type == file.index_type
    spec = resolve_index(plan.params, plan.field.data_type, plan.field.dim)
    assert output.planned_s == build_seconds(spec, 6) > 0


def test_a_job_has_one_segment_and_says_how_much_memory_its_build_takes(plan: IndexBuildPlan) -> None:
    large = replace(plan.manifest.insert_logs[0], rows=1_000_000)
    graph = {"index_type": "HNSW", "metric_type": "L2", "params": '{"M": 16, "efConstruction": 64}'}
    jobs = [
        index_build_job(
            replace(plan, params=graph, manifest=replace(plan.manifest, insert_logs=(large,) * files)), cpus=4
        )
        for files in (1, 2)
    ]
    assert [(len(job.plans), job.cpus) for job in jobs] == [(1, 4)] * 2
    vectors_bytes = 4 * SCHEMA.field("v").dim * large.rows
    assert jobs[0].memory_bytes > 2 * vectors_bytes, "the vectors, and the index next to them"
    assert jobs[1].memory_bytes == pytest.approx(2 * jobs[0].memory_bytes, rel=0.01)
