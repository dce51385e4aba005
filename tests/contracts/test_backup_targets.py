"""Backups in a directory and in a bucket: what is put there is listed, verified, shared and deleted."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from elanus.api.connector import CollectionSnapshot
from elanus.cli.backup_files import BackedUp, BackedUpRows, Backup, BackupFiles, path_of
from elanus.core.catalog import Collection, Database
from elanus.core.consistency import ConsistencyLevel
from elanus.core.ids import CollectionID, DatabaseID, FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.storage.copying import Copy, copy_object
from elanus.storage.objects import open_store
from elanus.storage.port import CorruptObject, ObjectExists

SCHEMA = CollectionSchema(
    "books",
    (
        FieldSchema(FieldID(100), "pk", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=2),
    ),
)
DEFAULT = Database(DatabaseID(1), "default", Timestamp(1), {})


@pytest.fixture(params=["directory", pytest.param("bucket", marks=pytest.mark.services)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "bucket":
        found: str = request.getfixturevalue("s3_server").store_url(uuid.uuid4().hex)
        return found
    return (tmp_path / "backups").as_uri()


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return tmp_path / "server"


def make(files: BackupFiles, server: Path, name: str, paths: dict[str, bytes], moment: int) -> Backup:
    """Copy the files of a collection as `elanus backup` does, without those that are there."""
    strong = ConsistencyLevel.STRONG
    collection = Collection(
        CollectionID(7), DatabaseID(1), "books", SCHEMA, (), {}, (), strong, created=Timestamp(5)
    )
    store = open_store(server.as_uri())
    stored = []
    for path, content in paths.items():
        with suppress(ObjectExists):  # of the earlier backup
            store.put(path, content)
        stored.append(copy_object(store, files.store, Copy(path, path_of(collection, path))))
    snapshot = CollectionSnapshot(CollectionID(7), SCHEMA, Timestamp(moment), (), {}, collection=collection)
    at = files.put_rows(name, 0, BackedUpRows("default", snapshot, tuple(stored)))
    size = sum(file.size_bytes for file in stored)
    of = BackedUp("default", "books", CollectionID(7), Timestamp(5), at, 1, len(stored), size, len(stored))
    backup = Backup(name, Timestamp(moment), "1", 9, (DEFAULT,), (of,))
    files.put(backup)
    return backup


FIRST = {"insert_log/7/1/1/a.parquet": b"rows" * 1000, "stats_log/7/1/1/a.json": b"keys"}
SECOND = {**FIRST, "insert_log/7/1/2/b.parquet": b"more rows"}


def test_backups_are_listed_in_order_and_verified(url: str, server: Path) -> None:
    files = BackupFiles(url)
    assert files.backups() == []
    first = make(files, server, "first", FIRST, 10)
    second = make(files, server, "second", SECOND, 20)
    again = BackupFiles(url)
    assert again.backups() == [first, second]
    assert (again.backup(""), again.backup("first")) == (second, first)
    read: list[int] = []
    assert again.verify(second, read.append) == []
    assert sum(read) == second.size_bytes


def test_damage_is_found_and_not_restored(url: str, server: Path, tmp_path: Path) -> None:
    files = BackupFiles(url)
    backup = make(files, server, "one", FIRST, 10)
    rows = files.rows(backup.collections[0].path)
    damaged, missing = rows.files
    files.store.delete(damaged.path)
    files.store.put(damaged.path, b"other" * 1000)
    files.store.delete(missing.path)
    wrong = files.verify(backup, lambda _: None)
    assert [line.split(" is ")[1].split(":")[0] for line in wrong] == ["damaged", "missing"]
    other = open_store((tmp_path / "other").as_uri())
    with pytest.raises(CorruptObject):
        copy_object(files.store, other, Copy(damaged.path, "a", damaged.checksum))
    assert list(other.list("")) == []


def test_a_deleted_backup_leaves_the_files_of_others(url: str, server: Path) -> None:
    files = BackupFiles(url)
    first = make(files, server, "first", FIRST, 10)
    second = make(files, server, "second", SECOND, 20)
    assert files.delete(first) == 0
    assert files.verify(second, lambda _: None) == []
    assert files.delete(second) == len(SECOND)
    assert list(files.store.list("")) == []
