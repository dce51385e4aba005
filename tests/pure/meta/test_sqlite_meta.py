"""The SQLite store: one process at a time, full disks, foreign files, and kills."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from elanus.core.errors import DiskFull
from elanus.meta import sqlite
from elanus.meta.port import DamagedMeta, Delete, MetaFailed, MetaInUse, Put, UnknownMetaFormat
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

ROUNDS = 400
"""Damaged copies of a file."""

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


def test_a_start_on_a_full_disk_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(sqlite, "check_all", fail)
    with pytest.raises(DiskFull, match=r"meta\.db; free disk space"):
        SqliteMeta(tmp_path / "meta.db")


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
        DamagedMeta, match=r"the metadata in .*meta\.db is damaged \(database disk image is mal.*backup"
    ):
        SqliteMeta(path)


async def written(path: Path, count: int = 200) -> None:
    store = SqliteMeta(path, fsync=False)
    for first in range(0, count, 50):
        await store.txn(
            [Put(f"segment/{n:05d}", f'{{"rows":{n}}}'.encode()) for n in range(first, first + 50)]
        )
    await store.close()


def test_a_record_with_a_changed_byte_is_named(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    asyncio.run(written(path))
    content = path.read_bytes()
    path.write_bytes(content.replace(b'{"rows":123}', b'{"rows":124}'))
    with pytest.raises(DamagedMeta, match=r"meta\.db is damaged at the record 'segment/00123'.*backup"):
        SqliteMeta(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entry WHERE key = 'segment/00100'",
        "UPDATE counter SET revision = revision - 1",
        "INSERT INTO leased VALUES ('segment/00100')",
    ],
)
def test_what_is_missing_or_older_is_noticed(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "meta.db"
    asyncio.run(written(path))
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(DamagedMeta, match=r"records are missing, or older than others.*backup"):
        SqliteMeta(path)


def test_damage_after_the_opening_is_noticed_when_the_record_is_read(tmp_path: Path) -> None:
    async def run() -> None:
        store = SqliteMeta(tmp_path / "meta.db", fsync=False)
        await store.txn([Put("a", b"1")])
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(store._thread, store._connection.execute, "UPDATE entry SET value = x'32'")
        with pytest.raises(DamagedMeta, match="at the record 'a'"):
            await store.get("a")
        with pytest.raises(DamagedMeta, match="at the record 'a'"):
            await store.list("")
        await store.close()

    asyncio.run(run())


@pytest.mark.slow
def test_no_damage_of_a_byte_yields_other_records_than_were_written(tmp_path: Path) -> None:
    """Either the byte is in no record, or the file is refused."""
    path = tmp_path / "meta.db"
    asyncio.run(written(path))
    good = path.read_bytes()
    chance = random.Random(1)
    outcomes = {"refused": 0, "whole": 0}

    async def listed() -> list[tuple[str, bytes]]:
        store = SqliteMeta(path, fsync=False)
        try:
            return [(key, found.value) for key, found in await store.list("")]
        finally:
            await store.close()

    whole = asyncio.run(listed())
    for _ in range(ROUNDS):
        at = chance.randrange(len(good))
        damaged = bytearray(good)
        damaged[at : at + 4] = chance.randbytes(4)
        path.write_bytes(damaged)
        for left in tmp_path.glob("meta.db-*"):
            left.unlink()
        try:
            assert asyncio.run(listed()) == whole, f"at byte {at}"
            outcomes["whole"] += 1
        except (MetaFailed, UnknownMetaFormat):
            outcomes["refused"] += 1
    assert outcomes["refused"] > 100


def test_a_file_without_checksums_gets_them(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    asyncio.run(written(path))
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE entry DROP COLUMN checksum")
        connection.execute("ALTER TABLE counter DROP COLUMN digest")
        connection.execute("PRAGMA user_version=2")
    connection.close()

    async def upgraded() -> None:
        for _ in range(2):
            store = SqliteMeta(path, fsync=False)
            assert len(await store.list("segment/")) == 200
            await store.txn([Delete("segment/00001"), Put("segment/00001b", b"{}")])
            await store.txn([Delete("segment/00001b"), Put("segment/00001", b"{}")])
            await store.close()

    asyncio.run(upgraded())


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
    def fail(*_: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    async def use() -> None:
        meta = SqliteMeta(tmp_path / "meta.db")
        with pytest.raises(MetaFailed, match=r"meta\.db cannot be used: disk I/O error"):
            await meta.get("key")
        await meta.close()

    monkeypatch.setattr(sqlite, "_get", fail)
    asyncio.run(use())
