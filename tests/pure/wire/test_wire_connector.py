"""The calls of Elanus' own clients over the port of Milvus clients, as the programs make them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest
from fake_verbs import FakeVerbs
from wire_calls import LEASE, FakeSnapshots, Recorder, calls_of

from elanus.api.connector import ConnectorApi
from elanus.core.errors import CollectionNotFound, Internal, InvalidParameter, NotSupported
from elanus.core.ids import TaskID
from elanus.core.imports import ImportTask, WriteMode
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import ObjectType
from elanus.proxy.wire.server import MilvusServer
from elanus.rpc.carrier import RpcChannel
from elanus.rpc.tracing import trace_id


class Port:
    """A port for clients; ``counted`` is what its metrics count."""

    def __init__(self) -> None:
        self.verbs = FakeVerbs()
        self.snapshots = FakeSnapshots()
        self.guard = Recorder()
        self.counted: list[tuple[str, int]] = []
        calls = calls_of(
            self.verbs, lambda rpc, code, _: self.counted.append((rpc, code)), self.guard, self.snapshots
        )
        self.server = MilvusServer(calls, "127.0.0.1", 0, max_workers=4)
        self.address = f"127.0.0.1:{self.server.start()}"

    def ask(self, call: Callable[[ConnectorApi], Awaitable[Any]], timeout_s: float | None = 10.0) -> Any:
        async def run() -> Any:
            channel = RpcChannel(self.address)
            try:
                return await call(channel.client(ConnectorApi, timeout_s=timeout_s))
            finally:
                await channel.close()

        return asyncio.run(run())


@pytest.fixture
def own() -> Iterator[Port]:
    port = Port()
    yield port
    port.server.stop(grace_s=0)


def test_a_snapshot_goes_to_its_verb_with_the_time_that_is_left(own: Port) -> None:
    assert own.ask(lambda server: server.snapshot("shop", "books", ("p",), 4000)) == LEASE
    (taken,) = own.snapshots.taken
    assert taken[:4] == ("shop", "books", ("p",), 4000)
    assert 0 < taken[4] < 11  # gRPC rounds a deadline up when it sends it
    own.ask(lambda server: server.snapshot("shop", "books", (), 4000), timeout_s=None)
    assert own.snapshots.taken[1][4] is None
    own.ask(lambda server: server.release(3))
    assert own.snapshots.released == [3]
    assert own.counted == [
        ("ConnectorApi.snapshot", 0),
        ("ConnectorApi.snapshot", 0),
        ("ConnectorApi.release", 0),
    ]


def test_an_import_goes_to_the_verbs_of_the_rpcs(own: Port) -> None:
    assert own.ask(lambda server: server.import_directory()) == "file:///import"
    with pytest.raises(CollectionNotFound):
        own.ask(lambda server: server.write_schema("default", "books", "", WriteMode.UPSERT))
    with pytest.raises(CollectionNotFound):
        own.ask(lambda server: server.write_target("default", "books", "", WriteMode.UPSERT))
    with pytest.raises(CollectionNotFound):
        own.ask(lambda server: server.start_import("default", "books", "", ("a.parquet",), {}))
    with pytest.raises(CollectionNotFound):
        own.ask(lambda server: server.write_files("default", "books", "", ("a.parquet",), "w1"))
    for wrong in ("", "w" * 257):
        with pytest.raises(InvalidParameter, match="write_id has"):
            own.ask(lambda server, wrong=wrong: server.write_files("default", "books", "", (), wrong))
    with pytest.raises(InvalidParameter):
        own.ask(lambda server: server.import_task(TaskID(77)))
    assert own.counted == [
        ("ConnectorApi.import_directory", 0),
        ("ConnectorApi.write_schema", CollectionNotFound.code),
        ("ConnectorApi.write_target", CollectionNotFound.code),
        ("ConnectorApi.start_import", CollectionNotFound.code),
        ("ConnectorApi.write_files", CollectionNotFound.code),
        ("ConnectorApi.write_files", InvalidParameter.code),
        ("ConnectorApi.write_files", InvalidParameter.code),
        ("ConnectorApi.import_task", InvalidParameter.code),
    ]


def test_the_guard_is_asked_about_each_call(own: Port) -> None:
    calls: list[Callable[[ConnectorApi], Awaitable[Any]]] = [
        lambda server: server.snapshot("shop", "books", (), 4000),
        lambda server: server.start_import("shop", "books", "", ("a.parquet",), {}),
        lambda server: server.write_schema("shop", "books", "", WriteMode.APPEND),
        lambda server: server.write_target("shop", "books", "", WriteMode.APPEND),
        lambda server: server.write_files("shop", "books", "", ("a.parquet",), "w1"),
        lambda server: server.cancel_import(TaskID(1)),
        lambda server: server.release(3),
    ]
    own.guard.refused = ("PrivilegeQuery", "PrivilegeImport", "PrivilegeUnpinSnapshotData")
    for call in calls:
        with pytest.raises(NotSupported, match="is refused"):
            own.ask(call)
    assert [asked[1:] for asked in own.guard.asked] == [
        ("PrivilegeQuery", ObjectType.COLLECTION, "shop", ("books",)),
        ("PrivilegeImport", ObjectType.COLLECTION, "shop", ("books",)),
        ("PrivilegeImport", ObjectType.COLLECTION, "shop", ("books",)),
        ("PrivilegeImport", ObjectType.COLLECTION, "shop", ("books",)),
        ("PrivilegeImport", ObjectType.COLLECTION, "shop", ("books",)),
        ("PrivilegeImport", ObjectType.COLLECTION, "*", ()),  # of an import that nobody knows
        ("PrivilegeUnpinSnapshotData", ObjectType.COLLECTION, "default", ()),  # of a pin that has ended
    ]
    assert own.snapshots.taken == own.snapshots.released == []


def test_a_defect_names_its_trace_and_nothing_of_itself(own: Port, logged: list[Any]) -> None:
    seen: list[str] = []

    def broken(task_id: int) -> ImportTask:
        seen.append(trace_id())
        raise ZeroDivisionError("inner detail")

    own.verbs.import_task = broken  # type: ignore[method-assign]
    with pytest.raises(Internal) as failed:
        own.ask(lambda server: server.import_task(TaskID(1)))
    assert failed.value.message.endswith(f"[trace_id={seen[0]}]")
    assert "inner detail" not in failed.value.message
    assert [line["rpc"] for line in logged if line["log_level"] == "error"] == ["ConnectorApi.import_task"]


@pytest.mark.parametrize("sent", [["shop", "books", [], "soon"], ["shop"], {"database": "shop"}, 5])
def test_arguments_of_other_types_are_refused_before_the_guard_is_asked(sent: Any) -> None:
    guard = Recorder()
    calls = calls_of(FakeVerbs(), guard=guard)
    reply = calls.answer("ConnectorApi.snapshot", msgspec.msgpack.encode(sent), Caller())
    kind, text = msgspec.msgpack.decode(reply[1:])
    assert kind == "InvalidParameter"
    assert text.startswith("the arguments of ConnectorApi.snapshot are of other types")
    assert guard.asked == []
