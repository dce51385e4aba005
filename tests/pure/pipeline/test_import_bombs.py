"""Files that hold far more than their size says: an import fails by itself and takes bounded memory."""

from __future__ import annotations

import io
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_import_files import SCHEMA, plan

from elanus.core.errors import InsufficientMemory, InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.schema import DataType, FieldSchema
from elanus.pipeline import import_files, import_json, import_memory, import_survey
from elanus.pipeline.import_files import import_rows, survey
from elanus.pipeline.import_job import import_task
from elanus.pipeline.import_plan import FileRows
from elanus.pipeline.import_rejects import Rejects
from elanus.pipeline.import_sources import tables
from elanus.pipeline.import_survey import SurveyPlan, named_files, survey_task
from elanus.pipeline.task_memory import bounded_memory
from elanus.storage.objects import open_store

KEY = SCHEMA.fields[0]
TEXTS = replace(
    SCHEMA, fields=(KEY, FieldSchema(FieldID(102), "t", DataType.VARCHAR, max_length=100, nullable=True))
)
MB = 1 << 20


def put(tmp_path: Path, name: str, content: bytes, size_bytes: int = 0) -> str:
    """Write a file, with a hole up to its size if it has one."""
    file = tmp_path / "import" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        out.write(content)
        if size_bytes:
            out.truncate(size_bytes)
    return name


def surveyed(tmp_path: Path, *names: str) -> list[FileRows]:
    return survey(open_store((tmp_path / "import").as_uri()), tables(names), TEXTS)


def npy(header: str, version: int = 1) -> bytes:
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes((version, 0)) + length + header.encode()


def test_a_text_that_a_small_file_holds_many_times_is_no_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 4000
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * MB]))
    content = io.BytesIO()
    pq.write_table(pa.table({"id": np.arange(rows), "t": texts}), content, store_schema=False)
    assert len(content.getvalue()) < 4 * MB
    files = surveyed(tmp_path, put(tmp_path, "a.parquet", content.getvalue()))
    monkeypatch.setattr(import_memory, "_READING_BYTES", 200 * MB)
    with pytest.raises(InsufficientMemory, match=r"reading a\.parquet takes more than .*imports\.task_mb"):
        import_task(plan(tmp_path, files, TEXTS, bytes_max=MB))
    assert not list((tmp_path / "files").rglob("*.parquet")), "nothing half-imported"


def test_the_survey_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [put(tmp_path, name, b'{"id":1}\n') for name in ("a.jsonl", "b.jsonl")]
    bounded: list[str] = []

    @contextmanager
    def noted(more_bytes: int, parts: Sequence[FileRows]) -> Iterator[None]:
        assert more_bytes == import_survey.SURVEY_BYTES
        bounded.extend(part.file for part in parts)
        yield

    monkeypatch.setattr(import_survey, "bounded_import", noted)
    survey_task(SurveyPlan(TEXTS, tuple(tables(names)), (tmp_path / "import").as_uri()))
    assert bounded == names


def test_a_bound_ends_with_its_task() -> None:
    # Far more than earlier tests can have left free in this process. The pages are not touched.
    size_bytes = 4096 * MB
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with (
        pytest.raises(InsufficientMemory, match=r"it takes more than the 16 MB .*: do this"),
        bounded_memory(16 * MB, "it", "do this"),
    ):
        np.empty(size_bytes, np.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert np.empty(size_bytes, np.uint8).nbytes == size_bytes


NUMPY = {
    "a header of 3 GB": (
        b"\x93NUMPY\x02\x00" + (3 << 30).to_bytes(4, "little"),
        3 << 31,
        "header of 3221225472",
    ),
    "version 3": (npy("{'descr':'<i8','fortran_order':False,'shape':(1,)}\n", 3), 0, r"version 3\.0"),
    "a width of 2^40": (
        npy("{'descr':'<f4','fortran_order':False,'shape':(0,1099511627776)}\n"),
        0,
        "row of 4398046511104 bytes is too large",
    ),
    "a text of 1.6 GB": (
        npy("{'descr':'<U400000000','fortran_order':False,'shape':(1,)}\n"),
        1_600_001_000,
        "row of 1600000000 bytes is too large",
    ),
}


@pytest.mark.parametrize("case", NUMPY)
def test_numpy_files_with_headers_that_promise_too_much(tmp_path: Path, case: str) -> None:
    content, size_bytes, why = NUMPY[case]
    with pytest.raises(InvalidParameter, match=rf"^a/id\.npy .*{why}"):
        surveyed(tmp_path, put(tmp_path, "a/id.npy", content, size_bytes))


def test_a_line_without_an_end_is_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_json, "ROW_BYTES_MAX", 1000)
    fits = b'{"id":1,"t":"x"}' + b" " * 900 + b"\n"
    files = surveyed(
        tmp_path, put(tmp_path, "a.jsonl", fits, 0), put(tmp_path, "b.jsonl", fits + b"{" * 1100)
    )
    source = open_store((tmp_path / "import").as_uri())
    assert sum(rows.num_rows for rows in import_rows(plan(tmp_path, files[:1], TEXTS), source)) == 1
    with pytest.raises(InvalidParameter, match=r"b\.jsonl has a line of more than 1000 bytes"):
        list(import_rows(plan(tmp_path, files[1:], TEXTS), source))


def test_a_row_of_a_list_that_is_no_object_may_be_left_out(tmp_path: Path) -> None:
    files = surveyed(tmp_path, put(tmp_path, "a.json", b'[{"id":1}, 7, {"id":2}]'))
    source, rejects = open_store((tmp_path / "import").as_uri()), Rejects(1)
    found = list(import_rows(plan(tmp_path, files, TEXTS), source, rejects))
    assert [key for rows in found for key in rows.column("id").to_pylist()] == [1, 2]
    assert len(rejects) == 1


def test_a_file_of_any_size_has_no_more_groups_than_a_plan_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_files, "GROUPS_MAX", 3)
    with pytest.raises(InvalidParameter, match=r"a\.jsonl has more than 3 row groups"):
        surveyed(tmp_path, put(tmp_path, "a.jsonl", b"", 1 << 30))


def test_a_list_of_files_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    name = put(tmp_path, "a.files", b"", 1 << 40)
    with pytest.raises(
        InvalidParameter, match=r"list of files a\.files has 1099511627776 bytes; it may have"
    ):
        named_files(open_store((tmp_path / "import").as_uri()), [name])


def test_long_texts_are_read_in_small_batches(tmp_path: Path) -> None:
    """Rows that are much longer than usual, in a row group that says so."""
    rows = 300
    texts = pa.array([f"{n:06}" * 170_000 for n in range(rows)], pa.large_string())
    file = tmp_path / "import" / "a.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"id": np.arange(rows), "t": texts}), file, use_dictionary=False)
    (table,) = surveyed(tmp_path, "a.parquet")
    source = open_store((tmp_path / "import").as_uri())
    given = import_files.given_rows([table], source, TEXTS, rows)
    assert max(len(batch.rows) for batch in given) < 100


def test_an_error_about_a_million_columns_is_a_short_text(tmp_path: Path) -> None:
    content = io.BytesIO()
    pq.write_table(pa.table({f"column{n}": pa.array([1]) for n in range(3000)}), content)
    with pytest.raises(InvalidParameter, match=r"column63 and 2936 more") as raised:
        surveyed(tmp_path, put(tmp_path, "a.parquet", content.getvalue()))
    assert len(raised.value.message) < 2000
