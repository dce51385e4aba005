"""The SQLite store: one process at a time, full disks, foreign files, and kills."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from elanus.core.errors import DiskFull
from elanus.meta import sqlite
from elanus.meta.port import MetaFailed, MetaInUse, Put, UnknownMetaFormat
from elanus.meta.sqlite import SqliteMeta

OTHER_PROCESS = """
import sys
from pathlib import Path
from elanus.meta.port import MetaInUse
from elanus.meta.sqlite import SqliteMeta
try:
    SqliteMeta(Path(sys.argv[1]))
except MetaInUse as error:
    print(error)
"""

WRITER = """
import asyncio, os, sys
from pathlib import Path
from elanus.meta.port import Put
from elanus.meta.sqlite import SqliteMeta

async def main():
    store = SqliteMeta(Path(sys.argv[1]))
    number = len(await store.list(""))
    while True:
        await store.txn([Put(f"{number:08d}", b"x" * 500)])
        os.write(1, f"{number}\\n".encode())
        number += 1

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    store = SqliteMeta(path)
    command = [sys.executable, "-c", OTHER_PROCESS, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert str(path) in said.stdout
    with pytest.raises(MetaInUse, match=str(path)):
        SqliteMeta(path)
    asyncio.run(store.close())
    asyncio.run(SqliteMeta(path).close())


def test_a_full_disk_is_an_error_clients_know_and_applies_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteMeta(tmp_path / "meta.db", fsync=False)

    async def run() -> None:
        await store.txn([Put("a", b"1")])
        await asyncio.get_running_loop().run_in_executor(
            store._thread, store._connection.execute, "PRAGMA max_page_count=20"
        )
        with pytest.raises(DiskFull, match="free disk space"):
            await store.txn([Put("a", b"2"), Put("b", bytes(500_000))])
        found = await store.get("a")
        assert found is not None
        assert found.value == b"1"
        await store.txn([Put("c", b"small")])
        await store.close()

    asyncio.run(run())


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(UnknownMetaFormat, match="is not a metadata store"):
        SqliteMeta(tmp_path / "text")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(UnknownMetaFormat, match="format 0"):
        SqliteMeta(tmp_path / "other.db")


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    asyncio.run(SqliteMeta(tmp_path / "meta.db").close())
    connection = sqlite3.connect(tmp_path / "meta.db")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(UnknownMetaFormat, match="format 99"):
        SqliteMeta(tmp_path / "meta.db")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    asyncio.run(SqliteMeta(path).close())
    path.write_bytes(path.read_bytes()[:100] + bytes(4000))
    with pytest.raises(
        MetaFailed, match=r"the metadata in .*meta\.db cannot be used: database disk image is mal"
    ):
        SqliteMeta(path)


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    for acknowledgements in (5, 40):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            last = [int(child.stdout.readline()) for _ in range(acknowledgements)][-1]
            child.send_signal(signal.SIGKILL)

        async def check(last: int) -> None:
            store = SqliteMeta(path)
            keys = [int(key) for key, _ in await store.list("")]
            assert keys == list(range(len(keys)))
            assert len(keys) > last
            await store.close()

        asyncio.run(check(last))


def test_an_error_of_the_file_is_a_fault_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_db: sqlite3.Connection, _key: str) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    async def use() -> None:
        meta = SqliteMeta(tmp_path / "meta.db")
        with pytest.raises(MetaFailed, match=r"meta\.db cannot be used: disk I/O error"):
            await meta.get("key")
        await meta.close()

    monkeypatch.setattr(sqlite, "_get", fail)
    asyncio.run(use())
