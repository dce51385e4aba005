"""A serving process answers reads itself; all else, and what fails there, the main process answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from console_client import books
from fake_verbs import FakeVerbs
from wire_calls import calls_of, observe_nothing
from wire_messages import pairs, search_request

from elanus.api.connector import ConnectorApi
from elanus.core.errors import NotReady, PermissionDenied
from elanus.core.timestamps import Timestamp
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.guard import AllowAll, Guard
from elanus.proxy.access.permission import ObjectType
from elanus.proxy.calls import Calls
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.interfaces import interface_paths
from elanus.proxy.wire.operations import milvus_operations
from elanus.proxy.wire.passing import READS, MainProcess, PassingGuard, PassingOperation
from elanus.proxy.wire.server import MilvusServer
from elanus.proxy.wire.stubs import SERVICE, milvus_pb2

Answers = list[tuple[str, int]]


class Kept:
    """Keeps the callers of all calls."""

    def __init__(self, refused: str = "") -> None:
        self.callers: list[Caller] = []
        self.refused = refused

    def allow(
        self,
        caller: Caller,
        privilege: str,
        object_type: ObjectType,
        database: str,
        object_names: tuple[str, ...],
    ) -> None:
        self.callers.append(caller)
        if self.refused and self.refused in object_names:
            raise PermissionDenied("no")


class Pair:
    """A main process at a local socket, and a serving process in front of it."""

    def __init__(self, scratch: Path, guard: Guard | None = None) -> None:
        self.verbs, self.reading = FakeVerbs(), FakeVerbs()
        self.guard = Kept()
        self.answers: Answers = []
        self.answers_here: Answers = []
        self.written: list[tuple[str, Timestamp]] = []
        calls = calls_of(self.verbs, lambda rpc, code, _: self.answers.append((rpc, code)), self.guard)
        local = f"unix:{scratch / 'verbs.sock'}"
        self._main = MilvusServer(calls, local, 0, max_workers=4)
        self._main.start()
        operations = milvus_operations(milvus_families(self.reading, "STANDALONE"))
        reads = Calls(
            (PassingOperation(operation) for operation in operations if operation.name in READS),
            PassingGuard(guard or AllowAll()),
            lambda rpc, code, _: self.answers_here.append((rpc, code)),
        )
        self.main = MainProcess(local, lambda *written: self.written.append(written))
        self._server = MilvusServer(reads, "127.0.0.1", 0, max_workers=4, main=self.main)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self._server.start()}")

    def call(self, rpc: str, request: Any, **options: Any) -> bytes:
        send = self.channel.unary_unary(f"/{SERVICE.full_name}/{rpc}")
        answer: bytes = send(request.SerializeToString(), **options)
        return answer

    def close(self) -> None:
        self.channel.close()
        self._server.stop(0)
        self.main.close()
        self._main.stop(0)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def search(name: str = "books") -> milvus_pb2.SearchRequest:
    return milvus_pb2.SearchRequest(collection_name=name)


def raising(error: Exception) -> Callable[..., Any]:
    def read(*_: object) -> Any:
        raise error

    return read


def test_a_read_that_fails_here_is_answered_there_and_counted_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason does not matter: a collection that is not loaded here, a defect."""
    for error in (NotReady("not loaded here"), ZeroDivisionError()):
        monkeypatch.setattr(pair.reading, "collection", raising(error))
        answer = milvus_pb2.SearchResults.FromString(pair.call("Search", search()))
        assert answer.status.code == 100, "the main process has no such collection either"
    assert pair.answers_here == []
    assert pair.answers == [("Search", 100), ("Search", 100)]
    assert pair.main.passed_on == 2


def test_a_search_that_fails_once_it_is_decoded_is_passed_on_whole(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding takes the vectors and the moment out of the message; the main process must get them still."""
    for verbs in (pair.verbs, pair.reading):
        books(verbs)
    monkeypatch.setattr(pair.reading, "search", raising(NotReady("behind")))
    monkeypatch.setattr(pair.reading, "hybrid_search", raising(NotReady("behind")))
    one: Any = search_request([[2.0, 1.0]], {"topk": 1}, guarantee_timestamp=5)
    found = milvus_pb2.SearchResults.FromString(pair.call("Search", one))
    assert (found.status.code, list(found.results.ids.int_id.data)) == (0, [2]), found.status.reason
    assert pair.verbs.searches[-1].consistency.guarantee_ts == 5
    both = milvus_pb2.HybridSearchRequest(
        collection_name="books", requests=[one, one], rank_params=pairs({"limit": 1})
    )
    found = milvus_pb2.SearchResults.FromString(pair.call("HybridSearch", both))
    assert (found.status.code, list(found.results.ids.int_id.data)) == (0, [2]), found.status.reason
    assert pair.answers_here == []


def test_a_read_that_can_be_answered_here_is(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair.reading, "collection", lambda database, name: object())
    monkeypatch.setattr("elanus.proxy.wire.reads.decode_query", lambda *_: _Query())
    monkeypatch.setattr("elanus.proxy.wire.reads.encode_query", lambda *_: milvus_pb2.QueryResults())
    monkeypatch.setattr(pair.reading, "query", lambda query: query)
    pair.call("Query", milvus_pb2.QueryRequest(collection_name="books"))
    assert pair.answers_here == [("Query", 0)]
    assert (pair.answers, pair.main.passed_on) == ([], 0)


class _Query:
    times = None


def test_what_the_guard_refuses_here_the_main_process_refuses(tmp_path: Path) -> None:
    pair = Pair(tmp_path, Kept(refused="books"))
    pair.guard.refused = "books"
    try:
        with pytest.raises(grpc.RpcError) as refused:
            pair.call("Search", search())
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert refused.value.details() == "no"
        assert (pair.answers_here, len(pair.answers)) == ([], 1)
    finally:
        pair.close()


def test_the_client_is_the_same_to_the_main_process(pair: Pair) -> None:
    """Its headers, its address, its deadline. It cannot name an address of its own."""
    metadata = (("identifier", "7"), ("dbname", "shop"), ("elanus-origin", "ipv4:1.2.3.4:5"))
    pair.call("GetVersion", milvus_pb2.GetVersionRequest(), metadata=metadata, timeout=100)
    (caller,) = pair.guard.callers
    assert (caller.client, caller.database) == ("7", "shop")
    assert caller.origin.startswith("ipv4:127.0.0.1:")
    assert caller.time_left_s is not None
    assert 50 < caller.time_left_s < 110, "gRPC rounds it up"
    pair.call("GetVersion", milvus_pb2.GetVersionRequest())
    assert pair.guard.callers[1].time_left_s is None
    assert pair.guard.callers[1].client == caller.origin


def test_an_address_that_a_client_claims_does_not_count() -> None:
    kept = Kept()
    server = MilvusServer(calls_of(FakeVerbs(), guard=kept), "127.0.0.1", 0, max_workers=1)
    with grpc.insecure_channel(f"127.0.0.1:{server.start()}") as channel:
        send = channel.unary_unary(f"/{SERVICE.full_name}/GetVersion")
        send(b"", metadata=(("elanus-origin", "ipv4:1.2.3.4:5"),))
    server.stop(0)
    assert kept.callers[0].origin.startswith("ipv4:127.0.0.1:")


def test_definitions_writes_and_own_interfaces_are_passed_on_as_they_came(pair: Pair) -> None:
    pair.call("CreateDatabase", milvus_pb2.CreateDatabaseRequest(db_name="shop"))
    assert "shop" in pair.verbs.databases
    assert "shop" not in pair.reading.databases
    (path, *_) = interface_paths(ConnectorApi)
    assert path.startswith("/elanus.ConnectorApi/")
    assert pair.channel.unary_unary(path)(b""), "the main process's error about its arguments"
    assert pair.main.passed_on == 2


def test_names_that_are_no_method_are_refused_here_and_not_remembered(pair: Pair) -> None:
    """A client that invents names must find no table that grows with them."""
    for service in (SERVICE.full_name, f"elanus.{ConnectorApi.__name__}", "some.Service"):
        for number in range(20):
            with pytest.raises(grpc.RpcError) as refused:
                pair.channel.unary_unary(f"/{service}/Invented{number}")(b"")
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert pair.main.passed_on == 0
    pair.call("GetVersion", milvus_pb2.GetVersionRequest())
    assert pair.main.passed_on == 1


def test_streams_are_passed_on(pair: Pair) -> None:
    stream = pair.channel.stream_stream(f"/{SERVICE.full_name}/CreateReplicateStream")
    with pytest.raises(grpc.RpcError) as refused:
        list(stream(iter([b""])))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert pair.main.passed_on == 1


def test_a_client_s_writes_are_noted_before_they_are_acknowledged(pair: Pair) -> None:
    """Its Bounded reads here wait for them."""
    books(pair.verbs)
    delete = milvus_pb2.DeleteRequest(collection_name="books", expr="id in [1]")
    answer = milvus_pb2.MutationResult.FromString(
        pair.call("Delete", delete, metadata=(("identifier", "7"),))
    )
    assert answer.timestamp
    assert pair.written == [("7", answer.timestamp)]
    failing = milvus_pb2.DeleteRequest(collection_name="nowhere", expr="id in [1]")
    pair.call("Delete", failing)
    assert len(pair.written) == 1


def test_a_client_that_gives_up_ends_its_call_in_the_main_process(tmp_path: Path) -> None:
    began, ended = threading.Event(), threading.Event()

    def wait(request: bytes, context: Any) -> bytes:
        context.add_callback(ended.set)
        began.set()
        assert ended.wait(60), "nobody cancelled the call"
        return b""

    path = f"{SERVICE.full_name}/ListDatabases"
    service, _, method = path.partition("/")
    handler = grpc.method_handlers_generic_handler(
        service, {method: grpc.unary_unary_rpc_method_handler(wait)}
    )
    main = grpc.server(ThreadPoolExecutor(1), handlers=(handler,))
    local = f"unix:{tmp_path / 'verbs.sock'}"
    main.add_insecure_port(local)
    main.start()
    passing = MainProcess(local, lambda client, ts: None)
    none_here = Calls((), AllowAll(), observe_nothing)
    server = MilvusServer(none_here, "127.0.0.1", 0, max_workers=1, main=passing)
    with grpc.insecure_channel(f"127.0.0.1:{server.start()}") as channel:
        call = channel.unary_unary(f"/{path}").future(b"")
        assert began.wait(60)
        call.cancel()
        assert ended.wait(60)
    server.stop(0)
    passing.close()
    main.stop(0).wait()
