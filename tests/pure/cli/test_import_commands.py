"""`elanus import`: links in the import directory, a bar, Ctrl-C; over a server that only plays along."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import grpc
import pytest
import trustme
from rich.console import Console
from typer.testing import CliRunner

from elanus.api.connector import ConnectorApi
from elanus.cli import imports
from elanus.cli.app import app
from elanus.cli.imports import ImportFailed, Wanted, found_files, import_files, staged
from elanus.cli.server_calls import Server
from elanus.core.errors import CollectionNotFound, InvalidParameter, Unavailable
from elanus.core.ids import CollectionID, PartitionID, TaskID
from elanus.core.imports import Duplicates, ImportState, ImportTask, WriteMode
from elanus.proxy.access.guard import AllowAll
from elanus.proxy.api.imports import ImportOptions
from elanus.proxy.calls import Calls
from elanus.proxy.wire.connector import Connector
from elanus.proxy.wire.interfaces import interface_handler, interface_operations
from elanus.server.announce import Announcement, announce

TASK = ImportTask(TaskID(7), CollectionID(4), "docs", PartitionID(5), "_default", (), 1000)
RUNNING = replace(TASK, state=ImportState.STARTED, percent=50.0)
QUIET = Console(quiet=True)


class FakeConnector:
    """Verbs that import. Each look at the task shows the next of ``states``; the last one stays."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.states = [TASK, RUNNING, replace(TASK, state=ImportState.COMPLETED, rows=5)]
        self.asked: list[tuple[str, str, str, tuple[str, ...]]] = []
        self.linked: list[bytes] = []
        self.looked = threading.Event()
        self.cancelled = 0
        self.is_committed = False
        self.restarts = 0
        """How many looks at the task are not answered."""
        self.fails_over: int | None = None
        """Which of the files is what the import fails over."""

    def start_import(
        self,
        database: str,
        collection: str,
        partition: str,
        files: tuple[str, ...],
        options: ImportOptions,
    ) -> ImportTask:
        self.options = options
        if collection == "nothing":
            raise CollectionNotFound("collection not found[collection=nothing]")
        self.asked.append((database, collection, partition, files))
        self.linked = [(self.directory / file).read_bytes() for file in files]
        if self.fails_over is not None:
            reason = f"{files[self.fails_over]}, row 7 is null"
            self.states = [RUNNING, replace(TASK, state=ImportState.FAILED, reason=reason)]
        return self.states[0]

    def import_task(self, task_id: TaskID) -> ImportTask:
        assert task_id == TASK.task_id
        self.looked.set()
        if self.restarts:
            self.restarts -= 1
            raise Unavailable("datacoord cannot be reached: it restarts")
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def describe_collection(self, database: str, name: str, collection_id: CollectionID) -> NoReturn:
        raise CollectionNotFound("it is not looked at")

    def cancel_import(self, task_id: TaskID) -> None:
        self.cancelled += 1
        if self.is_committed:
            raise InvalidParameter("import 7 is Persisted: it cannot become Failed")
        self.states = [replace(TASK, state=ImportState.FAILED, reason="cancelled")]


@pytest.fixture
def connector(tmp_path: Path) -> FakeConnector:
    (tmp_path / "import").mkdir()
    return FakeConnector(tmp_path / "import")


@pytest.fixture
def address(connector: FakeConnector) -> Iterator[str]:
    with serving(connector) as address:
        yield address


@contextmanager
def serving(connector: FakeConnector, credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    """The interface on a gRPC server that answers in threads, as a client port does."""
    target = Connector(connector, None, connector.directory.as_uri())  # type: ignore[arg-type]
    calls = Calls(interface_operations(ConnectorApi, target), AllowAll(), lambda *_: None)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((interface_handler(ConnectorApi, calls),))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some rows.v2.parquet"
    path.write_bytes(b"rows")
    return path


def run(address: str, *files: Path, collection: str = "docs") -> ImportTask:
    return import_files(Server(address), Wanted(files, "default", collection, "p"), QUIET)


def test_files_are_linked_for_the_time_of_the_import(
    connector: FakeConnector, address: str, file: Path
) -> None:
    assert run(address, file, file).rows == 5
    ((database, collection, partition, names),) = connector.asked
    assert (database, collection, partition) == ("default", "docs", "p")
    assert [name.partition("/")[2] for name in names] == [
        "0000-some rows_v2.parquet",
        "0001-some rows_v2.parquet",
    ]
    assert connector.linked == [b"rows", b"rows"]
    assert list(connector.directory.iterdir()) == []
    assert file.exists()


def test_a_failed_import_shows_its_reason(connector: FakeConnector, address: str, file: Path) -> None:
    other = file.with_name("other.parquet")
    other.write_bytes(b"rows")
    connector.fails_over = 1
    with pytest.raises(ImportFailed) as failed:
        run(address, file, other)
    assert str(failed.value) == f"{other}, row 7 is null", "its own name, not the link's"
    assert list(connector.directory.iterdir()) == []
    with pytest.raises(ImportFailed, match="collection not found"):
        run(address, file, collection="nothing")


def test_a_server_that_restarts_goes_on_with_the_import(
    connector: FakeConnector, address: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So its links stay."""
    connector.restarts = 2
    assert run(address, file).rows == 5
    connector.restarts = 1
    connector.states = [RUNNING]
    monkeypatch.setattr(imports, "_SILENCE_MAX_S", 0.0)
    with pytest.raises(ImportFailed, match="it restarts"):
        run(address, file)


@pytest.fixture(autouse=True)
def the_usual_interrupt() -> Iterator[None]:
    """Ctrl-C as a program of its own has it: a Spark session in this process leaves a handler of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(connector: FakeConnector) -> threading.Thread:
    """Ctrl-C as soon as the import is seen to run."""

    def press() -> None:
        connector.looked.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def test_ctrl_c_cancels(connector: FakeConnector, address: str, file: Path) -> None:
    connector.states = [RUNNING]
    thread = interrupted(connector)
    with pytest.raises(ImportFailed, match="cancelled"):
        run(address, file)
    thread.join()
    assert connector.cancelled == 1
    assert list(connector.directory.iterdir()) == []


def test_ctrl_c_after_the_commit_comes_too_late(connector: FakeConnector, address: str, file: Path) -> None:
    connector.states = [replace(TASK, state=ImportState.PERSISTED, rows=5)]
    connector.is_committed = True
    thread = interrupted(connector)
    assert run(address, file).rows == 5
    thread.join()
    assert connector.cancelled == 1


def test_files_and_directories_that_are_not_here(tmp_path: Path, file: Path) -> None:
    with (
        pytest.raises(ImportFailed, match="no directory of this machine"),
        staged([file], "s3://bucket/import"),
    ):
        pass
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImportFailed, match="has no file to import"):
        found_files([tmp_path / "empty"])
    absent = [tmp_path / "absent.parquet"]
    with (
        pytest.raises(ImportFailed, match=r"absent.parquet: no such file"),
        staged(absent, tmp_path.as_uri()),
    ):
        pass


def test_links_that_a_killed_command_left_are_removed_a_week_later(tmp_path: Path, file: Path) -> None:
    names = ("elanus-import-old", "elanus-import-young", "elanus-import-mine", "mine")
    old, young, filled, other = (tmp_path / name for name in names)
    for directory in (old, young, filled, other):
        directory.mkdir()
        (directory / "rows.parquet").symlink_to(file)
    (filled / "own.parquet").write_bytes(b"rows")
    for directory in (old, filled, other):
        os.utime(directory, (0, 0))
    with staged([file], tmp_path.as_uri()) as (name,):
        assert (tmp_path / name).read_bytes() == b"rows"
        assert not old.exists()
    assert (young / "rows.parquet").exists()
    assert (other / "rows.parquet").exists()
    assert (filled / "own.parquet").exists(), "no link, so it is somebody's"
    assert file.exists()


def test_the_command(connector: FakeConnector, address: str, file: Path, tmp_path: Path) -> None:
    known = Announcement(version="1", pid=os.getpid(), address=address, observe_url="")
    announce(tmp_path, known)
    command = ["import", str(file), "--collection", "docs", "--data-dir", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stdout) == (0, "5 rows imported into docs\n")
    connector.states = [replace(TASK, state=ImportState.FAILED, reason="row 7 is null")]
    failed = CliRunner().invoke(app, command)
    assert failed.exit_code == 1
    assert "nothing was imported: row 7 is null" in failed.stderr
    nowhere = CliRunner().invoke(app, [*command, "--tls-ca", str(tmp_path / "absent.pem")])
    assert nowhere.exit_code == 1
    assert "absent.pem cannot be read" in nowhere.stderr
    alone = CliRunner().invoke(app, [*command, "--tls-server-name", "db"])
    assert alone.exit_code == 2
    assert "tls_server_name" in alone.stderr
    odd = CliRunner().invoke(app, [*command, "--uri", "ftp://db"])
    assert odd.exit_code == 2
    assert "expected the form" in odd.stderr
    nobody = CliRunner().invoke(app, [*command[:-1], str(tmp_path / "import")])
    assert nobody.exit_code == 1
    assert "no server is running on" in nobody.stderr


def test_the_command_over_tls(connector: FakeConnector, file: Path, tmp_path: Path) -> None:
    ca = trustme.CA()
    cert = ca.issue_cert("elanus.example")
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    pair = (cert.private_key_pem.bytes(), cert.cert_chain_pems[0].bytes())
    with serving(connector, grpc.ssl_server_credentials([pair])) as address:
        announce(tmp_path, Announcement(version="1", pid=os.getpid(), address=address, observe_url=""))
        command = ["import", str(file), "--collection", "docs", "--data-dir", str(tmp_path)]
        tls = ["--tls-ca", str(tmp_path / "ca.pem"), "--tls-server-name", "elanus.example"]
        for where in (command, ["import", str(file), "--collection", "docs", "--uri", f"https://{address}"]):
            done = CliRunner().invoke(app, [*where, *tls])
            assert (done.exit_code, done.stdout) == (0, "5 rows imported into docs\n")
        plain = CliRunner().invoke(app, command)
    assert plain.exit_code == 1
    assert "it speaks TLS, and this process does not: name the CA" in plain.stderr
    assert "--tls-ca" in plain.stderr


def test_a_directory_stands_for_its_files_and_options_reach_the_server(
    address: str, connector: FakeConnector, tmp_path: Path
) -> None:
    rows = tmp_path / "rows" / "deep"
    rows.mkdir(parents=True)
    for name in ("b.parquet", "a.jsonl", "notes.txt"):
        (rows / name).write_text(name)
    wanted = Wanted(
        [tmp_path / "rows"], "default", "docs", "", key="nightly 7", rejects_max=5, duplicates="last"
    )
    import_files(Server(address), wanted, QUIET)
    assert connector.linked == [b"a.jsonl", b"b.parquet"]
    assert connector.options == ImportOptions("nightly 7", 5, WriteMode.UPSERT, Duplicates.LAST)
