"""Writes from Spark: their options, the files of their tasks, and a commit that may come again."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, BinaryType, FloatType, LongType, StringType, StructField, StructType

from elanus.api.connector import WriteTarget
from elanus.core.errors import (
    DeadlineExceeded,
    InvalidParameter,
    MissingParameter,
    NotReady,
    Unavailable,
)
from elanus.core.ids import CollectionID, FieldID, PartitionID, TaskID
from elanus.core.imports import ImportState, ImportTask, WriteMode, WritePlace
from elanus.core.limits import IMPORT_FILES_MAX
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.structs import StructSchema
from elanus.core.types import DataType
from elanus.spark import asking, sink
from elanus.spark.options import parse_write_options
from elanus.spark.sink import ElanusWriter, Sink, Staged, Staging
from elanus.spark.stream_sink import ElanusStreamWriter
from elanus.spark.tables import with_table_options
from elanus.storage.local import LocalStore

OPTIONS = parse_write_options({"collection": "docs", "partition": "p", "import_directory": "file:///nothing"})
BATCH = pa.record_batch({"id": [1, 2]})


class KnownSink(Sink):
    """A sink whose server is this test."""

    def __init__(self, directory: Path, *states: ImportState, reason: str = "") -> None:
        self._options = OPTIONS
        self.staging = Staging(directory.as_uri())
        self.states = list(states)
        self.asked: list[tuple[Any, ...]] = []
        self.reason = reason

    def _ask(self, call: Any) -> Any:
        self.asked.append(call(self))
        task = ImportTask(TaskID(1), CollectionID(7), "docs", PartitionID(8), "p", (), 0)
        return replace(task, state=self.states.pop(0), reason=self.reason)

    def write_files(self, *arguments: Any) -> tuple[Any, ...]:
        return arguments

    def import_task(self, task_id: TaskID) -> tuple[Any, ...]:
        return ("state of", task_id)


def test_the_options_of_a_write() -> None:
    assert (OPTIONS.address, OPTIONS.database, OPTIONS.partition) == ("127.0.0.1:19530", "default", "p")
    query = parse_write_options({"collection": "a", "checkpointLocation": "/c", "uri": "http://db:1"})
    again = parse_write_options({"collection": "b", "checkpointlocation": "/c"})
    assert query.stream_id == again.stream_id != ""
    assert (
        parse_write_options({"collection": "a", "stream_id": "s", "checkpointLocation": "/c"}).stream_id
        == "s"
    )
    for name in ("write_id", "stream_id"):
        with pytest.raises(InvalidParameter, match=f"{name} has 257 characters: give 256 at most"):
            parse_write_options({"collection": "a", name: "x" * 257})
    with pytest.raises(MissingParameter, match="no collection"):
        parse_write_options({})
    for name in ("filter", "path"):
        with pytest.raises(InvalidParameter, match=f"unknown option {name}"):
            parse_write_options({"collection": "a", name: "x"})


@pytest.mark.parametrize("wrong", ["", "-1", "nan", "soon", "90000"])
def test_a_wait_that_is_no_time(wrong: str) -> None:
    with pytest.raises(InvalidParameter, match=f"wait_served_s is '{wrong}': give a number of seconds"):
        parse_write_options({"collection": "a", "wait_served_s": wrong})


def test_a_streaming_query_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="checkpointLocation"):
        ElanusStreamWriter(OPTIONS, StructType())


class Answering:
    """A server with one collection."""

    place = WritePlace(CollectionID(7), PartitionID(8))

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def write_target(self, *place: Any) -> WriteTarget:
        self.asked.append(place)
        key = FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True)
        title = FieldSchema(FieldID(101), "clips[title]", DataType.ARRAY, element_type=DataType.VARCHAR)
        vector = FieldSchema(FieldID(103), "v", DataType.FLOAT_VECTOR, dim=2)
        clips = StructSchema(FieldID(102), "clips")
        return WriteTarget(self.place, CollectionSchema("docs", (key, vector, title), structs=(clips,)))

    async def import_directory(self) -> str:
        return "file:///proc/elsewhere"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Answering:
    answering = Answering()
    monkeypatch.setattr(sink, "ask", lambda options, call: asyncio.run(call(answering)))
    return answering


CLIPS = pa.list_(pa.struct({"title": pa.string()}))


def frame(**changed: pa.DataType | None) -> pa.Schema:
    """The columns of a frame that fits; ``changed``: other types, None leaves a column out."""
    columns = {"id": pa.int64(), "v": pa.list_(pa.float32()), "clips": CLIPS, **changed}
    return pa.schema([(name, found) for name, found in columns.items() if found is not None])


def test_a_frame_that_lacks_a_column_is_refused_before_any_task_runs(
    server: Answering, tmp_path: Path
) -> None:
    options = replace(OPTIONS, import_directory=tmp_path.as_uri())
    for columns in (frame(), frame(clips=None, **{"clips[title]": pa.list_(pa.string())})):
        Sink(options, columns)
    assert server.asked == [("default", "docs", "p", WriteMode.APPEND)] * 2
    with pytest.raises(InvalidParameter, match=r"the frame has no column id, which .* it has v, clips"):
        Sink(options, frame(id=None))
    with pytest.raises(InvalidParameter, match="the frame: column colour is no field of collection docs"):
        Sink(options, frame(colour=pa.string()))
    with pytest.raises(InvalidParameter, match="import directory file:///proc/elsewhere cannot be written"):
        Sink(replace(OPTIONS, import_directory=""), frame())


@pytest.mark.parametrize(
    ("column", "found", "why"),
    [
        ("id", pa.string(), "column id has type string, .* field id of type INT64: give integers, or decim"),
        ("v", pa.float32(), "column v has type float, .* FLOAT_VECTOR with dim 2: give lists of 2 floats"),
        ("v", pa.list_(pa.string()), r"column v has type list<.*>, .*: give lists of 2 floats"),
        (
            "clips",
            pa.list_(pa.struct({"title": pa.int64()})),
            r"clips\[title\] .* elements are strings",
        ),
    ],
)
def test_a_column_of_a_wrong_type_is_refused_before_any_task_runs(
    server: Answering, tmp_path: Path, column: str, found: pa.DataType, why: str
) -> None:
    with pytest.raises(InvalidParameter, match=f"the frame: .*{why}"):
        Sink(replace(OPTIONS, import_directory=tmp_path.as_uri()), frame(**{column: found}))


def test_a_delete_of_more_than_keys_is_refused_before_any_task_runs(server: Answering) -> None:
    delete = replace(OPTIONS, operation=WriteMode.DELETE)
    with pytest.raises(InvalidParameter, match=r"has id, v: give \.select\('id'\)"):
        Sink(delete, pa.schema({"id": pa.int64(), "v": pa.list_(pa.float32())}))


def test_a_task_leaves_one_file_and_none_without_rows(tmp_path: Path) -> None:
    staging = Staging(tmp_path.as_uri())
    staged = staging.write(iter([BATCH, BATCH]))
    assert staged.rows == 4
    assert pq.read_table(tmp_path / staged.file)["id"].to_pylist() == [1, 2, 1, 2]
    assert staging.write(iter([])) == staging.write(iter([BATCH.slice(2)])) == Staged("", 0)
    staging.remove([staged, None, Staged("", 0)])
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_the_next_write_removes_what_killed_tasks_left_a_week_ago(tmp_path: Path) -> None:
    staging = Staging(tmp_path.as_uri())
    first, second = staging.write(iter([BATCH])), staging.write(iter([BATCH]))
    assert first is not None
    assert second is not None
    left, waiting = first.file, second.file
    week_ago_s = time.time() - 7 * 24 * 3600 - 1
    os.utime(tmp_path / left, (week_ago_s, week_ago_s))
    (tmp_path / "of a user.parquet").write_bytes(b"")
    os.utime(tmp_path / "of a user.parquet", (0, 0))
    staging.check()
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {waiting, "of a user.parquet"}


def test_an_object_store_that_does_not_answer_names_the_option_for_another_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As S3 under a name that is only known to the server."""

    def silent(*_: object) -> None:
        raise Unavailable("the object store does not answer")

    monkeypatch.setattr(LocalStore, "put", silent)
    with pytest.raises(InvalidParameter, match=r"does not answer; give the URL .*'import_directory'"):
        Staging(tmp_path.as_uri()).check()


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> Any:
        yield BATCH
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Staging(tmp_path.as_uri()).write(failing())
    assert list(tmp_path.iterdir()) == []


def test_a_commit_names_its_write_and_waits_until_the_rows_are_there(tmp_path: Path) -> None:
    sink = KnownSink(tmp_path, ImportState.PENDING, ImportState.STARTED, ImportState.PERSISTED)
    staged = [sink.staging.write(iter([BATCH])), Staged("", 0), None]
    sink.commit(staged, "w1")
    assert sink.asked[0] == ("default", "docs", "p", (staged[0].file,), "w1", WriteMode.APPEND, -1, "", None)
    assert sink.asked[1:] == [("state of", 1)] * 2
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    sink.commit([Staged("", 0)], "w2")
    assert len(sink.asked) == 3, "a write without rows asks nobody"


def test_a_commit_says_where_the_write_began(server: Answering, tmp_path: Path) -> None:
    """The name may mean another collection by then. Tasks of a streaming query have another writer than its
    commits."""
    began = Sink(replace(OPTIONS, import_directory=tmp_path.as_uri()), frame())
    rows = pa.record_batch({"id": [1]})
    for staged in (began.staging.write(iter([rows])), began.staging.write_empty(rows.schema)):
        later = KnownSink(tmp_path, ImportState.PERSISTED)
        later.commit([Staged("", 0), staged], "w1", 3)
        assert later.asked[0][-1] == server.place


def test_an_overwrite_without_rows_has_the_columns_of_an_insert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without those that the server makes: an import refuses them."""
    written: list[list[str]] = []

    class Reading(KnownSink):
        def __init__(self, *_: object) -> None:
            super().__init__(tmp_path, ImportState.PERSISTED)

        def _ask(self, call: Any) -> Any:
            task = super()._ask(call)
            written.append(pq.read_schema(tmp_path / self.asked[-1][3][0]).names)
            return task

    monkeypatch.setattr(sink, "Sink", Reading)
    columns = StructType([StructField("id", LongType()), StructField("terms", BinaryType())])
    table = with_table_options(columns, {"collection": "docs"}, {"terms"})
    writer = ElanusWriter(replace(OPTIONS, operation=WriteMode.OVERWRITE), table)
    writer.commit([writer.write(iter([])), None])
    assert written == [["id"]]


def test_files_that_cannot_be_removed_do_not_make_a_commit_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise Unavailable("the object store does not answer")

    known = KnownSink(tmp_path, ImportState.PERSISTED, ImportState.PERSISTED)
    staged = known.staging.write(iter([BATCH]))
    monkeypatch.setattr(LocalStore, "delete", refused)
    known.commit([staged], "w1")
    known.commit([Staged(f"{n}.parquet", 1) for n in range(IMPORT_FILES_MAX + 1)], "w2")
    known.abort([staged])
    assert (tmp_path / staged.file).exists()


def test_a_write_that_waits_ends_when_clients_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_LOOK_S", 0.0)
    known = KnownSink(tmp_path, *[ImportState.PERSISTED] * 2, ImportState.COMPLETED)
    known._options = replace(OPTIONS, wait_served_s=600.0)
    known.commit([known.staging.write(iter([BATCH]))], "w1")
    assert known.asked[1:] == [("state of", 1)] * 2


def test_a_write_that_is_not_served_in_time_says_that_it_is_committed(tmp_path: Path) -> None:
    known = KnownSink(tmp_path, *[ImportState.PERSISTED] * 2)
    known._options = replace(OPTIONS, wait_served_s=0.001)
    with pytest.raises(DeadlineExceeded, match=r"write w1 is in docs, but .* after 0\.001 s \(wait_s"):
        known.commit([known.staging.write(iter([BATCH]))], "w1")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_server_that_restarts_during_a_commit_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_LOOK_S", 0.0)
    monkeypatch.setattr(asking, "_AGAIN_S", 0.0)
    lost = [Unavailable("no answer"), DeadlineExceeded("no server answers"), NotReady("it starts")]

    class Restarting(KnownSink):
        def _ask(self, call: Any) -> Any:
            if lost and len(self.asked) in (0, 1):
                raise lost.pop()
            return super()._ask(call)

    known = Restarting(tmp_path, ImportState.STARTED, ImportState.PERSISTED)
    known.commit([known.staging.write(iter([BATCH]))], "w1")
    assert not lost
    assert known.asked[1:] == [("state of", 1)]


def test_a_streaming_query_outlasts_a_restart_before_its_batch_is_planned_or_committed(
    server: Answering, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A single write is refused at once: nobody has written anything yet."""
    monkeypatch.setattr(asking, "_AGAIN_S", 0.0)
    answer = sink.ask
    lost = [Unavailable("no answer"), DeadlineExceeded("no server answers"), NotReady("it starts")]

    def restarting(options: Any, call: Any) -> Any:
        if lost:
            raise lost.pop()
        return answer(options, call)

    monkeypatch.setattr(sink, "ask", restarting)
    options = replace(OPTIONS, import_directory=tmp_path.as_uri(), stream_id="s")
    types = {"id": LongType(), "v": ArrayType(FloatType()), "clips[title]": ArrayType(StringType())}
    columns = StructType([StructField(name, found) for name, found in types.items()])
    with pytest.raises(NotReady):
        ElanusWriter(options, columns)
    ElanusStreamWriter(options, columns)
    assert lost == []
    assert len(server.asked) == 1


def test_a_server_that_stays_away_ends_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_SILENCE_MAX_S", 0.0)

    class Gone(KnownSink):
        def _ask(self, call: Any) -> Any:
            raise DeadlineExceeded("no server answers")

    known = Gone(tmp_path)
    with pytest.raises(DeadlineExceeded, match="no server answers"):
        known.commit([known.staging.write(iter([BATCH]))], "w1")


def test_a_query_with_a_new_checkpoint_under_an_old_name_is_refused(tmp_path: Path) -> None:
    """The server takes its batches for those of the old query, and leaves them out."""

    class Remembering(KnownSink):
        def _ask(self, call: Any) -> Any:
            return replace(super()._ask(call), batch=7)

    known = Remembering(tmp_path, *[ImportState.COMPLETED] * 2)
    known.commit([known.staging.write(iter([BATCH]))], "query", 7)
    with pytest.raises(
        InvalidParameter, match=r"batch 0 of the streaming query query .* has batch 7.*stream_id"
    ):
        known.commit([known.staging.write(iter([BATCH]))], "query", 0)


def test_another_query_under_the_name_of_one_that_wrote_a_single_batch_is_refused(tmp_path: Path) -> None:
    """Its batch 0 is no repetition. Servers and connectors of former releases do not know the query."""

    class Remembering(KnownSink):
        query_id = "old"

        def _ask(self, call: Any) -> Any:
            return replace(super()._ask(call), batch=0, query_id=self.query_id)

    known = Remembering(tmp_path, *[ImportState.COMPLETED] * 4)
    staged = [Staged("", 0, "new"), Staged("a.parquet", 1, "new")]
    with pytest.raises(InvalidParameter, match=r"batch 0 of that name already by query old; .* query new\. "):
        known.commit(staged, "name", 0)
    assert known.asked[-1][-3:] == (0, "new", None)
    known.commit([replace(message, query_id="old") for message in staged], "name", 0)
    known.commit([replace(message, query_id="") for message in staged], "name", 0)
    known.query_id = ""
    known.commit(staged, "name", 0)


def test_a_commit_that_fails_says_why_and_leaves_no_file(tmp_path: Path) -> None:
    sink = KnownSink(tmp_path, ImportState.FAILED, reason="row 3: field v has 3 values")
    with pytest.raises(InvalidParameter, match=r"nothing of write w1 is in docs: row 3: field v"):
        sink.commit([sink.staging.write(iter([BATCH]))], "w1")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_row_that_does_not_fit_is_named_by_its_partition_of_the_frame(tmp_path: Path) -> None:
    sink = KnownSink(tmp_path, ImportState.FAILED)
    first, empty, third = (sink.staging.write(iter(batches)) for batches in ([BATCH], [], [BATCH]))
    sink.reason = f"{third.file}, row 3: field v has 3 values"
    with pytest.raises(InvalidParameter, match=r"in docs: partition 2 of the frame, row 3: field v"):
        sink.commit([first, empty, third], "w1")


def test_more_files_than_an_import_takes_are_named_in_a_list(tmp_path: Path) -> None:
    lists: list[list[str]] = []

    class Reading(KnownSink):
        def _ask(self, call: Any) -> Any:
            task = super()._ask(call)
            (name,) = self.asked[-1][3]
            lists.append((tmp_path / name).read_text().splitlines())
            return task

    files = [f"{n}.parquet" for n in range(IMPORT_FILES_MAX + 1)]
    sink = Reading(tmp_path, ImportState.PERSISTED)
    sink.commit([Staged(file, 1) for file in files], "w1")
    assert lists == [files]
    assert sink.asked[0][3][0].endswith(".files")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [], "the list is gone"
