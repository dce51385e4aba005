"""The first steps of a server: its limit of open files, and a durable data directory."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from elanus.cli.quick_imports import quick_imports
from elanus.log.files import FileLog
from elanus.proxy.wire.connection_limit import accepted_max
from elanus.server.data_dir import DataDir
from elanus.server.open_files import check_room_for_spark, connections_for, http_connections_for
from elanus.server.startup import CannotStart
from elanus.server.threads_allowed import check_room_for_threads, limits_of_threads
from elanus.storage.local import LocalStore
from elanus.storage.port import StorageFailed

LIMIT = """
import resource
from elanus.server.open_files import raise_open_files_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))
print(raise_open_files_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be() -> None:
    done = subprocess.run([sys.executable, "-c", LIMIT], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["256", "256"]
    assert "few open files allowed" in done.stdout + done.stderr


SERVE = """
import resource, sys
from pathlib import Path
from elanus.server.settings import Settings
from elanus.server.standalone import serve
from elanus.server.startup import CannotStart
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
try:
    serve(Settings(data_dir=Path(sys.argv[1])))
except CannotStart as error:
    print(error)
"""


def test_a_server_whose_spark_could_not_start_is_refused_before_it_touches_anything(tmp_path: Path) -> None:
    """Spark alone has more than 300 files open: such a server would take rows and never flush them."""
    data_dir = tmp_path / "data"
    command = [sys.executable, "-c", SERVE, str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "256 files open, and Spark needs at least 512" in done.stdout
    assert "LimitNOFILE" in done.stdout
    assert not data_dir.exists()


ON_A_FULL_DISK = """
import os, sys
from elanus.core.errors import DiskFull
from elanus.meta.sqlite import SqliteMeta
from elanus.server.settings_load import load
from elanus.server.standalone import serve
from elanus.server.startup import CannotStart
async def full(*_):
    raise DiskFull("no room left for the metadata; free disk space, then retry")
SqliteMeta.txn = full
off = {f"{name}.enabled": False for name in ("http", "metrics", "pipeline")}
try:
    serve(load(None, {"data_dir": sys.argv[1], "proxy.port": 0, **off}))
except CannotStart as error:
    print("cannot start:", error, flush=True)
os._exit(0)
"""


def test_a_server_whose_disk_is_full_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "cannot start: no room left for the metadata; free disk space" in done.stdout, done.stderr


WITHOUT_SPARK = """
import asyncio, resource, sys
from pathlib import Path
from elanus.server.settings import Settings
from elanus.server.standalone import serve
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
asyncio.run = lambda work: work.close() or print("served")
serve(Settings.model_validate({"data_dir": Path(sys.argv[1]), "pipeline": {"enabled": False}}))
"""


def test_a_server_without_a_pipeline_needs_no_room_for_spark(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_SPARK, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.endswith("served\n")


def test_a_server_that_may_start_few_threads_is_refused_with_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC's library ends a process that is refused one of its first threads."""
    start, started = threading.Thread.start, []

    def start_ten(thread: threading.Thread) -> None:
        if len(started) == 10:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_ten)
    with pytest.raises(CannotStart, match=r"10 more threads, and it needs at least 128, 96 of .*TasksMax"):
        check_room_for_threads(1, with_spark=True)
    assert not any(thread.is_alive() for thread in started)
    with pytest.raises(CannotStart, match=r"it needs at least 32: .*ulimit -u"):
        check_room_for_threads(1, with_spark=False)
    monkeypatch.undo()
    check_room_for_threads(2, with_spark=True)


def test_the_limits_of_threads_that_are_known_are_named(tmp_path: Path) -> None:
    group = tmp_path / "groups" / "a" / "b"
    group.mkdir(parents=True)
    for name, text in {
        "b/pids.max": "max",
        "b/pids.current": "7",
        "pids.max": "64",
        "pids.current": "60",
    }.items():
        (group.parent / name).write_text(f"{text}\n")
    (tmp_path / "cgroup").write_text("0::/a/b\n")
    first, *_ = limits_of_threads(tmp_path / "cgroup", tmp_path / "groups")
    assert first == f"{group.parent / 'pids.max'} is 64, of which 60 are taken"


@pytest.mark.parametrize("limit", [512, 1 << 20, resource.RLIM_INFINITY])
def test_spark_has_room_under_these_limits(limit: int) -> None:
    check_room_for_spark(limit)


def test_connections_leave_a_seventh_of_the_open_files_for_everything_else() -> None:
    assert connections_for(1024, 1) == 640
    assert connections_for(1024, 2) == 320
    assert connections_for(64, 64) == 1
    for limit in (512, 1024, 65_536):
        grpc, http = connections_for(limit, 1), http_connections_for(limit, 1)
        assert grpc is not None
        assert http is not None
        assert accepted_max(grpc) + accepted_max(http) < limit * 6 / 7
    assert connections_for(resource.RLIM_INFINITY, 1) is None


def test_running_out_of_open_files_names_the_limit_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "fsync", refuse)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with pytest.raises(StorageFailed, match=rf"one: no more files .* {limit} open.*LimitNOFILE"):
        LocalStore(tmp_path).put("one", b"data")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    real = os.fsync

    def record(descriptor: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return found


def test_every_directory_of_a_new_data_directory_is_durable(tmp_path: Path, synced: list[str]) -> None:
    root = tmp_path / "var" / "elanus"
    data_dir = DataDir(root)
    data_dir.close()
    assert {str(tmp_path), str(root.parent), str(root)} <= set(synced)
    assert synced.index(str(root / "VERSION.new")) < len(synced) - 1 - synced[::-1].index(str(root))
    before = len(synced)
    DataDir(root).close()
    assert len(synced) == before, "nothing is new the second time"


def test_the_names_of_the_log_and_of_the_store_are_durable(tmp_path: Path, synced: list[str]) -> None:
    LocalStore(tmp_path / "a" / "files").put("one", b"data")
    assert {str(tmp_path), str(tmp_path / "a")} <= set(synced)
    synced.clear()
    log = FileLog(tmp_path / "b" / "log")
    assert {str(tmp_path), str(tmp_path / "b")} <= set(synced)
    asyncio.run(log.close())


IDLE = """
import sys
import elanus.cli.app
from elanus.cli.quick_imports import quick_imports
with quick_imports():
    from elanus.storage.without_pandas import keep_pandas_out
    keep_pandas_out()
    import elanus.server.settings_load
    import elanus.server.standalone
    import elanus.server.http_front
print("standalone:", *sys.modules)
import elanus.server.standalone_pipeline
print("data node:", *sys.modules)
"""
NOT_AT_REST = {
    "aetcd": "the metadata is a file",
    "faiss": "until a collection is loaded",
    "lark": "until a filter comes",
    "ml_dtypes": "until a vector of bfloat16 comes",
    "nats": "the log is files",
    "obstore": "the object store is a directory",
    "pandas": "no value is a pandas object",
    "psutil": "Spark's workers are counted where they run",
    "py4j": "Spark is in a process of its own",
    "pyspark": "Spark is in a process of its own",
    "elanus.datanode.imports": "until files are imported",
    "pyarrow._s3fs": "objects in S3 are read by obstore",
    "pyarrow.dataset": "a file is read by its columns",
    "rich": "the log is plain",
    "scipy": "faiss and numpy compute",
    "shapely": "until a geometry comes",
    "starlette": "until the HTTP port is opened, after that of gRPC",
    "tantivy": "until a text comes",
    "uvicorn": "until the HTTP port is opened, after that of gRPC",
    "yaml": "until there is a file of settings",
}


def test_a_server_at_rest_has_not_imported_what_only_some_requests_need() -> None:
    done = subprocess.run([sys.executable, "-c", IDLE], capture_output=True, text=True, check=True)
    standalone, data_node = (set(line.split()) for line in done.stdout.splitlines())
    assert not data_node & set(NOT_AT_REST)
    assert "elanus.querynode.node" in standalone
    late = {"elanus.server.pipeline_role", "elanus.datanode.node", "elanus.pipeline.jobs"}
    assert not standalone & late, "clients are answered before these are imported"
    assert late <= data_node


def test_nothing_is_collected_during_the_imports_of_a_server() -> None:
    try:
        with quick_imports():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("place", ["log/by-dev-rootcoord-dml_0", "files/insert_log"])
@pytest.mark.parametrize("is_empty", [False, True])
def test_rows_without_metadata_are_not_taken_for_garbage(tmp_path: Path, place: str, is_empty: bool) -> None:
    DataDir(tmp_path).close()
    (tmp_path / "log" / "LOCK").touch()
    DataDir(tmp_path).close()  # nothing has been written yet
    (tmp_path / place).mkdir()
    if is_empty:
        (tmp_path / "meta.db").touch()
    for _ in range(2):  # the lock is released
        with pytest.raises(CannotStart, match=r"meta\.db is missing or empty, but .* has data: restore"):
            DataDir(tmp_path)
    (tmp_path / "meta.db").write_bytes(b"metadata")
    DataDir(tmp_path).close()


def test_a_part_of_the_data_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "VERSION").mkdir()
    for _ in range(2):
        with pytest.raises(CannotStart, match=rf"{tmp_path}/VERSION cannot be used: Is a directory"):
            DataDir(tmp_path)


def test_files_of_serving_processes_that_there_were_before_are_removed(tmp_path: Path) -> None:
    DataDir(tmp_path).close()
    for name in ("querynode", "querynode-3", "classes"):
        (tmp_path / "scratch" / name).mkdir()
        (tmp_path / "scratch" / name / "left.columns").touch()
    DataDir(tmp_path).close()
    assert sorted(path.name for path in (tmp_path / "scratch").iterdir()) == ["classes", "querynode"]


@pytest.mark.parametrize("content", [b"", b"\xff", b"x1"])
def test_a_damaged_version_file_is_named(tmp_path: Path, content: bytes) -> None:
    DataDir(tmp_path).close()
    (tmp_path / "VERSION").write_bytes(content)
    with pytest.raises(CannotStart, match="VERSION is damaged: restore it"):
        DataDir(tmp_path)


STARTED = """
import asyncio, sys
from elanus.server import standalone
from elanus.server.cluster import run
from elanus.server.settings import Settings

def began(serving):
    serving.close()
    print("anyio" in sys.modules)
    return 0

asyncio.run = began
{start}
"""


@pytest.mark.parametrize(
    "start", ["standalone.serve(Settings())", 'run.check = print\nrun.run(Settings(), ("proxy",))']
)
def test_what_parses_its_own_source_is_imported_before_there_are_threads(start: str) -> None:
    code = STARTED.format(start=start)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True", done.stdout
