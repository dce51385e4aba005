"""A version that is opened for other engines, and the options of tables in Spark's catalog."""

from __future__ import annotations

import asyncio
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from snapshot_world import World, vectors
from structlog.testing import capture_logs

import elanus
from elanus.api.connector import SnapshotLease
from elanus.core.errors import FieldNotFound, InvalidParameter, NotSupported, PermissionDenied
from elanus.core.ids import FieldID
from elanus.core.imports import WriteMode
from elanus.core.schema import DataType, FieldSchema
from elanus.core.timestamps import Timestamp, compose
from elanus.spark import changes, opened, searches, source, tables
from elanus.spark.options import parse_options
from elanus.spark.rows import rows
from elanus.spark.sink import without_generated
from elanus.spark.source import ElanusSource
from elanus.storage.snapshots import write_snapshot


class Server:
    """The calls of a server that has one collection."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.released: list[int] = []
        self.refuses = False

    async def snapshot(self, *place: object, with_indexes: bool = False) -> SnapshotLease:
        path = f"snapshots/7/{len(list(self.world.store.list('snapshots')))}.json"
        write_snapshot(self.world.store, path, self.world.snapshot)
        return SnapshotLease(5, self.world.store.url, path, Timestamp(30), 0)

    async def release(self, number: int) -> None:
        if self.refuses:
            raise PermissionDenied("not allowed")
        self.released.append(number)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    world = World(tmp_path)
    world.add([1, 2, 3], vectors(3), 10, 12, 14)
    world.delete(20, 2)
    found = Server(world)

    def ask(_: object, call: Callable[[Any], Any]) -> Any:
        return asyncio.run(call(found))

    for module in (opened, source, changes, searches):
        monkeypatch.setattr(module, "ask", ask)
    return found


def test_the_lease_ends_with_the_block(server: Server) -> None:
    with elanus.open("docs") as docs:
        assert (docs.name, docs.read_ts, docs.schema.name) == ("docs", 30, "docs")
        assert docs.to_arrow().read_all()["id"].to_pylist() == [1, 3]
        duck = docs.to_duckdb()
        assert duck.sql("select id from docs order by id").fetchall() == [(1,), (3,)]
        assert docs.to_duckdb(duck, "again") is duck
        assert duck.sql("select count(*) from docs join again using (id)").fetchall() == [(2,)]
        assert server.released == []
    docs.close()
    assert server.released == [5]
    with pytest.raises(InvalidParameter, match="has been closed"):
        docs.to_arrow()


def test_a_lease_that_cannot_be_released_ends_by_itself(server: Server) -> None:
    server.refuses = True
    with capture_logs() as logs:
        elanus.open("docs").close()
    (line,) = logs
    assert (line["event"], line["collection"]) == ("lease not released", "docs")
    assert server.released == []


def test_a_stream_of_rows_lets_go_at_its_end(server: Server) -> None:
    stream = rows("docs", columns="id")
    assert stream.read_next_batch()["id"].to_pylist() == [1, 3]
    assert server.released == []
    assert list(stream) == []
    assert server.released == [5]


def test_a_moment_of_the_past(server: Server) -> None:
    assert elanus.open("docs", as_of=13).to_arrow().read_all()["id"].to_pylist() == [1, 2]
    assert rows("docs", as_of="15").read_all()["id"].to_pylist() == [1, 2, 3]
    with pytest.raises(InvalidParameter, match="later than the snapshot"):
        elanus.open("docs", as_of="2026-11-23T12:00:00Z")
    assert server.released == [5, 5], "the stream that was read to its end, and the one that was refused"
    given = parse_options({"collection": "docs", "as_of": "1970-01-01T01:00:02+01:00"})
    assert given.as_of == compose(2000)
    for text in ("yesterday", "-1"):
        with pytest.raises(InvalidParameter, match="give a hybrid timestamp, or a time such as"):
            parse_options({"collection": "docs", "as_of": text})
    with pytest.raises(InvalidParameter, match="as_of does not apply to changes"):
        parse_options({"collection": "docs", "as_of": "5", "changes_from": "1"})


def test_what_is_refused_keeps_no_lease(server: Server) -> None:
    with pytest.raises(FieldNotFound):
        elanus.open("docs", columns="nothing")
    with pytest.raises(InvalidParameter):
        elanus.open("docs", filter="nothing ==")
    assert server.released == [5, 5]
    with pytest.raises(NotSupported, match="use a where in the query, not filter"):
        elanus.open("docs", filter="id > 1").to_duckdb()
    with pytest.raises(InvalidParameter, match="does not apply here"):
        elanus.open("docs", changes_from="1")


def test_a_store_that_is_no_url_is_named_as_the_option(server: Server) -> None:
    with pytest.raises(
        InvalidParameter, match="store is 'elsewhere': give the URL of the server's object store"
    ):
        elanus.open("docs", store="elsewhere")


@pytest.mark.parametrize("options", [{"columns": "nothing"}, {"filter": "nothing =="}, {"as_of": "31"}])
def test_a_read_from_spark_that_is_refused_keeps_no_lease(server: Server, options: dict[str, str]) -> None:
    with pytest.raises((FieldNotFound, InvalidParameter)):
        ElanusSource({"collection": "docs", **options}).schema()
    assert server.released == [5]


def test_a_table_that_is_created_or_refuses_a_query_keeps_no_lease(server: Server) -> None:
    columns = ElanusSource(CREATED).schema()
    assert server.released == [5]
    columns.fields[1] = StructField("price", StringType())
    with pytest.raises(InvalidParameter, match="create the table again"):
        ElanusSource({}).reader(StructType(columns.fields))
    assert server.released == [5, 5]


def test_a_search_that_is_refused_keeps_no_lease(server: Server) -> None:
    asked: dict[str, Any] = {"k": 1, "filter": "", "params": {}, "as_of": None, "exact": False}
    with pytest.raises(FieldNotFound):
        searches.pinned_job("docs", field="nothing", parallelism=1, options={}, **asked)
    assert server.released == [5]


def test_a_version_travels_to_tasks_without_files_and_secrets(server: Server) -> None:
    docs = elanus.open("docs", token="root:secret")
    assert docs.to_arrow().read_all().num_rows == 2
    pickled = pickle.dumps(docs)
    assert len(pickled) < 2_000
    assert b"secret" not in pickled
    assert pickle.loads(pickled).snapshot == docs.snapshot


CREATED = {"provider": "elanus", "owner": "me", "collection": "docs", "option.collection": "docs"}


def test_a_table_remembers_its_options(server: Server) -> None:
    """Spark passes them when the table is created, and the columns alone afterwards."""
    columns = ElanusSource(CREATED | {"option.columns": "id,price", "columns": "id,price"}).schema()
    assert columns.fieldNames() == ["id", "price"]
    columns = StructType.fromJson(columns.jsonValue())
    assert tables.table_options(columns) == {"collection": "docs", "columns": "id,price"}
    (partition,) = ElanusSource({}).reader(columns).partitions()
    assert (partition.value.columns, partition.value.read_ts) == (("id", "price"), 30)
    (then,) = ElanusSource({"as_of": "20"}).reader(columns).partitions()
    assert then.value.read_ts == 20
    with pytest.raises(InvalidParameter, match="the table has the option columns, so it can only be read"):
        ElanusSource({}).writer(columns, overwrite=False)
    with pytest.raises(InvalidParameter, match="the columns of a table are fixed"):
        ElanusSource({"columns": "id"}).reader(columns)
    with pytest.raises(InvalidParameter, match="changes have columns of their own"):
        ElanusSource({"changes_from": "1"}).reader(columns)
    changed = StructType([columns.fields[0], StructField("price", StringType())])
    with pytest.raises(InvalidParameter, match="has no field price of the type string any more"):
        ElanusSource({}).reader(changed)


def test_a_table_that_was_made_of_a_query_does_not_read_what_the_query_read(server: Server) -> None:
    """Its columns have the metadata of those of the query, and all of them may be null."""
    columns = StructType.fromJson(ElanusSource(CREATED).schema().jsonValue())
    assert ElanusSource({}).reader(columns).partitions()
    copied = StructType([StructField(c.name, c.dataType, True, c.metadata) for c in columns.fields])
    with pytest.raises(InvalidParameter, match=r"a query has made .* does not know its"):
        ElanusSource({}).reader(copied)


def test_an_insert_leaves_out_what_the_server_makes() -> None:
    columns = StructType([StructField("id", LongType(), nullable=False), StructField("color", StringType())])
    table = tables.with_table_options(columns, {"collection": "docs"}, {"id"})
    assert [column.nullable for column in table.fields] == [True, True]
    assert tables.generated_columns(StructType.fromJson(table.jsonValue())) == ("id",)
    batch = pa.record_batch({"id": pa.nulls(2, pa.int64()), "color": ["red", None]})
    assert without_generated(batch, ("id",)).to_pylist() == [{"color": "red"}, {"color": None}]
    assert without_generated(batch, ()) is batch
    with pytest.raises(InvalidParameter, match="the server makes the values of color"):
        without_generated(batch, ("color",))


def test_an_insert_leaves_out_dynamic_keys_and_what_has_a_default(server: Server) -> None:
    """To Spark that is a null, which a column has to allow."""
    kept = server.world.schema
    added = (
        FieldSchema(FieldID(110), "cost", DataType.INT64, default_value=7),
        FieldSchema(FieldID(111), "$meta", DataType.JSON, is_dynamic=True),
    )
    server.world.schema = replace(kept, fields=(*kept.fields, *added), enable_dynamic=True)
    table = ElanusSource(CREATED).schema()
    nullable = {column.name: column.nullable for column in table.fields}
    assert [name for name in nullable if nullable[name]] == ["cost", "$meta"]
    assert tables.generated_columns(table) == ()


def test_a_table_has_a_column_of_a_type_of_its_own() -> None:
    """By it Spark distinguishes the columns of an insert from those of its table, and
    gives them what the table remembers. Else rows that were read from one table went back to it."""
    columns = StructType(
        [StructField("v", LongType()), StructField("id", LongType()), StructField("color", StringType())]
    )
    made = [
        tables.with_table_options(columns, {"collection": name}, key="id")
        for name in ("docs", "copy", "docs")
    ]
    types = [table["color"].metadata["__CHAR_VARCHAR_TYPE_STRING"] for table in made]
    assert types[0] == types[2] != types[1]
    assert all(re.fullmatch(r"varchar\([12]\d{9}\)", found) for found in types)
    assert [bool(column.metadata) for column in made[0].fields] == [False, True, True], "arrays lose theirs"
    assert not any(column.metadata for column in tables.columns_of_frame(made[0]).fields)


def test_an_insert_that_may_be_for_another_table_names_its_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[Any] = []
    monkeypatch.setattr(source, "ElanusWriter", lambda *arguments: written.append(arguments))
    table = tables.with_table_options(StructType([StructField("id", LongType())]), {"collection": "docs"})
    with pytest.raises(InvalidParameter, match=r"with \(collection = "):
        ElanusSource({}).writer(table, overwrite=False)
    ElanusSource({"collection": "copy"}).writer(table, overwrite=False)
    ((to, _),) = written
    assert to.collection == "copy"


def inserted(table: StructType) -> StructType:
    """The columns of rows that Spark has fitted to their table: texts have no other type any more."""
    return StructType(
        [
            StructField(
                c.name,
                c.dataType,
                c.nullable,
                {k: v for k, v in c.metadata.items() if k != "__CHAR_VARCHAR_TYPE_STRING"},
            )
            for c in table.fields
        ]
    )


def test_rows_that_a_new_table_is_made_of_do_not_go_back_into_the_table_that_they_were_read_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CREATE TABLE ... AS SELECT passes no options, and columns with the metadata of that table."""
    written: list[Any] = []
    monkeypatch.setattr(source, "ElanusWriter", lambda *arguments: written.append(arguments))
    columns = StructType([StructField("id", LongType()), StructField("color", StringType())])
    table = tables.with_table_options(columns, {"collection": "docs"}, key="id")
    others = [table, StructType([table["id"]]), StructType([table["id"], StructField("color", StringType())])]
    for found in others:
        with pytest.raises(InvalidParameter, match="does not say which table these rows are for"):
            ElanusSource({}).writer(found, overwrite=False)
    assert written == []
    ElanusSource({}).writer(inserted(table), overwrite=False)
    assert len(written) == 1


def test_a_frame_of_a_tables_rows_is_written_where_the_statement_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark passes on what the columns remember. Only an insert into the table names no collection."""
    written: list[tuple[Any, StructType]] = []
    monkeypatch.setattr(source, "ElanusWriter", lambda *arguments: written.append(arguments))
    columns = StructType(
        [StructField("id", LongType(), metadata={"comment": "a key"}), StructField("color", StringType())]
    )
    options = {"collection": "docs", "database": "shop", "operation": "upsert"}
    table = tables.with_table_options(columns, options, {"color"})
    ElanusSource({}).writer(inserted(table), overwrite=False)
    ElanusSource({"Collection": "copy"}).writer(table, overwrite=False)
    of_part = tables.with_table_options(columns, {"collection": "docs", "filter": "id < 5"})
    ElanusSource({"collection": "copy"}).writer(of_part, overwrite=False)
    assert [(to.database, to.collection, to.operation) for to, _ in written] == [
        ("shop", "docs", WriteMode.UPSERT),
        ("default", "copy", WriteMode.APPEND),
        ("default", "copy", WriteMode.APPEND),
    ]
    assert [tables.generated_columns(given) for _, given in written] == [("color",), (), ()]


def test_a_frame_is_not_a_table(server: Server) -> None:
    assert tables.table_options(ElanusSource({"collection": "docs"}).schema()) is None
    with pytest.raises(InvalidParameter, match=r"not \.schema\(\)\. A table that a query"):
        ElanusSource({"collection": "docs"}).reader(StructType([StructField("id", LongType())]))


def test_options_that_a_table_cannot_have(server: Server) -> None:
    for name, value in (("token", "a:b"), ("write_id", "x"), ("operation", "delete")):
        with pytest.raises(NotSupported, match=name):
            tables.with_table_options(StructType([StructField("id", LongType())]), {name: value})


def test_reads_and_writes_of_a_table_leave_out_what_the_other_has() -> None:
    both = {"collection": "docs", "operation": "upsert", "lease_s": "60", "store": "s3://b"}
    assert tables.for_reads(both) == {"collection": "docs", "lease_s": "60", "store": "s3://b"}
    assert tables.for_writes(both) == {"collection": "docs", "operation": "upsert"}


def test_defaults_of_a_session_come_last() -> None:
    source = type("ElanusSource", (ElanusSource,), {"defaults": {"token": "a:b", "collection": "docs"}})
    given = source({"collection": "people"})._given({"collection": "table", "uri": "http://db"})
    assert given == {"token": "a:b", "collection": "people", "uri": "http://db"}
    assert replace(parse_options(given), token="").collection == "people"
