"""Spark's own scan of a collection's files, and the table functions of SQL, over files made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession

from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.field_changes import with_added_field
from elanus.core.ids import FieldID, PartitionID
from elanus.core.schema import DataType, FieldSchema
from elanus.core.timestamps import Timestamp, compose
from elanus.pipeline.session import PipelineSession
from elanus.server.status import JobStatus
from elanus.spark.native import native_frame
from elanus.spark.opened import OpenCollection
from elanus.spark.options import parse_options
from elanus.spark.rows import rows_of
from elanus.spark.scan import scan_plan
from elanus.spark.table_functions import attached, register_functions
from elanus.storage.snapshots import write_snapshot
from tests.pure.spark.snapshot_world import World, spoil_vectors, vectors

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def spark(session: PipelineSession) -> SparkSession:
    return SparkSession(session.context)


def frame(spark: SparkSession, world: World, snapshot: CollectionSnapshot, *columns: str) -> Any:
    return native_frame(spark, scan_plan(snapshot, world.store, columns), world.store.url)


def test_the_rows_are_those_of_the_reader(spark: SparkSession, tmp_path: Path) -> None:
    """Files of every kind: whole, cut for a clone, imported, of another partition; a row with three lives."""
    place = tmp_path / "it's here"
    place.mkdir()
    world = World(place)
    for n, keys in enumerate(([1, 2, 3, 4], [3, 5, 6], [6, 7], [8, 9, 10, 11], [12, 13])):
        world.add(keys, vectors(len(keys), n), 10 + n, 20 + n)
    changes: list[dict[str, Any]] = [
        {},
        {"commit_ts": Timestamp(25)},
        {"partition_id": PartitionID(9)},
        {"insert_logs": tuple(replace(f, until=Timestamp(15)) for f in world.manifests[3].insert_logs)},
        {"commit_ts": Timestamp(31)},
    ]
    world.manifests = [replace(m, **change) for m, change in zip(world.manifests, changes, strict=True)]
    world.delete(24, 3, 5)
    world.delete(26, 6, partition=8)
    world.delete(27, 7, 1, partition=0)
    world.delete(33, 2)
    for read_ts, expired, expected in ((30, 12, 5), (5, 0, 0)):
        snapshot = replace(world.snapshot, read_ts=Timestamp(read_ts), expired_until=Timestamp(expired))
        found = [tuple(row) for row in frame(spark, world, snapshot, "id", "price").collect()]
        wanted = rows_of(snapshot, world.store.url, ("id", "price")).read_all().to_pylist()
        assert sorted(found) == sorted(tuple(row.values()) for row in wanted)
        assert len(found) == expected


def test_counts_and_groups_read_no_vectors(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add(list(range(50)), vectors(50))
    world.add(list(range(50, 90)), vectors(40), 10, 20)
    world.delete(15, 52)
    world.delete(16, 3, 4)
    spoil_vectors(world)
    docs = frame(spark, world, world.snapshot)
    assert docs.columns == ["id", "price", "v"]
    assert docs.count() == 87
    groups = docs.selectExpr("price % 2 AS odd").groupBy("odd").count().orderBy("odd")
    assert [tuple(row) for row in groups.collect()] == [(0, 43), (1, 44)]
    with pytest.raises(Exception, match="parquet"):
        docs.select("v").collect()


def test_types_and_added_fields(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path)
    moment = FieldSchema(FieldID(101), "price", DataType.TIMESTAMPTZ, nullable=True)
    world.schema = replace(world.schema, fields=(world.schema.fields[0], moment, world.schema.fields[2]))
    world.add([1, 2, 3], vectors(3))
    for name, default in (("color", "it's"), ("size", None)):
        kind = DataType.INT16 if default is None else DataType.VARCHAR
        length = {} if default is None else {"max_length": 9}
        added = FieldSchema(FieldID(0), name, kind, nullable=True, default_value=default, **length)  # type: ignore[arg-type]
        world.schema = with_added_field(world.schema, added)
    snapshot = replace(
        world.snapshot, schema=replace(world.schema, ttl_field="price"), read_ts=compose(0, 20)
    )
    docs = frame(spark, world, snapshot)
    assert [kind for _, kind in docs.dtypes] == ["bigint", "timestamp", "array<float>", "string", "smallint"]
    row = docs.where("id = 2").selectExpr("unix_micros(price)", "v[0]", "color", "size").collect()[0]
    assert tuple(row) == (1, pytest.approx(float(vectors(3)[1][0])), "it's", None)
    later = frame(spark, world, replace(snapshot, read_ts=compose(1)), "id")
    assert [r.id for r in later.collect()] == [1], "the moment 0 never comes, the others are over"
    confusing = replace(world.schema.fields[1], name="timestamp")
    world.schema = replace(world.schema, fields=(world.schema.fields[0], confusing, world.schema.fields[2]))
    with pytest.raises(NotSupported, match="set spark"):
        frame(spark, world, world.snapshot)


def opened(world: World) -> OpenCollection:
    write_snapshot(world.store, "snapshots/7/1.json", world.snapshot)
    lease = SnapshotLease(1, world.store.url, "snapshots/7/1.json", Timestamp(30), 0)
    return OpenCollection(parse_options({"collection": "docs"}), lease)


@contextmanager
def status_server(body: bytes) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/jobs" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_table_functions(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.add(list(range(50)), vectors(50))
    world.index(first)
    world.add(list(range(50, 90)), vectors(40, 6))
    world.delete(15, 7)
    docs = opened(world)
    docs.to_spark(spark).createOrReplaceTempView("docs")
    job = JobStatus("flush-1", "flush", "done", "full", "2026-11-23T12:00:00Z", 12, 100, 2000)
    answer = json.dumps([{name: getattr(job, name) for name in JobStatus.__slots__}]).encode()
    with status_server(answer) as url:
        register_functions(spark, {"docs": docs}, url)
        jobs = spark.sql("select job_id, state, duration_ms, rows, error from elanus_jobs()").collect()
    assert [tuple(row) for row in jobs] == [("flush-1", "done", 12.0, 100, "")]
    text = "array(" + ", ".join(f"float('{x}')" for x in vectors(50)[7].tolist()) + ")"
    hits = spark.sql(f"select * from elanus_search('docs', {text}, 3, filter => 'id < 60') order by rank")
    nearest = world.nearest(vectors(50)[7], 3, lambda key: key < 60 and key != 7)
    assert [(h.rank, h.key) for h in hits.collect()] == list(enumerate(nearest, 1))
    joined = spark.sql(
        "select d.id, h.key, h.score from docs d, lateral elanus_search('docs', d.v, 1) h "
        "where d.id in (3, 60)"
    )
    assert sorted((row.id, row.key, row.score) for row in joined.collect()) == [(3, 3, 0.0), (60, 60, 0.0)]
    segments = spark.sql("select segment_id, rows, files, indexes from elanus_segments('docs') order by 1")
    assert [tuple(row) for row in segments.collect()] == [(1000, 50, 1, "HNSW"), (1001, 40, 1, "")]
    with pytest.raises(InvalidParameter, match="collection nothing is not attached: there are docs"):
        attached({"docs": docs}, "nothing")
    spark.catalog.dropTempView("docs")
