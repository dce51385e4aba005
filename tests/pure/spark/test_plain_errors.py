"""The text that a Spark worker reports of an error, and the check of a write before its tasks run."""

from __future__ import annotations

import io
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.util import handle_worker_exception

from elanus.core.errors import DeadlineExceeded, InvalidParameter
from elanus.spark.asking import ask
from elanus.spark.options import parse_options
from elanus.spark.plain_errors import plain_errors
from elanus.spark.sink import Staging

_HIDE = "SPARK_HIDE_TRACEBACK"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, as one that Spark started. The variable is as before afterwards."""
    monkeypatch.setenv(_HIDE, "")
    monkeypatch.setattr(
        sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None), raising=False
    )


def reported(error: Exception) -> str:
    """The text that a worker sends to the JVM of an error that the connector raises."""
    out = io.BytesIO()
    try:
        with plain_errors():
            raise error
    except (InvalidParameter, KeyError) as raised:
        handle_worker_exception(raised, out)
    return out.getvalue()[8:].decode()


@pytest.mark.usefixtures("worker")
def test_a_worker_reports_an_error_of_elanus_by_its_sentence() -> None:
    assert reported(InvalidParameter("k is 0")) == "elanus.core.errors.InvalidParameter: k is 0\n"


@pytest.mark.usefixtures("worker")
def test_a_worker_reports_a_defect_with_its_traceback() -> None:
    assert reported(KeyError("segment")).startswith("Traceback")


def test_elsewhere_nothing_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_HIDE, raising=False)
    assert reported(InvalidParameter("k is 0")).startswith("Traceback")


@pytest.mark.parametrize("url", ["/no/scheme", "ftp://elsewhere", "file:///proc/nothing"])
def test_an_import_directory_that_cannot_be_written(url: str) -> None:
    with pytest.raises(InvalidParameter, match=f"import directory {url} cannot be written from here.*option"):
        Staging(url).check()


def test_the_check_of_an_import_directory_leaves_no_file(tmp_path: Path) -> None:
    staging = Staging(tmp_path.as_uri())
    staging.check()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    written = staging.write(iter([pa.record_batch({"id": [1]})]))
    assert (tmp_path / written.file).is_file()


@pytest.mark.parametrize("wrong", ["0", "-1", "soon", "nan", "601"])
def test_a_connect_s_that_is_no_time(wrong: str) -> None:
    with pytest.raises(InvalidParameter, match=f"connect_s is '{wrong}': give a number of seconds"):
        parse_options({"collection": "docs", "connect_s": wrong})


def test_a_server_that_is_missing_is_said_within_connect_s() -> None:
    options = parse_options({"collection": "docs", "uri": "http://127.0.0.1:1", "connect_s": "0.2"})
    with pytest.raises(DeadlineExceeded, match=r"no server answers at 127\.0\.0\.1:1 within 0\.2 s"):
        ask(options, lambda server: server.import_directory())
