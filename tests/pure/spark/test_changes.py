"""The change feed: what is replayed on a collection as of one moment makes it what it is at a later one."""

from __future__ import annotations

import asyncio
import pickle
import random
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from insert_log_files import write_insert_log
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.api.datanode import CompactionOrder
from elanus.core.errors import (
    DeadlineExceeded,
    ElanusError,
    FieldNotFound,
    InvalidParameter,
    NotReady,
    PermissionDenied,
    Unavailable,
)
from elanus.core.ids import ALL_PARTITIONS, CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import DeltaLog, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.pipeline.merge import compact
from elanus.spark import asking, change_source, changes
from elanus.spark.change_rows import change_reads, read_changes
from elanus.spark.change_source import OWN, ElanusStreamReader, up_to
from elanus.spark.options import ReadOptions, parse_options
from elanus.spark.source import ElanusSource, as_spark, spark_schema
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.local import LocalStore

CID, PART, VCHANNEL = CollectionID(7), PartitionID(8), "by-dev-rootcoord-dml_0_7v0"
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "value", DataType.INT64),
        FieldSchema(FieldID(102), "v", DataType.FLOAT_VECTOR, dim=2),
    ),
)
Row = tuple[int, int, int]
"""A key, a value, and the row's timestamp."""


@dataclass
class Collection:
    """One vchannel whose writes go to files at once, with a list of what was written next to it."""

    directory: Path
    rows: list[Row] = field(default_factory=list)
    deletes: list[tuple[int, int]] = field(default_factory=list)
    segments: dict[SegmentID, SegmentManifest] = field(default_factory=dict)
    logs: tuple[DeltaLog, ...] = ()
    now: int = 10
    number: int = 100

    def __post_init__(self) -> None:
        self.store = LocalStore(self.directory / "files")

    def next(self) -> int:
        self.number += 1
        return self.number

    def write(self, keys: Sequence[int], *, deletes: Sequence[int] = (), imports: bool = False) -> None:
        """Insert rows and delete keys at one timestamp. ``imports``: files have another than counts."""
        self.now += 1
        stamp = Timestamp(2 if imports else self.now)
        if keys:
            self._write_rows(keys, stamp, Timestamp(self.now) if imports else NO_TIMESTAMP)
        if deletes:
            self._write_deletes(deletes, stamp)
        self.rows += [(key, self.now, self.now) for key in keys]
        self.deletes += [(key, self.now) for key in deletes]

    def _write_rows(self, keys: Sequence[int], stamp: Timestamp, commit_ts: Timestamp) -> None:
        key = SegmentKey(CID, PART, SegmentID(self.next()), VCHANNEL)
        vectors = pa.FixedSizeListArray.from_arrays(
            pa.array([0.0] * 2 * len(keys), pa.float32()), type=SCHEMA.field("v").arrow_type
        )
        batch = pa.record_batch(
            [pa.array(keys), pa.array([self.now] * len(keys)), vectors], schema=SCHEMA.arrow_schema
        )
        rows = with_system_columns(batch, 0, stamp, insert_log_schema(SCHEMA, key))
        path = f"insert_log/7/8/{key.segment_id}/a.parquet"
        file = write_insert_log(self.store, path, SCHEMA, key, [rows], self.directory)
        if commit_ts:
            file = replace(file, ts_min=commit_ts, ts_max=commit_ts)
        self.segments[key.segment_id] = SegmentManifest(
            key.segment_id, CID, PART, VCHANNEL, (file,), (), commit_ts, commit_ts=commit_ts
        )

    def _write_deletes(self, keys: Sequence[int], stamp: Timestamp) -> None:
        schema = delta_log_schema(SCHEMA.primary_field, CID, VCHANNEL)
        path = f"delta_log/7/{VCHANNEL}/{self.next()}.parquet"
        with delta_log_writer(self.store, path, schema, self.directory) as writer:
            writer.write(delete_rows(pa.array(keys), stamp, ALL_PARTITIONS, schema))
            file = writer.finish()
        now = Timestamp(self.now)
        self.logs = (*self.logs, DeltaLog(VCHANNEL, replace(file, ts_min=now, ts_max=now)))

    def compact(self, fold_until: int) -> None:
        """All segments become one without what was deleted up to ``fold_until``."""
        segment_id = SegmentID(self.next())
        order = self._order(segment_id, tuple(self.segments.values()), Timestamp(fold_until))
        output = compact(order, self.store, self.directory, f"{segment_id}")
        manifest = SegmentManifest(
            segment_id, CID, PART, VCHANNEL, output.insert_logs, output.stats_logs, Timestamp(fold_until)
        )
        self.segments = {segment_id: manifest} if output.insert_logs else {}

    def merge_deltas(self) -> None:
        """All delta logs become one."""
        if len(self.logs) > 1:
            order = replace(self._order(SegmentID(0), (), NO_TIMESTAMP), merges_deltas=True)
            output = compact(order, self.store, self.directory, f"{self.next()}")
            self.logs = (DeltaLog(VCHANNEL, output.insert_logs[0]),)

    def _order(
        self, segment_id: SegmentID, inputs: tuple[SegmentManifest, ...], fold_until: Timestamp
    ) -> CompactionOrder:
        logs = tuple(log.file for log in self.logs)
        return CompactionOrder(
            1, 5, CID, PART, VCHANNEL, segment_id, SCHEMA, inputs, logs, fold_until, NO_TIMESTAMP
        )

    def snapshot(self) -> CollectionSnapshot:
        segments = tuple(self.segments.values())
        return CollectionSnapshot(CID, SCHEMA, Timestamp(self.now), segments, {VCHANNEL: self.logs})

    def alive(self, ts: int) -> list[Row]:
        return survivors([r for r in self.rows if r[2] <= ts], [d for d in self.deletes if d[1] <= ts])

    def changes(self, since: int, until: int) -> list[pa.RecordBatch]:
        reads = change_reads(
            up_to(self.snapshot(), Timestamp(until)), self.store.url, Timestamp(since), ("value",)
        )
        return [batch for read in reads for batch in read_changes(read, self.store)]


def survivors(rows: Iterable[Row], deletes: Sequence[tuple[int, int]]) -> list[Row]:
    return sorted(r for r in rows if not any(key == r[0] and ts > r[2] for key, ts in deletes))


def replayed(start: Sequence[Row], changes: Iterable[pa.RecordBatch]) -> list[Row]:
    rows, deletes = list(start), []
    for batch in changes:
        for change in batch.to_pylist():
            if change["_change_type"] == "insert":
                assert change["_partition_id"] == PART
                rows.append((change["id"], change["value"], change["_commit_ts"]))
            else:
                assert change["value"] is None
                deletes.append((change["id"], change["_commit_ts"]))
    return survivors(rows, deletes)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=8, deadline=None)
def test_changes_replayed_on_what_was_give_what_is(seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        collection = Collection(Path(directory))
        since = 0
        for step in range(9):
            keys = chance.sample(range(8), chance.randint(1, 4))
            kind = chance.choice(("insert", "upsert", "delete", "import", "import upsert"))
            inserts = [] if kind == "delete" else keys
            deletes = keys if "upsert" in kind or kind == "delete" else []
            collection.write(inserts, deletes=deletes, imports="import" in kind)
            if step == 3:
                since = collection.now
            if step > 3 and chance.random() < 0.4:
                collection.compact(chance.choice((0, since)))
            if step > 3 and chance.random() < 0.4:
                collection.merge_deltas()
        until = chance.randint(since, collection.now)
        changes = collection.changes(since, until)
        assert replayed(collection.alive(since), changes) == collection.alive(until)


def test_what_compaction_folds_in_later_than_the_start_would_be_lost(tmp_path: Path) -> None:
    """That is what the server refuses: the delete is gone from the rows, and its delta log may be."""
    collection = Collection(tmp_path)
    collection.write([1, 2])
    since = collection.now
    collection.write([], deletes=[1])
    collection.compact(collection.now)
    collection.logs = ()
    changes = collection.changes(since, collection.now)
    assert replayed(collection.alive(since), changes) != collection.alive(collection.now)


def test_changes_in_the_types_of_spark(tmp_path: Path) -> None:
    collection = Collection(tmp_path)
    collection.write([1], deletes=[1])
    reads = change_reads(collection.snapshot(), collection.store.url, Timestamp(0), ())
    batches = [batch for read in reads for batch in read_changes(read, collection.store)]
    fields = spark_schema(SCHEMA).add(OWN[0]).add(OWN[1]).add(OWN[2])
    for name in ("value", "v"):
        fields[name].nullable = True
    target = to_arrow_schema(fields, timezone="UTC")
    insert, delete = (as_spark(batch, SCHEMA, target).to_pylist()[0] for batch in batches)
    assert insert == {
        "id": 1,
        "value": 11,
        "v": [0.0, 0.0],
        "_change_type": "insert",
        "_commit_ts": 11,
        "_partition_id": PART,
    }
    assert delete | {"_partition_id": 0} == {
        "id": 1,
        "value": None,
        "v": None,
        "_change_type": "delete",
        "_commit_ts": 11,
        "_partition_id": 0,
    }


def test_a_batch_is_read_from_the_snapshot_that_found_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = Collection(tmp_path)
    collection.write([1, 2])
    taken: list[Timestamp] = []

    def take(_: ReadOptions, since: Timestamp) -> SnapshotLease:
        taken.append(since)
        return SnapshotLease(1, collection.store.url, "", Timestamp(collection.now), 0)

    monkeypatch.setattr(change_source, "take_changes", take)
    monkeypatch.setattr(change_source, "let_go", lambda options, lease: None)
    monkeypatch.setattr(change_source, "snapshot_of", lambda options, lease: collection.snapshot())
    columns = StructType([*spark_schema(SCHEMA).fields, *OWN])
    stream = ElanusStreamReader(parse_options({"collection": "a", "changes_from": "10"}), columns)
    start = stream.initialOffset()
    end = stream.latestOffset(start)

    def keys(begin: dict[str, Any], until: dict[str, Any]) -> list[int]:
        reads = (partition.value for partition in stream.partitions(begin, until))
        return [
            k for read in reads for b in read_changes(read, collection.store) for k in b["id"].to_pylist()
        ]

    assert keys(start, end) == [1, 2]
    assert len(taken) == 1
    collection.write([3])
    assert keys(start, end) == [1, 2], "the batch again, from a later snapshot"
    later = stream.latestOffset(end)
    assert keys(start, later) == [1, 2, 3], "not the batch that was found"
    assert taken == [10, 10, end["ts"], 10]
    assert stream.latestOffset(later) == later
    assert pickle.dumps(stream), "tasks get it"


def test_a_stream_keeps_the_files_of_the_batches_that_are_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it looks: a lease lasts an hour."""
    collection = Collection(tmp_path)
    kept: set[int] = set()
    taken = 0

    class Server:
        async def changes(self, *_: object) -> SnapshotLease:
            nonlocal taken
            taken += 1
            kept.add(taken)
            return SnapshotLease(taken, collection.store.url, "", Timestamp(collection.now), 0)

        async def release(self, snapshot_id: int) -> None:
            kept.remove(snapshot_id)

    monkeypatch.setattr(changes, "ask", lambda options, call: asyncio.run(call(Server())))
    for module in (change_source, changes):
        monkeypatch.setattr(module, "snapshot_of", lambda options, lease: collection.snapshot())
    columns = StructType([*spark_schema(SCHEMA).fields, *OWN])
    stream = ElanusStreamReader(parse_options({"collection": "a", "changes_from": "10"}), columns)
    start = stream.initialOffset()
    assert stream.latestOffset(start) == start
    assert list(changes.changes("a", 10)) == []
    assert kept == set(), "nothing was found"
    collection.write([1])
    end = stream.latestOffset(start)
    stream.partitions(start, end)
    assert kept == {3}
    collection.write([2])
    later = stream.latestOffset(end)
    assert kept == {4}, "the look for the next batch follows the end of the last one"
    stream.commit(end)
    assert kept == {4}
    stream.partitions(start, later)
    assert kept == {5}, "another batch than the one that was found"
    stream.latestOffset(later)
    stream.commit(later)
    assert kept == set()
    collection.write([3])
    end = stream.latestOffset(later)
    for begun in (False, True):
        if begun:
            stream.partitions(later, end)
        assert len(kept) == 1
        stream.stop()
        assert kept == set()
        stream.latestOffset(later)


def test_a_stream_outlasts_a_restart_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collection = Collection(tmp_path)
    collection.write([1, 2])
    errors = (Unavailable("no answer"), DeadlineExceeded("no server answers"), NotReady("it starts"))
    lost: list[ElanusError] = []

    def take(_: ReadOptions, since: Timestamp) -> SnapshotLease:
        if lost:
            raise lost.pop()
        return SnapshotLease(1, collection.store.url, "", Timestamp(collection.now), 0)

    monkeypatch.setattr(asking, "_AGAIN_S", 0.0)
    monkeypatch.setattr(change_source, "take_changes", take)
    monkeypatch.setattr(change_source, "let_go", lambda options, lease: None)
    monkeypatch.setattr(change_source, "snapshot_of", lambda options, lease: collection.snapshot())
    columns = StructType([*spark_schema(SCHEMA).fields, *OWN])
    stream = ElanusStreamReader(parse_options({"collection": "a", "changes_from": "10"}), columns)
    lost += errors
    end = stream.latestOffset(stream.initialOffset())
    assert (end["ts"], lost) == (collection.now, [])
    lost += errors
    assert stream.partitions({"ts": 9}, end), "a batch that is repeated"
    assert lost == []
    lost += errors
    monkeypatch.setattr(asking, "_SILENCE_MAX_S", 0.0)
    with pytest.raises(NotReady):
        stream.latestOffset(end)


def test_a_stream_lets_the_version_go_that_its_columns_are_from(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go: list[SnapshotLease] = []
    monkeypatch.setattr("elanus.spark.source.let_go", lambda options, lease: let_go.append(lease))
    source = ElanusSource({"collection": "a", "changes_from": "10"})
    source.lease = SnapshotLease(3, "file:///nothing", "", Timestamp(20), 0)
    columns = StructType([*spark_schema(SCHEMA).fields, *OWN])
    assert isinstance(source.streamReader(columns), ElanusStreamReader)
    assert let_go == [source.lease]


def test_a_stream_of_what_is_there_now_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure Spark repeats the batch, and then asks for the others."""
    collection = Collection(tmp_path)
    collection.write([1])
    lease = SnapshotLease(3, collection.store.url, "", Timestamp(collection.now), 0)
    monkeypatch.setattr(change_source, "take_changes", lambda options, since: lease)
    monkeypatch.setattr(change_source, "let_go", lambda options, lease: None)
    monkeypatch.setattr(change_source, "snapshot_of", lambda options, lease: collection.snapshot())
    columns = StructType([*spark_schema(SCHEMA).fields, *OWN])
    stream = ElanusStreamReader(parse_options({"collection": "a", "changes_from": "10"}), columns)
    stream.prepareForTriggerAvailableNow()
    stream.partitions({"ts": 10}, {"ts": collection.now})
    begin = {"ts": collection.now}
    collection.write([2])
    end = stream.latestOffset(begin)
    assert end["ts"] == collection.now > begin["ts"]
    collection.write([3])
    assert stream.latestOffset(end) == end


def test_a_stream_does_not_go_on_with_another_collection_of_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = Collection(tmp_path)
    collection.write([1])
    number = collection.snapshot().collection_id
    let_go: list[int] = []
    lease = SnapshotLease(3, collection.store.url, "", Timestamp(collection.now), 0)
    monkeypatch.setattr(change_source, "take_changes", lambda options, since: lease)
    for module in (change_source, changes):
        monkeypatch.setattr(module, "let_go", lambda options, lease: let_go.append(lease.snapshot_id))
    monkeypatch.setattr(
        change_source,
        "snapshot_of",
        lambda options, lease: replace(collection.snapshot(), collection_id=number),
    )
    columns = StructType([*spark_schema(SCHEMA).fields, *OWN])
    stream = ElanusStreamReader(parse_options({"collection": "a", "changes_from": "10"}), columns)
    start = stream.initialOffset()
    end = stream.latestOffset(start)
    stream.partitions(start, end)
    number = CollectionID(number + 1)
    collection.write([2])
    with pytest.raises(InvalidParameter, match=r"a is another collection .* checkpointLocation"):
        stream.latestOffset(end)
    assert let_go == [3, 3], "the batch that was read, and the look"
    with pytest.raises(InvalidParameter, match="another collection"):
        stream.partitions(start, end)
    earlier = {"ts": end["ts"]}
    assert stream.latestOffset(earlier)["ts"] == collection.now, "a checkpoint of an earlier release goes on"


@pytest.mark.parametrize("changed", [StructField("gone", LongType()), StructField("value", StringType())])
def test_a_stream_whose_collection_lacks_a_column_by_now_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: StructField
) -> None:
    collection = Collection(tmp_path)
    collection.write([1])
    let_go: list[int] = []
    lease = SnapshotLease(3, collection.store.url, "", Timestamp(collection.now), 0)
    monkeypatch.setattr(change_source, "take_changes", lambda options, since: lease)
    monkeypatch.setattr(changes, "let_go", lambda options, lease: let_go.append(lease.snapshot_id))
    monkeypatch.setattr(change_source, "snapshot_of", lambda options, lease: collection.snapshot())
    columns = StructType([StructField("id", LongType()), changed, *OWN])
    stream = ElanusStreamReader(parse_options({"collection": "a", "changes_from": "10"}), columns)
    with pytest.raises(InvalidParameter, match=rf"changed: it has no field {changed.name} "):
        stream.latestOffset(stream.initialOffset())
    assert let_go == [3]


def test_changes_without_spark_keep_their_files_until_they_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = Collection(tmp_path)
    collection.write([1, 2])
    kept: set[int] = set()

    class Server:
        async def changes(self, *_: object) -> SnapshotLease:
            kept.add(1)
            return SnapshotLease(1, collection.store.url, "", Timestamp(collection.now), 0)

        async def release(self, snapshot_id: int) -> None:
            kept.remove(snapshot_id)

    monkeypatch.setattr(changes, "ask", lambda options, call: asyncio.run(call(Server())))
    monkeypatch.setattr(changes, "snapshot_of", lambda options, lease: collection.snapshot())
    feed = changes.changes("a", 0, columns="id")
    next(iter(feed))
    assert kept == {1}, "it may be read again"
    assert [batch["id"].to_pylist() for batch in feed] == [[1, 2]]
    assert kept == set()
    with pytest.raises(InvalidParameter, match=r"of a since 0 have been read .* call elanus"):
        list(feed)
    with changes.changes("a", 0):
        assert kept == {1}
    assert kept == set()
    with pytest.raises(FieldNotFound, match="nothing"):
        changes.changes("a", 0, columns="nothing")
    assert kept == set(), "the error has let them go"
    gone = changes.changes("a", 0)
    for file in (tmp_path / "files").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(InvalidParameter, match="the lease of the changes has ended"):
        list(gone)


def test_files_of_a_stream_that_cannot_be_let_go_stay_for_their_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise PermissionDenied("UnpinSnapshotData is not granted")

    monkeypatch.setattr(changes, "ask", refused)
    lease = SnapshotLease(1, "file:///nothing", "", Timestamp(20), 0)
    changes.let_go(parse_options({"collection": "a", "changes_from": "10"}), lease)


def test_options_of_changes() -> None:
    options = parse_options({"collection": "a", "changes_from": "17", "keep_as": "copy"})
    assert (options.changes_from, options.keep_as) == (17, "copy")
    for wrong, text in (
        ({"changes_from": "yesterday"}, "give a hybrid timestamp"),
        ({"changes_from": str(1 << 63)}, "give a hybrid timestamp"),
        ({"changes_from": "9" * 5000}, "give a hybrid timestamp"),
        ({"as_of": "9" * 5000}, "give a hybrid timestamp, or a time"),
        ({"keep_as": "copy"}, "give the timestamp to begin at"),
        ({"changes_from": "1", "filter": "id > 3"}, "filter does not apply to changes"),
    ):
        with pytest.raises(InvalidParameter, match=text):
            parse_options({"collection": "a", **wrong})
    with pytest.raises(InvalidParameter, match="a stream reads changes"):
        ElanusStreamReader(parse_options({"collection": "a"}), spark_schema(SCHEMA))
