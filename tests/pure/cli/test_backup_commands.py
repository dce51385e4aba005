"""`elanus backup` and `elanus restore`: real files, and a server that only pins and takes over."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from fakes import collection as collection_of
from typer.testing import CliRunner, Result

from elanus.api.backups import BackupApi, BackupSource, ForeignRows, ServerContents, data_files, relocated
from elanus.api.connector import CollectionSnapshot, SnapshotLease
from elanus.api.snapshots import RestoreJob
from elanus.cli import backups as backups_module
from elanus.cli import restores as restores_module
from elanus.cli.app import app
from elanus.cli.backup_files import BackupFiles
from elanus.cli.options import EXIT_FAILED, EXIT_FOUND, EXIT_MISUSED
from elanus.cli.pinned_files import open_snapshot
from elanus.core.access import AccessPolicy, User
from elanus.core.access_backup import restored
from elanus.core.api_keys import ApiKey, digest_of, key_text
from elanus.core.catalog import Collection, Database
from elanus.core.errors import CollectionAlreadyExists, CollectionNotFound
from elanus.core.ids import BuildID, DatabaseID, FieldID, IndexID, PartitionID, SegmentID
from elanus.core.segments import BinlogFile, DeltaLog, IndexFile, SegmentManifest
from elanus.core.timestamps import Timestamp, compose
from elanus.proxy.access.guard import AllowAll
from elanus.proxy.calls import Calls
from elanus.proxy.wire.backups import BackupService
from elanus.proxy.wire.interfaces import interface_handler, interface_operations
from elanus.storage.copying import Copy, StoredFile, copy_object
from elanus.storage.local import LocalStore
from elanus.storage.paths import index_file_path
from elanus.storage.port import ObjectStore
from elanus.storage.snapshots import write_snapshot

NOON_MS = 1_769_860_800_000
MOMENT = compose(NOON_MS)
SHOP = Database(DatabaseID(7), "shop", Timestamp(5), {"k": "v"})


class Server:
    """Implements what `BackupService` asks of the verbs and of `Backups`, over files of its own."""

    def __init__(self, root: Path) -> None:
        self.store = LocalStore(root)
        self.segments: dict[str, list[SegmentManifest]] = {}
        self.collections: dict[str, Collection] = {}
        self.indexes: list[IndexFile] = []
        self.pinned: set[int] = set()
        self.received: dict[str, SnapshotLease] = {}
        self.moments: list[Timestamp] = []
        self.made: list[tuple[str, str]] = []
        self.aliases: list[tuple[str, str, str]] = []
        self.databases = ["default", "shop"]
        self.users: AccessPolicy | None = None
        self._id = 1000

    def next_id(self) -> int:
        self._id += 1
        return self._id

    def has(self, name: str, segments: int = 2, aliases: tuple[str, ...] = ()) -> None:
        number = self.next_id()
        one = replace(
            collection_of(), name=name, collection_id=number, created=compose(number), aliases=aliases
        )
        self.collections[name], self.segments[name] = one, []
        for _ in range(segments):
            self.grows(name)

    def grows(self, name: str) -> None:
        segment, one = self.next_id(), self.collections[name]
        insert = f"insert_log/{one.collection_id}/1/{segment}/a1-x.parquet"
        stats = f"stats_log/{one.collection_id}/1/{segment}/a1-x.json"
        self.store.put(insert, f"rows of {segment}".encode() * 100)
        self.store.put(stats, f"keys of {segment}".encode())
        size = self.store.head(insert).size_bytes
        file = BinlogFile(insert, 10, size, Timestamp(1), Timestamp(2))
        self.segments[name].append(
            SegmentManifest(
                SegmentID(segment),
                one.collection_id,
                PartitionID(1),
                one.vchannels[0],
                (file,),
                (stats,),
                Timestamp(0),
            )
        )

    def snapshot(self, name: str, moment: Timestamp) -> CollectionSnapshot:
        one = self.collections[name]
        path = f"delta_log/{one.collection_id}/{one.vchannels[0]}/a1-d.parquet"
        if not any(info.path == path for info in self.store.list("delta_log")):
            self.store.put(path, b"deletes")
        log = DeltaLog(one.vchannels[0], BinlogFile(path, 1, 7, Timestamp(1), Timestamp(2)))
        deltas = {one.vchannels[0]: (log,)}
        segments = tuple(self.segments[name])
        indexes = tuple(self.indexes)
        return CollectionSnapshot(
            one.collection_id, one.schema, moment, segments, deltas, collection=one, index_files=indexes
        )

    def builds(self, name: str) -> None:
        """Each of the segments gets an index file."""
        for number, manifest in enumerate(self.segments[name], 1):
            path = index_file_path(BuildID(number), 1, PartitionID(1), manifest.segment_id, "a1-index")
            self.store.put(path, f"index {number}".encode())
            self.indexes.append(
                IndexFile(
                    BuildID(number),
                    IndexID(1),
                    FieldID(1),
                    manifest.segment_id,
                    "HNSW",
                    "L2",
                    {},
                    path,
                    10,
                    7,
                    True,
                )
            )

    def pin(self, snapshot: CollectionSnapshot) -> SnapshotLease:
        pin_id = self.next_id()
        path = f"snapshots/{snapshot.collection_id}/a{pin_id}-s.json"
        write_snapshot(self.store, path, snapshot)
        self.pinned.add(pin_id)
        return SnapshotLease(pin_id, self.store.url, path, snapshot.read_ts, 1)

    # as `elanus.proxy.verbs.backups.Backups`

    def contents(self) -> ServerContents:
        found = (BackupSource("shop", c.name, c.collection_id, c.created) for c in self.collections.values())
        databases = (Database(DatabaseID(1), "default", Timestamp(0)), SHOP)
        return ServerContents(databases, tuple(found), self.next_id())

    def describe(self, _: str, name: str) -> ServerContents:
        if name not in self.collections:
            raise CollectionNotFound(f"collection not found[collection={name}]")
        contents = self.contents()
        return replace(contents, collections=tuple(c for c in contents.collections if c.name == name))

    def hold(self, _: str, name: str, number: int, moment: Timestamp, lease_ms: int) -> SnapshotLease:
        assert lease_ms == 24 * 3_600_000
        found = self.collections.get(name)
        if name == "leaving" or found is None or found.collection_id != number:
            raise CollectionNotFound(f"collection not found[collection={name}]")
        self.moments.append(moment)
        return self.pin(self.snapshot(name, moment or MOMENT))

    def release(self, snapshot_id: int) -> None:
        self.pinned.discard(snapshot_id)

    def receive(self, database: str, name: str, rows: ForeignRows) -> SnapshotLease:
        if name in self.collections:
            raise CollectionAlreadyExists(f"collection already exists[collection={name}]")
        if rows.key not in self.received:
            self.received[rows.key] = self.pin(relocated(rows.snapshot, 5_000 + 100 * self.next_id()))
        return self.received[rows.key]

    def complete(self, database: str, name: str, snapshot_id: int) -> RestoreJob:
        (lease,) = (one for one in self.received.values() if one.snapshot_id == snapshot_id)
        _, here = open_snapshot(lease)
        for path, _ in data_files(here):
            self.store.head(path)
        self.made.append((database, name))
        return RestoreJob(1, "", database, name, MOMENT, True, 1, 1)

    def place_of_pin(self, _: int) -> None: ...  # from here on as `elanus.proxy.api.verbs.Verbs`

    def access_policy(self) -> AccessPolicy:
        key = ApiKey("5f0c", "ann", digest_of(key_text("5f0c", "much")), 1)
        return AccessPolicy({"ann": User("ann", "hash", 1)}, keys={"5f0c": key})

    def restore_access(self, added: AccessPolicy) -> None:
        self.users = restored(self.users or AccessPolicy(), added, 10, 10)

    def list_databases(self) -> list[Database]:
        return [replace(SHOP, name=name) for name in self.databases]

    def create_database(self, name: str, properties: dict[str, str]) -> None:
        assert properties == {"k": "v"}
        self.databases.append(name)

    def has_collection(self, _: str, name: str) -> bool:
        return False

    def create_alias(self, database: str, name: str, alias: str) -> None:
        self.aliases.append((database, name, alias))


def served(server: Server) -> Iterator[str]:
    service = BackupService(server, server)  # type: ignore[arg-type]
    calls = Calls(interface_operations(BackupApi, service), AllowAll(), lambda *_: None)
    port = grpc.server(ThreadPoolExecutor(4))
    port.add_generic_rpc_handlers((interface_handler(BackupApi, calls),))
    number = port.add_insecure_port("127.0.0.1:0")
    port.start()
    yield f"http://127.0.0.1:{number}"
    port.stop(0).wait()


@pytest.fixture
def server(tmp_path: Path) -> Server:
    made = Server(tmp_path / "server")
    made.has("books", aliases=("b",))
    return made


@pytest.fixture
def uri(server: Server) -> Iterator[str]:
    yield from served(server)


def run(*arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def target_files(target: Path) -> dict[str, bytes]:
    return {str(f.relative_to(target)): f.read_bytes() for f in target.rglob("files/**/*") if f.is_file()}


def test_a_backup_is_of_one_moment_and_releases_what_it_pinned(
    server: Server, uri: str, tmp_path: Path
) -> None:
    server.has("films")
    server.has("leaving")
    server.has("late")
    server.collections["late"] = replace(server.collections["late"], created=compose(NOON_MS + 1))
    run("backup", tmp_path / "t", "--name", "one", "--uri", uri)
    assert server.moments == [0, MOMENT]
    assert server.pinned == set()
    backup = BackupFiles((tmp_path / "t").as_uri()).backup("")
    assert [(c.database, c.name, c.rows, c.files) for c in backup.collections] == [
        ("shop", "books", 20, 5),
        ("shop", "films", 20, 5),
    ]
    assert (backup.moment, backup.access) == (MOMENT, server.access_policy())
    assert len(target_files(tmp_path / "t")) == 10
    run("backup", tmp_path / "t", "--verify")
    assert "one" in run("backup", tmp_path / "t", "--list").output


def test_a_further_backup_copies_what_is_new(server: Server, uri: str, tmp_path: Path) -> None:
    target = tmp_path / "t"
    run("backup", target, "--name", "one", "--uri", uri)
    before = target_files(target)
    server.grows("books")
    run("backup", target, "--name", "two", "--collection", "books", "--database", "shop", "--uri", uri)
    after = target_files(target)
    assert len(after) == len(before) + 2
    files = BackupFiles(target.as_uri())
    first, second = (files.rows(files.backup(name).collections[0].path).files for name in ("one", "two"))
    assert [c.copied for name in ("one", "two") for c in files.backup(name).collections] == [5, 2]
    assert set(first) < set(second)
    assert files.backup("two").access is None
    refused = run("backup", target, "--name", "two", "--uri", uri, code=EXIT_FAILED)
    assert "use another --name" in refused.output


def test_a_deleted_backup_takes_what_no_other_one_has(server: Server, uri: str, tmp_path: Path) -> None:
    target, one = tmp_path / "t", ("--collection", "books", "--database", "shop")
    run("backup", target, "--name", "one", "--uri", uri)
    server.has("films")
    compacted = server.segments["books"].pop(0)
    server.grows("books")
    run("backup", target, "--name", "two", "--uri", uri)
    assert "2 files" in run("backup", target, "--delete", "one").output
    left = target_files(target)
    assert not any(path.endswith(compacted.insert_logs[0].path) for path in left)
    run("backup", target, "--verify")
    assert [backup.name for backup in BackupFiles(target.as_uri()).backups()] == ["two"]
    run("backup", target, "--name", "three", *one, "--uri", uri)
    run("backup", target, "--delete", "two")
    assert {path.split("/")[1].split("-")[0] for path in target_files(target)} == {
        str(server.collections["books"].collection_id)
    }
    run("backup", target, "--verify")
    run("backup", target, "--delete", "three")
    assert [file for file in target.rglob("*") if file.is_file()] == []


def test_a_damaged_and_a_missing_file_are_found_and_never_restored(
    server: Server, uri: str, tmp_path: Path
) -> None:
    target = tmp_path / "t"
    run("backup", target, "--name", "one", "--uri", uri)
    first, second, *_ = sorted(target.rglob("files/*/insert_log/**/*.parquet"))
    first.write_bytes(first.read_bytes()[:-1] + b"!")
    second.unlink()
    found = run("backup", target, "--verify", code=EXIT_FOUND).output
    assert f"{first.relative_to(target)} is damaged" in found
    assert f"{second.relative_to(target)} is missing" in found
    restored = run(
        "restore", target, "--collection", "books", "--database", "shop", "--as", "copy", "--uri", uri, code=1
    )
    assert (
        "is damaged" in restored.output or "is missing" in restored.output or second.name in restored.output
    )
    assert server.made == []


def index_contents(root: Path) -> list[bytes]:
    return sorted(f.read_bytes() for f in (root / "index_files").rglob("a*"))


def test_index_files_are_copied_once_verified_and_restored(server: Server, uri: str, tmp_path: Path) -> None:
    target, one = tmp_path / "t", ("--collection", "books", "--database", "shop", "--uri", uri)
    server.builds("books")
    run("backup", target, "--name", "one", *one)
    run("backup", target, "--name", "two", *one)
    assert [c.copied for b in BackupFiles(target.as_uri()).backups() for c in b.collections] == [7, 0]
    run("backup", target, "--verify")
    other = Server(tmp_path / "other")
    for place in served(other):
        run("restore", target, "--uri", place)
    assert (
        index_contents(tmp_path / "other") == index_contents(tmp_path / "server") == [b"index 1", b"index 2"]
    )
    run("backup", target, "--delete", "one")
    run("backup", target, "--verify")
    run("backup", target, "--delete", "two")
    assert target_files(target) == {}


def test_index_files_can_be_left_out(server: Server, uri: str, tmp_path: Path) -> None:
    server.builds("books")
    run("backup", tmp_path / "bare", "--without-indexes", "--uri", uri)
    assert not any("index_files" in path for path in target_files(tmp_path / "bare"))
    run("backup", tmp_path / "t", "--uri", uri)
    for number, (source, options) in enumerate((("bare", ()), ("t", ("--without-indexes",)))):
        other = Server(tmp_path / f"other{number}")
        for place in served(other):
            run("restore", tmp_path / source, *options, "--uri", place)
        assert other.made == [("shop", "books")]
        assert index_contents(tmp_path / f"other{number}") == []


def test_damaged_and_missing_index_files_stop_no_restore(server: Server, uri: str, tmp_path: Path) -> None:
    target = tmp_path / "t"
    server.grows("books")
    server.builds("books")
    run("backup", target, "--uri", uri)
    first, second, _ = sorted(target.rglob("files/*/index_files/**/a1-index"))
    first.write_bytes(b"indeed 1")
    second.unlink()
    found = run("backup", target, "--verify", code=EXIT_FOUND).output
    assert f"{first.relative_to(target)} is damaged" in found
    assert f"{second.relative_to(target)} is missing" in found
    other = Server(tmp_path / "other")
    for place in served(other):
        said = run("restore", target, "--uri", place).output
    assert "2 index files of the backup are damaged or missing" in said.replace("\n", " ")
    assert index_contents(tmp_path / "other") == [b"index 3"]


def test_an_index_file_that_the_server_lost_stops_no_backup(server: Server, uri: str, tmp_path: Path) -> None:
    server.builds("books")
    server.store.delete(server.indexes[0].path)
    said = run("backup", tmp_path / "t", "--uri", uri).output
    assert "1 index files are gone" in said
    run("backup", tmp_path / "t", "--verify")
    assert len([path for path in target_files(tmp_path / "t") if "index_files" in path]) == 1


def test_an_interrupted_backup_is_no_backup_and_the_next_one_uses_it(
    server: Server, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, written = tmp_path / "t", []

    def interrupted(source: ObjectStore, to: ObjectStore, copy: Copy) -> StoredFile:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(copy.to)
        return copy_object(source, to, copy)

    monkeypatch.setattr(backups_module, "threads_for", lambda _: 1)
    with monkeypatch.context() as patch:
        patch.setattr(backups_module, "copy_object", interrupted)
        assert "interrupted" in run("backup", target, "--uri", uri, code=EXIT_FAILED).output
    assert server.pinned == set()
    assert BackupFiles(target.as_uri()).backups() == []
    run("backup", target, "--name", "two", "--uri", uri)
    assert [c.copied for c in BackupFiles(target.as_uri()).backup("two").collections] == [3]
    run("backup", target, "--verify")


def test_a_restore_to_another_server(server: Server, uri: str, tmp_path: Path) -> None:
    target = tmp_path / "t"
    run("backup", target, "--uri", uri)
    other = Server(tmp_path / "other")
    other.databases = ["default"]
    for place in served(other):
        run("restore", target, "--users", "--uri", place)
        assert (other.made, other.databases) == ([("shop", "books")], ["default", "shop"])
        assert (other.users, other.aliases) == (server.access_policy(), [("shop", "books", "b")])
        run("restore", target, "--collection", "books", "--database", "shop", "--as", "copy", "--uri", place)
        assert other.made[1:] == [("shop", "copy")]
        assert len(other.aliases) == 1, "an alias is its collection's"
    source = sorted(
        f.read_bytes()
        for p in ("insert_log", "stats_log", "delta_log")
        for f in (tmp_path / "server" / p).rglob("a*")
    )
    copies = sorted(
        f.read_bytes()
        for p in ("insert_log", "stats_log", "delta_log")
        for f in (tmp_path / "other" / p).rglob("a*")
    )
    assert copies == sorted(source * 2)


def test_an_interrupted_restore_continues(
    server: Server, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, written = tmp_path / "t", []
    run("backup", target, "--uri", uri)
    arguments: tuple[Any, ...] = (
        "restore",
        target,
        "--collection",
        "books",
        "--database",
        "shop",
        "--as",
        "copy",
        "--users",
    )

    def counted(source: ObjectStore, to: ObjectStore, copy: Copy) -> StoredFile:
        if len(written) == 3:
            written.append("the fourth")
            raise KeyboardInterrupt
        written.append(copy.to)
        return copy_object(source, to, copy)

    monkeypatch.setattr(restores_module, "threads_for", lambda _: 1)
    monkeypatch.setattr(restores_module, "copy_object", counted)
    assert "the same command continues" in run(*arguments, "--uri", uri, code=EXIT_FAILED).output
    assert server.made == []
    run(*arguments, "--uri", uri)
    assert server.made == [("shop", "copy")]
    assert len(written) == 6, "three before, two after"
    assert len(set(written)) == 6


def test_names_that_are_taken_stay_as_they_are(server: Server, uri: str, tmp_path: Path) -> None:
    run("backup", tmp_path / "t", "--uri", uri)
    assert "already exists" in run("restore", tmp_path / "t", "--uri", uri).output
    one = ("--collection", "books", "--database", "shop")
    assert "already exists" in run("restore", tmp_path / "t", *one, "--uri", uri, code=EXIT_FAILED).output
    assert server.made == []


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("backup", "--list", "--verify"), EXIT_MISUSED, "give one of them"),
        (("backup", "--name", "../x"), EXIT_FAILED, "use letters"),
        (("backup", "--collection", "none"), EXIT_FAILED, "collection=none"),
        (("backup", "--verify"), EXIT_FAILED, "there is no backup in"),
        (("restore", "--as", "x"), EXIT_FAILED, "say which with --collection"),
        (("restore",), EXIT_FAILED, "there is no backup in"),
    ],
)
def test_what_cannot_be_done(
    uri: str, tmp_path: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    command, *rest = arguments
    assert text in run(command, tmp_path / "t", *rest, "--uri", uri, code=code).output


def test_a_collection_or_a_backup_that_is_not_there(server: Server, uri: str, tmp_path: Path) -> None:
    run(
        "backup", tmp_path / "t", "--name", "one", "--collection", "books", "--database", "shop", "--uri", uri
    )
    for options, text in (
        (("--collection", "none"), "but shop.books"),
        (("--backup", "two"), "but one"),
        (("--users",), "has no users"),
    ):
        assert text in run("restore", tmp_path / "t", *options, "--uri", uri, code=EXIT_FAILED).output


def test_files_of_another_machine_are_said_to_be_missing(server: Server, uri: str, tmp_path: Path) -> None:
    server.store = LocalStore(tmp_path / "server")
    server.pin = lambda _: SnapshotLease(1, (tmp_path / "nowhere").as_uri(), "snapshots/1/a.json", MOMENT, 1)  # type: ignore[method-assign]
    said = run("backup", tmp_path / "t", "--uri", uri, code=EXIT_FAILED).output
    assert "which this machine does not have" in said
