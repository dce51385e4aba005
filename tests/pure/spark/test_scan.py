"""Scans by another engine, held against the reader that goes row group by row group: DuckDB here.

The same plans are read by Spark in `tests/pipeline/test_native_scan.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshot_world import CID, DIM, VCHANNEL, World, spoil_vectors, vectors

from elanus.api.connector import CollectionSnapshot
from elanus.core.clones import deletes_as_of
from elanus.core.errors import FieldNotFound, NotSupported
from elanus.core.field_changes import with_added_field
from elanus.core.ids import FieldID, PartitionID
from elanus.core.schema import DataType, FieldSchema
from elanus.core.segments import DeltaLog
from elanus.core.timestamps import Timestamp, compose
from elanus.spark.duck import attach_view
from elanus.spark.rows import rows_of
from elanus.spark.scan import location, scan_plan
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer

DUCK = duckdb.connect()


def by_duck(world: World, snapshot: CollectionSnapshot, query: str, *columns: str) -> list[tuple[Any, ...]]:
    attach_view(DUCK, "docs", scan_plan(snapshot, world.store, columns), world.store.url)
    return DUCK.sql(query).fetchall()


def by_rows(world: World, snapshot: CollectionSnapshot, *columns: str) -> list[tuple[Any, ...]]:
    table = rows_of(snapshot, world.store.url, columns).read_all()
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Any, ...]:
    """Segments (keys, timestamps, commit, cut, partition, folded), deletes (timestamp, keys, partition), the
    moment of the read, and until when rows have expired."""
    moments = st.integers(1, 40)
    segments = draw(
        st.lists(
            st.tuples(
                st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True).map(sorted),
                st.lists(moments, min_size=1, max_size=2).map(sorted),
                st.one_of(st.just(0), moments),
                st.one_of(st.just(0), moments),
                st.sampled_from([8, 9]),
                st.sampled_from([0, 0, 15]),
            ),
            max_size=4,
        )
    )
    deletes = draw(
        st.lists(
            st.tuples(
                moments, st.lists(st.integers(0, 12), min_size=1, max_size=5), st.sampled_from([0, 8, 9])
            ),
            max_size=4,
        )
    )
    return segments, deletes, draw(moments), draw(st.sampled_from([0, 0, 5, 12]))


@given(histories())
@settings(deadline=None, max_examples=12)
def test_the_rows_are_those_of_the_reader(
    tmp_path_factory: pytest.TempPathFactory, history: tuple[Any, ...]
) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    segments, deletes, read_ts, expired = history
    for n, (keys, moments, commit, cut, partition, folded) in enumerate(segments):
        made = world.add(keys, vectors(len(keys), n), *moments)
        files = tuple(replace(f, until=Timestamp(cut)) for f in made.insert_logs)
        world.manifests[-1] = replace(
            made,
            insert_logs=files,
            commit_ts=Timestamp(commit),
            partition_id=PartitionID(partition),
            deletes_from=Timestamp(folded),
        )
    for ts, keys, partition in deletes:
        world.delete(ts, *keys, partition=partition)
    snapshot = replace(world.snapshot, read_ts=Timestamp(read_ts), expired_until=Timestamp(expired))
    found = by_duck(world, snapshot, "select id, price from docs order by all", "id", "price")
    assert found == by_rows(world, snapshot, "id", "price")


def test_counts_and_groups_read_no_vectors(world: World) -> None:
    world.add(list(range(50)), vectors(50))
    world.add(list(range(50, 90)), vectors(40), 10, 20)
    world.delete(15, 3, 4, 52)
    spoil_vectors(world)
    assert by_duck(world, world.snapshot, "select count(*) from docs") == [(87,)]
    grouped = by_duck(world, world.snapshot, "select price % 2, count(*) from docs group by 1 order by 1")
    assert grouped == [(0, 43), (1, 44)]
    with pytest.raises(duckdb.Error):
        by_duck(world, world.snapshot, "select v from docs")


def test_files_that_need_no_look_are_whole(world: World) -> None:
    world.add([1, 2], vectors(2), 20)
    world.add([3, 4], vectors(2), 12)
    world.delete(15, 3)
    plan = scan_plan(world.snapshot, world.store)
    whole = {file.path: group.whole for group in plan.groups for file in group.files}
    assert list(whole.values()) == [True, False], "the delete is older than the first file's rows"
    assert len(plan.deletes) == 1
    early = scan_plan(replace(world.snapshot, read_ts=Timestamp(14)), world.store)
    assert [group.whole for group in early.groups] == [True], "no delete by then, and one file without rows"
    assert early.deletes == ()


def test_vectors_are_arrays_that_duckdb_compares(world: World) -> None:
    rows = vectors(20)
    world.add(list(range(20)), rows)
    query = f"select id from docs order by array_distance(v, {rows[7].tolist()}::FLOAT[{DIM}]) limit 1"
    assert by_duck(world, world.snapshot, query) == [(7,)]


def test_rows_that_expire_at_a_moment_of_their_own(world: World) -> None:
    moment = FieldSchema(FieldID(101), "price", DataType.TIMESTAMPTZ, nullable=True)
    fields = (world.schema.fields[0], moment, world.schema.fields[2])
    world.schema = replace(world.schema, fields=fields)
    by_key = replace(world.schema, ttl_field="price")
    world.add([1, 2, 3, 4], vectors(4))  # they expire after 0, 1, 2 and 3 microseconds
    snapshot = replace(world.snapshot, schema=by_key, read_ts=compose(0, 20))
    assert by_duck(world, snapshot, "select id from docs order by 1") == [(1,), (2,), (3,), (4,)]
    later = replace(snapshot, read_ts=compose(1))
    assert by_duck(world, later, "select id from docs") == by_rows(world, later, "id") == [(1,)]
    shown = by_duck(world, snapshot, "select typeof(price), epoch_us(price) from docs order by 2")
    assert shown[3] == ("TIMESTAMP", 3)


@pytest.mark.parametrize(("default_us", "wanted"), [(1000, []), (1_000_000, [(1,), (2,)]), (0, [(1,), (2,)])])
def test_rows_that_are_older_than_the_moments_of_expiry_expire_by_the_default(
    world: World, default_us: int, wanted: list[tuple[int]]
) -> None:
    world.add([1, 2], vectors(2))
    world.delete(15, 3)
    moment = FieldSchema(FieldID(0), "until", DataType.TIMESTAMPTZ, nullable=True, default_value=default_us)
    world.schema = replace(with_added_field(world.schema, moment), ttl_field="until")
    snapshot = replace(world.snapshot, read_ts=compose(10))
    found = by_duck(world, snapshot, "select id from docs order by 1", "id")
    assert found == by_rows(world, snapshot, "id") == wanted


def test_fields_that_older_files_lack(world: World) -> None:
    world.add([1, 2], vectors(2))
    extra = FieldSchema(
        FieldID(0), "color", DataType.VARCHAR, max_length=9, nullable=True, default_value="it's"
    )
    number = FieldSchema(FieldID(0), "size", DataType.INT16, nullable=True)
    least = FieldSchema(FieldID(0), "least", DataType.INT64, nullable=True, default_value=-(2**63))
    for field in (extra, number, least):
        world.schema = with_added_field(world.schema, field)
    query = "select id, color, size, least from docs order by id"
    assert by_duck(world, world.snapshot, query) == [(n, "it's", None, -(2**63)) for n in (1, 2)]
    assert by_duck(world, world.snapshot, "select id from docs", "id") == [(1,), (2,)]


def test_without_rows_there_are_columns(world: World) -> None:
    assert by_duck(world, world.snapshot, "select id, v from docs") == []


def test_what_is_refused(world: World) -> None:
    with pytest.raises(FieldNotFound):
        scan_plan(world.snapshot, world.store, ("nothing",))
    twice = replace(world.schema.fields[1], name="ID")
    world.schema = replace(world.schema, fields=(*world.schema.fields[:1], twice, world.schema.fields[2]))
    with pytest.raises(NotSupported, match="two columns are named"):
        by_duck(world, world.snapshot, "select 1")


def test_where_another_program_finds_an_object() -> None:
    assert (
        location("file:///data/my%20files", "insert_log/1.parquet") == "/data/my files/insert_log/1.parquet"
    )
    assert location("s3://bucket/a/b?endpoint=http://x", "c/d", s3="s3a") == "s3a://bucket/a/b/c/d"
    assert location("s3://bucket", "c") == "s3://bucket/c"


def test_texts_as_keys(tmp_path: Path) -> None:
    world = World(tmp_path, DataType.VARCHAR)
    world.add(["a", "b'c", "d"], vectors(3))
    world.delete(12, "b'c")
    assert by_duck(world, world.snapshot, "select id from docs order by 1") == [("a",), ("d",)]


def test_a_write_gives_its_deletes_the_timestamp_of_its_commit(world: World) -> None:
    world.add([1, 2], vectors(2), 10, 20)
    world.delete(3, 1, 2)
    log = world.deltas[0].file
    late = replace(log, ts_min=Timestamp(15), ts_max=Timestamp(15))
    world.deltas = [DeltaLog(world.deltas[0].vchannel, late)]
    assert (
        by_duck(world, world.snapshot, "select id from docs")
        == by_rows(world, world.snapshot, "id")
        == [(2,)]
    )


def test_a_clone_at_the_moment_of_the_first_delete_of_a_file_has_no_later_one(world: World) -> None:
    world.add([1, 2, 3], vectors(3), 10)
    key_schema = delta_log_schema(world.schema.primary_field, CID, VCHANNEL)
    with delta_log_writer(world.store, "delta_log/several", key_schema, world.scratch) as writer:
        for moment, key in ((15, 1), (20, 2)):
            keys = pa.array([key], pa.int64())
            writer.write(delete_rows(keys, Timestamp(moment), PartitionID(0), key_schema))
        world.deltas = list(deletes_as_of([DeltaLog(VCHANNEL, writer.finish())], Timestamp(15)))
    assert (
        by_duck(world, world.snapshot, "select id from docs")
        == by_rows(world, world.snapshot, "id")
        == [(2,), (3,)]
    )
