"""The pipeline's jobs on a real Spark session: from the log to binlogs, from binlogs to an index."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tasks
from pyspark.sql import SparkSession

from elanus.api.gc import SweepOrder, SweepOutcome
from elanus.core.channels import pchannel_name, vchannel_name
from elanus.core.errors import InvalidParameter
from elanus.core.gc import SweepRules, Verdict
from elanus.core.ids import BuildID, CollectionID, FieldID, IndexID, PartitionID, SegmentID
from elanus.core.jobs import JobKind, JobState
from elanus.core.messages import InsertMessage, Message, TimeTick, UpsertMessage
from elanus.core.packs import ORIGIN
from elanus.core.path_digests import digests
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.datanode.sweeps import SparkSweeps
from elanus.index.build import load
from elanus.index.resolve import resolve_index
from elanus.index.search_params import resolve_search
from elanus.log.codec import encode
from elanus.log.files import FileLog, FileLogOptions
from elanus.log.port import CorruptLog, Position
from elanus.pipeline.flush import flush_job
from elanus.pipeline.index_build import IndexBuildPlan, index_build_job
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.port import Job, JobOutput
from elanus.pipeline.progress import ProgressBoard
from elanus.pipeline.ranges import FlushPlan, RangeOutcome
from elanus.pipeline.session import PipelineSession
from elanus.storage.binlog import read_columns
from elanus.storage.delta_log import read_delta_log
from elanus.storage.objects import open_store
from elanus.storage.paths import INSERT_LOG, insert_log_path
from elanus.storage.port import CorruptObject
from tests.pure.insert_log_files import read_vectors

pytestmark = pytest.mark.jvm

ROWS, DIM = 3000, 16
PCHANNEL = pchannel_name(0)
COLLECTION, PARTITION = CollectionID(7), PartitionID(8)
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "name", DataType.VARCHAR, max_length=20, nullable=True),
        FieldSchema(FieldID(102), "v", DataType.FLOAT_VECTOR, dim=DIM),
    ),
)
VECTORS = np.random.default_rng(7).standard_normal((ROWS, DIM), dtype=np.float32)


def rows(first: int, count: int) -> pa.RecordBatch:
    item = pa.field("item", pa.float32(), nullable=False)
    flat = pa.array(VECTORS[first : first + count].ravel())
    columns = [
        pa.array(np.arange(first, first + count)),
        pa.array([None if n % 5 == 0 else f"row {n}" for n in range(first, first + count)]),
        pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(item, DIM)),
    ]
    return pa.record_batch(columns, schema=SCHEMA.arrow_schema)


def vchannel(shard: int) -> str:
    return vchannel_name(PCHANNEL, COLLECTION, shard)


def insert(ts: int, shard: int, segment: int, first: int, count: int) -> InsertMessage:
    return InsertMessage(
        Timestamp(ts), vchannel(shard), COLLECTION, PARTITION, SegmentID(segment), first, rows(first, count)
    )


def write_log(directory: Path, messages: Sequence[Message]) -> Position:
    """A log of these messages in small files; where it ends."""

    async def write() -> Position:
        log = FileLog(directory, FileLogOptions(fsync=False, file_bytes_max=64 * 1024))
        for message in messages:
            await log.append(PCHANNEL, [encode(message)])
        end = log.end(PCHANNEL)
        await log.close()
        return end

    return asyncio.run(write())


def plan(tmp_path: Path, stop: Position, shard: int, until: int) -> FlushPlan:
    return FlushPlan(
        attempt=f"try-{shard}",
        collection_id=COLLECTION,
        schema=SCHEMA,
        vchannel=vchannel(shard),
        pchannel=PCHANNEL,
        start=ORIGIN,
        until=Timestamp(until),
        stop=stop,
        log_url=(tmp_path / "log").as_uri(),
        store_url=(tmp_path / "files").as_uri(),
        scratch_dir=str(tmp_path / "scratch"),
    )


def flushed(session: PipelineSession, plans: list[FlushPlan]) -> list[RangeOutcome]:
    async def run() -> list[RangeOutcome]:
        runner = JobRunner(session)
        found = await runner.run(flush_job(plans, runner.slots), "test")
        outcomes = [outcome for task in found for outcome in task]
        assert [record.state for record in runner.book.entries()] == [JobState.FINISHED]
        runner.close()
        return outcomes

    return asyncio.run(run())


@pytest.fixture(scope="module")
def two_shards(
    session: PipelineSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[RangeOutcome]]:
    """Two shards flushed by one job: the first one's rows in one segment, an upsert in the other."""
    tmp_path = tmp_path_factory.mktemp("two-shards")
    inserts = [insert(10 + n, 0, 50, n * 300, 300) for n in range(10)]
    upsert = UpsertMessage(Timestamp(15), vchannel(1), COLLECTION, PARTITION, SegmentID(60), 9000, rows(5, 2))
    stop = write_log(tmp_path / "log", [*inserts, upsert, TimeTick(Timestamp(30), 1)])
    return tmp_path, flushed(session, [plan(tmp_path, stop, 0, 30), plan(tmp_path, stop, 1, 30)])


def test_one_job_flushes_the_ranges_of_several_shards(two_shards: tuple[Path, list[RangeOutcome]]) -> None:
    tmp_path, (first, second) = two_shards
    store = open_store((tmp_path / "files").as_uri())
    (segment,) = first.segments
    assert segment.segment_id == 50
    assert (first.delta, segment.insert_logs[0].rows) == (None, ROWS)
    np.testing.assert_array_equal(read_vectors(store, segment.insert_logs, "v"), VECTORS)
    columns = read_columns(store, segment.insert_logs, ["RowID", "id"])
    assert columns["RowID"].to_pylist() == columns["id"].to_pylist() == list(range(ROWS))
    assert second.delta is not None
    assert read_delta_log(store, second.delta)["PrimaryKey"].to_pylist() == [5, 6]
    assert read_columns(store, second.segments[0].insert_logs, ["RowID"])["RowID"].to_pylist() == [9000, 9001]


def test_nothing_but_the_named_files_is_left(two_shards: tuple[Path, list[RangeOutcome]]) -> None:
    tmp_path, outcomes = two_shards
    named = {file.path for outcome in outcomes for file in outcome.files}
    named |= {path for outcome in outcomes for output in outcome.segments for path in output.stats_logs}
    assert {info.path for info in open_store((tmp_path / "files").as_uri()).list("")} == named
    assert list((tmp_path / "scratch").iterdir()) == []


def test_spark_reads_the_insert_logs_as_they_are(
    session: PipelineSession, two_shards: tuple[Path, list[RangeOutcome]]
) -> None:
    tmp_path, (first, _) = two_shards
    path = tmp_path / "files" / first.segments[0].insert_logs[0].path
    frame = SparkSession(session.context).read.parquet(str(path))
    assert frame.columns == ["RowID", "Timestamp", "id", "name", "v"]
    assert dict(frame.dtypes)["v"] == "array<float>"
    assert frame.count() == ROWS
    row = frame.where("id = 1234").first()
    assert row is not None
    assert (row["RowID"], row["name"]) == (1234, "row 1234")
    np.testing.assert_array_equal(np.array(row["v"], dtype=np.float32), VECTORS[1234])


def test_the_same_plan_run_twice_writes_two_sets_of_files(
    session: PipelineSession, two_shards: tuple[Path, list[RangeOutcome]]
) -> None:
    tmp_path, (first, _) = two_shards
    (again,) = flushed(session, [plan(tmp_path, end_of_log(tmp_path), 0, 30)])
    assert again.segments[0].insert_logs[0].path != first.segments[0].insert_logs[0].path


def test_a_log_that_ends_too_early_is_an_error_of_the_log(
    session: PipelineSession, two_shards: tuple[Path, list[RangeOutcome]]
) -> None:
    beyond = Position(end_of_log(two_shards[0]) + 2**40)
    with pytest.raises(CorruptLog, match="ends before position"):
        flushed(session, [plan(two_shards[0], beyond, 0, 31)])


def test_a_single_task_is_seen_to_move(session: PipelineSession, tmp_path: Path) -> None:
    """From a Python worker of its own, on whatever machine, while it runs."""
    board, stop = ProgressBoard((tmp_path / "files").as_uri(), "index-1"), tmp_path / "stop"
    plan = (board.store_url, board.job, str(stop))

    async def scenario() -> None:
        runner = JobRunner(session)
        reporting = Job(
            JobKind.INDEX_BUILD, ("one",), tasks.report_until, (plan,), lambda _: JobOutput((), 9, 0), board
        )
        running = asyncio.create_task(runner.run(reporting, "flushed"))
        async with asyncio.timeout(60):
            while not any(entry.progress.share for entry in runner.book.entries()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        (entry,) = runner.book.entries()
        assert (entry.progress.percent, entry.progress.rows) == (50.0, 7)
        stop.touch()
        assert await running == [True]
        assert runner.book.entries()[0].progress.percent == 100.0
        assert board.read() == [], "the objects go with the job"
        runner.close()

    asyncio.run(scenario())


def end_of_log(tmp_path: Path) -> Position:
    async def look() -> Position:
        log = FileLog(tmp_path / "log", FileLogOptions(fsync=False))
        end = log.end(PCHANNEL)
        await log.close()
        return end

    return asyncio.run(look())


def index_plan(tmp_path: Path, outcome: RangeOutcome, params: dict[str, str]) -> IndexBuildPlan:
    output = outcome.segments[0]
    manifest = SegmentManifest(
        output.segment_id,
        COLLECTION,
        PARTITION,
        outcome.vchannel,
        output.insert_logs,
        output.stats_logs,
        deletes_from=Timestamp(0),
    )
    return IndexBuildPlan(
        attempt="try-1",
        build_id=BuildID(90),
        version=3,
        index_id=IndexID(91),
        field=SCHEMA.field("v"),
        params=params,
        manifest=manifest,
        threads=1,
        store_url=(tmp_path / "files").as_uri(),
        scratch_dir=str(tmp_path / "scratch"),
    )


@pytest.mark.parametrize("index_type", ["HNSW", "IVF_SQ8", "FLAT"])
def test_an_index_is_built_from_binlogs_and_finds_what_is_there(
    session: PipelineSession, two_shards: tuple[Path, list[RangeOutcome]], index_type: str
) -> None:
    tmp_path, (first, _) = two_shards
    params = {"index_type": index_type, "metric_type": "L2"}
    build = index_plan(tmp_path, first, params)

    async def run() -> None:
        runner = JobRunner(session)
        (file,) = await runner.run(index_build_job(build), "flushed")
        assert file.path.startswith("index_files/90/3/8/50/try-1")
        assert (file.rows, file.index_type, file.metric_type) == (ROWS, index_type, "L2")
        assert file.has_raw_vectors is (index_type != "IVF_SQ8")
        store = open_store(build.store_url)
        assert store.head(file.path).size_bytes == file.size_bytes
        spec = resolve_index(file.params, DataType.FLOAT_VECTOR, DIM)
        index = load(store.local_path(file.path, tmp_path), spec)
        hits = index.search(VECTORS[:50], 1, resolve_search(spec, {}, 1))
        assert (hits.rows[:, 0] == np.arange(50)).mean() >= 0.95
        (record,) = runner.book.entries()
        assert (record.outputs, record.rows, record.size_bytes) == ((file.path,), ROWS, file.size_bytes)
        runner.close()

    asyncio.run(run())


def test_a_build_fails_with_what_went_wrong(
    session: PipelineSession, two_shards: tuple[Path, list[RangeOutcome]]
) -> None:
    tmp_path, (first, _) = two_shards
    build = index_plan(tmp_path, first, {"index_type": "HNSW", "M": "0"})
    broken = dataclasses.replace(first.segments[0].insert_logs[0], path=first.segments[0].stats_logs[0])
    damaged = dataclasses.replace(
        build, params={}, manifest=dataclasses.replace(build.manifest, insert_logs=(broken,))
    )

    async def run() -> None:
        runner = JobRunner(session)
        with pytest.raises(InvalidParameter, match="M"):
            await runner.run(index_build_job(build), "test")
        with pytest.raises(CorruptObject, match=broken.path):
            await runner.run(index_build_job(damaged), "test")
        assert [record.state for record in runner.book.entries()] == [JobState.FAILED] * 2
        runner.close()

    asyncio.run(run())


def test_a_flush_does_not_wait_for_a_running_build(
    session: PipelineSession, two_shards: tuple[Path, list[RangeOutcome]]
) -> None:
    """The build ends only when it sees that the flush has ended."""
    tmp_path, _ = two_shards
    begun, flushed_mark = tmp_path / "build-begun", tmp_path / "flush-ended"
    build = Job(
        JobKind.INDEX_BUILD,
        ("stand-in",),
        tasks.mark_and_wait_for,
        ((str(begun), str(flushed_mark)),),
        lambda outcomes: JobOutput((), 0, 0),
    )
    stop = end_of_log(tmp_path)

    async def run() -> None:
        runner = JobRunner(session)
        building = asyncio.create_task(runner.run(build, "test"))
        await asyncio.to_thread(tasks.wait_for, begun)
        plans = [plan(tmp_path, stop, 0, 30), plan(tmp_path, stop, 1, 30)]
        await runner.run(flush_job(plans, runner.slots), "test")
        assert not building.done()
        flushed_mark.touch()
        assert await building == [True]
        runner.close()

    asyncio.run(run())


def test_a_sweep_on_spark_deletes_what_may_go(session: PipelineSession, tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    paths = [insert_log_path(COLLECTION, PARTITION, SegmentID(1), f"a{n}-x") for n in range(1, 6)]
    for path in paths:
        store.put(path, b"12345")
    rules = SweepRules(digests(paths[:1]), attempts_below=4, modified_before_ms=4e12, unnumbered_before_ms=0)
    runner = JobRunner(session)

    async def run() -> list[SweepOutcome]:
        sweeps = SparkSweeps(runner, store.url)
        return [await sweeps.sweep(SweepOrder(INSERT_LOG, rules, delete), "test") for delete in (False, True)]

    dry, real = asyncio.run(run())
    assert dry == real
    assert {f.verdict: f.objects for f in real.findings} == {
        Verdict.NAMED: 1,
        Verdict.SUPERSEDED: 2,
        Verdict.OPEN: 2,
    }
    assert {info.path for info in store.list("")} == {paths[0], paths[3], paths[4]}
    entries = runner.book.entries()
    assert [(e.kind, e.state, e.rows) for e in entries] == [(JobKind.GC, JobState.FINISHED, 2)] * 2
    runner.close()
