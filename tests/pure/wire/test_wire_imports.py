"""Bulk import over the wire: what reaches the verbs, and what a client reads of a task."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_verbs import FakeVerbs
from wire_messages import Call, key_message, pairs, schema_bytes, vector_message

from elanus.core.ids import SegmentID
from elanus.core.imports import CsvFormat, Duplicates, ImportState, WriteMode
from elanus.proxy.wire.stubs import common_pb2


@pytest.fixture(autouse=True)
def books(call: Call) -> None:
    schema = schema_bytes(key_message(), vector_message())
    assert call("CreateCollection", collection_name="books", schema=schema).code == 0


def test_an_import_is_one_task_of_all_files(call: Call, verbs: FakeVerbs) -> None:
    answer = call("Import", collection_name="books", partition_name="p", files=["a.parquet", "b.parquet"])
    assert answer.status.code == 0
    (task_id,) = answer.tasks
    task = verbs.imports[task_id]
    assert (task.collection, task.partition, task.files) == ("books", "p", ("a.parquet", "b.parquet"))


def test_paths_may_begin_at_the_root_of_the_directory_for_imports(call: Call, verbs: FakeVerbs) -> None:
    (task_id,) = call("Import", collection_name="books", files=["/d/a.parquet", "b.parquet"]).tasks
    assert verbs.imports[task_id].files == ("d/a.parquet", "b.parquet")


@pytest.mark.parametrize(
    ("text", "timeout_ms"), [("300s", 300_000), ("1.5h", 5_400_000), ("1h45m", 6_300_000), ("500ms", 500)]
)
def test_an_import_may_have_a_timeout(text: str, timeout_ms: int, call: Call, verbs: FakeVerbs) -> None:
    options = pairs({"timeout": text})
    (task_id,) = call("Import", collection_name="books", files=["a.parquet"], options=options).tasks
    assert verbs.imports[task_id].timeout_ms == timeout_ms


@pytest.mark.parametrize("text", ["", "300", "s", "0s", "-3s", "3d", "3s and 4s"])
def test_a_timeout_that_is_no_duration_is_refused(text: str, call: Call) -> None:
    options = pairs({"timeout": text})
    refused = call("Import", collection_name="books", files=["a.parquet"], options=options)
    assert "parse timeout failed" in refused.status.reason


def test_the_state_of_a_task(call: Call, verbs: FakeVerbs) -> None:
    (task_id,) = call("Import", collection_name="books", files=["a.parquet"]).tasks
    waiting = call("GetImportState", task=task_id)
    assert (waiting.state, waiting.id, waiting.create_ts) == (
        common_pb2.ImportPending,
        task_id,
        1_700_000_000,
    )
    verbs.imports[task_id] = replace(
        verbs.imports[task_id],
        state=ImportState.COMPLETED,
        rows=7,
        segments=(SegmentID(5), SegmentID(6)),
        ended_ms=1_700_000_007_900,
    )
    done = call("GetImportState", task=task_id)
    assert (done.state, done.row_count, list(done.segment_ids)) == (common_pb2.ImportCompleted, 7, [5, 6])
    infos = {pair.key: pair.value for pair in done.infos}
    assert infos.pop("complete_time") == "2023-11-14T22:13:27Z"
    assert infos == {
        "files": "a.parquet",
        "collection": "books",
        "partition": "",
        "failed_reason": "",
        "progress_percent": "100",
    }


def test_how_far_a_task_is(call: Call, verbs: FakeVerbs) -> None:
    (task_id,) = call("Import", collection_name="books", files=["a.parquet"]).tasks
    shown = []
    for state, percent in [("PENDING", 0.0), ("STARTED", 50.0), ("PERSISTED", 0.0), ("COMPLETED", 0.0)]:
        verbs.imports[task_id] = replace(verbs.imports[task_id], state=ImportState[state], percent=percent)
        infos = {pair.key: pair.value for pair in call("GetImportState", task=task_id).infos}
        shown.append(infos["progress_percent"])
    assert shown == ["0", "45", "90", "100"]


def test_a_failed_task_has_its_reason(call: Call, verbs: FakeVerbs) -> None:
    (task_id,) = call("Import", collection_name="books", files=["a.parquet"]).tasks
    verbs.imports[task_id] = replace(verbs.imports[task_id], state=ImportState.FAILED, reason="row 7 is null")
    answer = call("GetImportState", task=task_id)
    assert answer.state == common_pb2.ImportFailed
    assert {pair.key: pair.value for pair in answer.infos}["failed_reason"] == "row 7 is null"


def test_options_name_the_import_and_say_what_becomes_of_rows_that_do_not_fit(
    call: Call, verbs: FakeVerbs
) -> None:
    options = pairs({"idempotency_key": "nightly 7", "on_error": "reject", "max_rejects": "5"})
    (task_id,) = call("Import", collection_name="books", files=["a.parquet"], options=options).tasks
    task = verbs.imports[task_id]
    assert (task.write_id, task.rejects_max) == ("nightly 7", 5)
    verbs.imports[task_id] = replace(task, state=ImportState.COMPLETED, rejected=2)
    infos = {pair.key: pair.value for pair in call("GetImportState", task=task_id).infos}
    assert (infos["rejected_rows"], infos["rejected_in"]) == ("2", f"rejects/{task_id}")
    (task_id,) = call(
        "Import", collection_name="books", files=["a.parquet"], options=pairs({"on_error": "reject"})
    ).tasks
    assert verbs.imports[task_id].rejects_max == 1000


@pytest.mark.parametrize("given", ["true", "True", "1", "false", "F", "0"])
def test_an_import_may_leave_its_commit_to_the_client(call: Call, verbs: FakeVerbs, given: str) -> None:
    options = pairs({"auto_commit": given})
    (task_id,) = call("Import", collection_name="books", files=["a.parquet"], options=options).tasks
    assert verbs.imports[task_id].auto_commit is (given in ("true", "True", "1"))
    verbs.imports[task_id] = replace(verbs.imports[task_id], state=ImportState.UNCOMMITTED)
    answer = call("GetImportState", task=task_id)
    assert answer.state == common_pb2.ImportStarted, "the RPC's clients know no number for it"
    assert {pair.key: pair.value for pair in answer.infos}["waits_for"] == "commit"


def test_the_format_of_csv_files(call: Call, verbs: FakeVerbs) -> None:
    formats = [
        ({}, CsvFormat(",", "")),
        ({"sep": ";"}, CsvFormat(";", "")),
        ({"nullkey": "NULL", "on_error": "reject"}, CsvFormat(",", "NULL")),
    ]
    for options, csv in formats:
        (task_id,) = call("Import", collection_name="books", files=["a.csv"], options=pairs(options)).tasks
        assert verbs.imports[task_id].csv == csv


@pytest.mark.parametrize(
    ("options", "mode", "rule"),
    [
        ({}, WriteMode.APPEND, Duplicates.KEEP),
        ({"mode": "insert", "duplicates": "first"}, WriteMode.APPEND, Duplicates.FIRST),
        ({"duplicates": "reject"}, WriteMode.APPEND, Duplicates.REJECT),
        ({"duplicates": "last", "on_error": "reject"}, WriteMode.UPSERT, Duplicates.LAST),
        ({"mode": "upsert"}, WriteMode.UPSERT, Duplicates.REJECT),
        ({"mode": "upsert", "duplicates": "first"}, WriteMode.UPSERT, Duplicates.FIRST),
    ],
)
def test_what_becomes_of_rows_with_one_key(
    call: Call, verbs: FakeVerbs, options: dict[str, str], mode: WriteMode, rule: Duplicates
) -> None:
    answer = call("Import", collection_name="books", files=["a.parquet"], options=pairs(options))
    task = verbs.imports[answer.tasks[0]]
    assert (task.mode, task.duplicates) == (mode, rule)
    verbs.imports[task.task_id] = replace(task, state=ImportState.COMPLETED, left_out=3)
    infos = {pair.key: pair.value for pair in call("GetImportState", task=task.task_id).infos}
    assert infos["duplicate_rows_left_out"] == "3"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "append"}, "mode is 'append': give insert or upsert"),
        ({"duplicates": "newest"}, "duplicates is 'newest': give keep, first, last, reject"),
        ({"mode": "upsert", "duplicates": "keep"}, "an upsert leaves one row of a key: give first, last or"),
        ({"idempotency_key": ""}, "idempotency_key has 0 characters: give 1 to 256"),
        ({"on_error": "skip"}, "on_error is 'skip': give fail or reject"),
        ({"max_rejects": "5"}, "max_rejects needs on_error=reject"),
        ({"on_error": "reject", "max_rejects": "0"}, "max_rejects is '0': give a number from 1 to 1000000"),
        ({"separator": ";"}, "the option separator of Import"),
        ({"auto_commit": "later"}, "auto_commit is 'later': give true or false"),
        ({"sep": ""}, "unsupported csv separator: sep is '': give one ASCII character"),
        ({"sep": ";;"}, "unsupported csv separator: sep is ';;'"),
        ({"sep": "\n"}, "unsupported csv separator"),
        ({"sep": '"'}, "unsupported csv separator"),
        ({"sep": "§"}, "unsupported csv separator"),
    ],
)
def test_options_that_are_none(call: Call, options: dict[str, str], message: str) -> None:
    status = call("Import", collection_name="books", files=["a.parquet"], options=pairs(options)).status
    assert status.code == 1100
    assert message in status.reason


def test_listing_tasks(call: Call) -> None:
    ids = [call("Import", collection_name="books", files=[f"{n}.parquet"]).tasks[0] for n in range(3)]
    assert [t.id for t in call("ListImportTasks").tasks] == ids
    assert [t.id for t in call("ListImportTasks", collection_name="books", limit=2).tasks] == ids[1:]
    assert call("ListImportTasks", collection_name="other").tasks == []
    assert call("ListImportTasks", limit=-1).status.code == 1100


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"options": pairs({"backup": "true"})}, "the option backup of Import is not supported"),
        ({"channel_names": ["x"]}, "rows go by the hash of their keys"),
        ({"clustering_info": b"x"}, "the field clustering_info of Import is not supported"),
    ],
)
def test_what_an_import_does_not_take(call: Call, fields: dict[str, object], message: str) -> None:
    status = call("Import", collection_name="books", files=["a.parquet"], **fields).status
    assert status.code == 1100
    assert message in status.reason


def test_a_task_that_is_not_there(call: Call) -> None:
    assert "import 5 is not known" in call("GetImportState", task=5).status.reason
