"""`elanus snapshot`, `elanus clone` and `elanus undrop`, against a client port that only plays along."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from typer.testing import CliRunner

from elanus.api.connector import ConnectorApi
from elanus.api.gc import GcReport, HeldFiles
from elanus.api.snapshots import RestoreJob, SnapshotView
from elanus.cli.app import app
from elanus.cli.gc import render
from elanus.cli.options import EXIT_FAILED
from elanus.core.errors import CollectionNotFound
from elanus.core.timestamps import Timestamp, compose
from elanus.proxy.access.guard import AllowAll
from elanus.proxy.calls import Calls
from elanus.proxy.wire.connector import Connector
from elanus.proxy.wire.interfaces import interface_handler, interface_operations

NOON_MS = 1_769_860_800_000
VIEW = SnapshotView("daily", "all", "books", ("_default",), compose(NOON_MS), "file:///s", 2048)


class FakeVerbs:
    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def create_snapshot(self, *arguments: object) -> None:
        *named, timeout_s = arguments
        assert timeout_s
        self.asked.append(("create", *named))

    def describe_snapshot(self, *_: object) -> SnapshotView:
        return VIEW

    def list_snapshots(self, *_: object) -> list[str]:
        return ["daily"]

    def drop_snapshot(self, *arguments: object) -> None:
        self.asked.append(("drop", *arguments))

    def restore_snapshot(self, *arguments: object) -> RestoreJob:
        self.asked.append(("restore", *arguments))
        return RestoreJob(1, "daily", "default", "copy", compose(NOON_MS), True, 1, 1)

    def clone_collection(self, *arguments: object) -> RestoreJob:
        self.asked.append(("clone", *arguments))
        return RestoreJob(1, "", "default", "copy", compose(NOON_MS), True, 1, 1)

    def undrop_collection(self, database: str, collection: str, target: str) -> RestoreJob:
        if collection != "books":
            raise CollectionNotFound(f"collection not found[collection={collection}]")
        self.asked.append(("undrop", database, collection, target))
        return RestoreJob(1, "", "default", target or collection, compose(NOON_MS), True, 1, 1)


@pytest.fixture
def verbs() -> FakeVerbs:
    return FakeVerbs()


@pytest.fixture
def uri(verbs: FakeVerbs) -> Iterator[str]:
    target = Connector(verbs, None, "")  # type: ignore[arg-type]
    calls = Calls(interface_operations(ConnectorApi, target), AllowAll(), lambda *_: None)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((interface_handler(ConnectorApi, calls),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop(0).wait()


def test_snapshots(verbs: FakeVerbs, uri: str) -> None:
    run = CliRunner().invoke
    made = run(app, ["snapshot", "create", "books", "daily", "--description", "all", "--uri", uri])
    assert made.exit_code == 0, made.output
    listed = run(app, ["snapshot", "list", "books", "--uri", uri])
    for shown in (made, listed):
        assert "daily" in shown.output
        assert "2026-01-31" in shown.output
    restored = run(app, ["snapshot", "restore", "books", "daily", "copy", "--uri", uri])
    assert "copy holds the rows as of 2026-01-31 12:00:00.000 UTC" in restored.output
    run(app, ["snapshot", "drop", "books", "daily", "--uri", uri])
    assert verbs.asked == [
        ("create", "default", "books", "daily", "all"),
        ("restore", "default", "books", "daily", "default", "copy"),
        ("drop", "default", "books", "daily"),
    ]


@pytest.mark.parametrize(
    ("as_of", "moment"),
    [
        ("", 0),
        ("2026-01-31T12:00:00", compose(NOON_MS)),
        ("2026-01-31T13:00:00+01:00", compose(NOON_MS)),
        ("445644811931746304", 445644811931746304),
    ],
)
def test_a_clone_is_of_now_or_of_a_moment(verbs: FakeVerbs, uri: str, as_of: str, moment: int) -> None:
    done = CliRunner().invoke(app, ["clone", "books", "copy", "--as-of", as_of, "--uri", uri])
    assert done.exit_code == 0, done.output
    assert verbs.asked == [("clone", "default", "books", "default", "copy", Timestamp(moment))]


def test_what_is_no_moment_and_what_was_not_dropped(verbs: FakeVerbs, uri: str) -> None:
    run = CliRunner().invoke
    wrong = run(app, ["clone", "books", "copy", "--as-of", "yesterday", "--uri", uri])
    assert wrong.exit_code == EXIT_FAILED
    assert "yesterday is no moment" in wrong.output
    back = run(app, ["undrop", "books", "--to", "again", "--uri", uri])
    assert "again holds the rows" in back.output
    missing = run(app, ["undrop", "shelf", "--uri", uri])
    assert missing.exit_code == EXIT_FAILED
    assert "collection not found" in missing.output
    assert verbs.asked == [("undrop", "default", "books", "again")]


def test_a_report_of_garbage_collection_shows_what_is_held() -> None:
    held = (HeldFiles("snapshot daily", 7, 0, 0), HeldFiles("a reader", 8, NOON_MS, 0))
    report = GcReport(0, 1, False, "", (), (), 0, 0, held=held)
    table, _ = render(report, {7: "shop.books", 8: "8"}.__getitem__)
    lines = [line.split(maxsplit=3) for line in str(table).splitlines()[2:]]
    assert lines == [
        ["shop.books", "-", "released_or_dropped", "snapshot daily"],
        ["8", "-", "2026-01-31_12:00:00_UTC", "a reader"],
    ]
