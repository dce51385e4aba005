"""The one path of calls: the guard sees each of them, and what it refuses reaches nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from fake_verbs import FakeVerbs
from google.protobuf import message_factory
from wire_calls import EVERY, Recorder, calls_of, observe_nothing
from wire_messages import key_message, schema_bytes, search_request, vector_message

from elanus.core.errors import ElanusError, Internal, NotSupported
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.guard import AllowAll
from elanus.proxy.access.permission import NO_PRIVILEGE, ObjectType, Permission
from elanus.proxy.calls import Calls
from elanus.proxy.wire.context import caller_of
from elanus.proxy.wire.stubs import SERVICE, milvus_pb2
from elanus.rpc.tracing import trace_id

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PEER = "ipv4:127.0.0.1:5000"
CALLER = Caller(database="library", client="7", trace=TRACE)


def request(rpc: str, **fields: Any) -> Any:
    return message_factory.GetMessageClass(SERVICE.methods_by_name[rpc].input_type)(**fields)


@pytest.mark.parametrize(
    ("rpc", "fields", "asked"),
    [
        ("GetVersion", {}, (NO_PRIVILEGE, ObjectType.GLOBAL, "library", ())),
        (
            "GetLoadState",
            {"collection_name": "books", "db_name": "shop"},
            ("PrivilegeGetLoadState", ObjectType.COLLECTION, "shop", ("books",)),
        ),
        (
            "GetQuerySegmentInfo",
            {"collectionName": "books", "dbName": "shop"},
            ("PrivilegeGetStatistics", ObjectType.COLLECTION, "shop", ("books",)),
        ),
        ("Flush", {}, ("PrivilegeFlush", ObjectType.COLLECTION, "library", ())),
        ("CalcDistance", {}, (NO_PRIVILEGE, ObjectType.GLOBAL, "library", ())),
    ],
)
def test_the_guard_is_asked_about_each_rpc(rpc: str, fields: Any, asked: tuple[Any, ...]) -> None:
    guard = Recorder()
    calls_of(FakeVerbs(), guard=guard).answer(rpc, request(rpc, **fields), CALLER)
    assert guard.asked == [("7", *asked)]
    assert guard.traces == [TRACE]
    assert trace_id() == ""


def test_without_a_database_the_default_one_is_meant() -> None:
    guard = Recorder()
    calls_of(FakeVerbs(), guard=guard).answer("FlushAll", request("FlushAll"), Caller())
    assert guard.asked[0][3] == "default"
    assert guard.traces[0] != "", "a call without a trace begins one"


def test_a_refused_call_reaches_nothing_and_is_counted() -> None:
    verbs, counted = FakeVerbs(), []
    guard = Recorder("PrivilegeSearch", "PrivilegeCreateCollection")
    calls = calls_of(verbs, lambda rpc, code, _: counted.append((rpc, code)), guard)
    create = request(
        "CreateCollection", collection_name="books", schema=schema_bytes(key_message(), vector_message())
    )
    assert calls.answer("CreateCollection", create, CALLER).reason == "PrivilegeCreateCollection is refused"
    answer = calls.answer("Search", search_request(), CALLER)
    assert (answer.status.code, answer.status.reason) == (1100, "PrivilegeSearch is refused")
    assert verbs.list_collections("default") == []
    assert verbs.searches == []
    assert counted == [("CreateCollection", 1100), ("Search", 1100)]


def test_no_rpc_does_anything_before_the_guard_was_asked() -> None:
    guard = Recorder(EVERY)
    calls = calls_of(FakeVerbs(), guard=guard)
    rpcs = [method.name for method in SERVICE.methods if method.name in calls]
    for rpc in rpcs:
        guard.asked.clear()
        answer = calls.answer(rpc, request(rpc), CALLER)
        assert len(guard.asked) == 1, rpc
        assert "is refused" in str(answer), rpc
    assert len(rpcs) > 70


def test_allow_all_allows_all() -> None:
    AllowAll().allow(Caller(), "PrivilegeAll", ObjectType.GLOBAL, "default", ())


QUERY = Permission("PrivilegeQuery", ObjectType.COLLECTION, "text")


@dataclass
class Toy:
    """An operation of no wire in particular: its messages are text."""

    does: Callable[[str], str]
    name: str = "Toy"
    permission: Permission = QUERY

    def read(self, sent: str) -> str:
        if sent != "hello":
            raise NotSupported(f"{sent} is not understood")
        return sent

    def objects(self, request: str, caller: Caller) -> tuple[str, tuple[str, ...]]:
        return "default", (request,)

    def run(self, request: str, caller: Caller) -> str:
        return self.does(request)

    def failed(self, error: ElanusError) -> str:
        return f"{type(error).__name__}: {error.message}"


def test_what_is_not_understood_is_refused_before_the_guard_is_asked() -> None:
    guard = Recorder()
    answer = Calls([Toy(str.upper)], guard, observe_nothing).answer("Toy", "goodbye", CALLER)
    assert answer == "NotSupported: goodbye is not understood"
    assert guard.asked == []


def test_a_defect_is_logged_in_full_and_reported_in_general(logged: list[Any]) -> None:
    def broken(_: str) -> str:
        raise KeyError("secret inner name")

    counted: list[int] = []
    calls = Calls([Toy(broken)], AllowAll(), lambda _rpc, code, _seconds: counted.append(code))
    answer = calls.answer("Toy", "hello", CALLER)
    assert answer == "Internal: Toy failed inside the server: its log has the details"
    assert logged[0]["trace_id"] == TRACE
    assert logged[0]["exc_info"] is True
    assert "secret inner name" in logged[0]["error"]
    assert counted == [Internal.code]


def test_a_defect_of_the_guard_allows_nothing(logged: list[Any]) -> None:
    class Broken(AllowAll):
        def allow(self, *_: object) -> None:
            raise ZeroDivisionError

    reached: list[str] = []
    calls = Calls([Toy(lambda text: reached.append(text) or text)], Broken(), observe_nothing)
    assert calls.answer("Toy", "hello", CALLER).startswith("Internal")
    assert reached == []


def test_two_operations_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two implementations of the operation Toy"):
        Calls([Toy(str.upper), Toy(str.lower)], AllowAll(), observe_nothing)


class FakeContext:
    def __init__(self, left_s: float | None, *headers: tuple[str, str | bytes]) -> None:
        self.left_s = left_s
        self.headers = headers

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self.headers

    def peer(self) -> str:
        return PEER

    def time_remaining(self) -> float | None:
        return self.left_s


@pytest.mark.parametrize(
    ("context", "caller"),
    [
        (FakeContext(None), Caller(client=PEER, origin=PEER)),
        (FakeContext(9e9), Caller(client=PEER, origin=PEER)),
        (
            FakeContext(
                2.5,
                ("dbname", "shop"),
                ("identifier", "42"),
                ("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01"),
                ("idempotency-key", "order 7"),
            ),
            Caller(
                database="shop",
                client="42",
                time_left_s=2.5,
                trace=TRACE,
                origin=PEER,
                idempotency_key="order 7",
            ),
        ),
    ],
)
def test_the_caller_is_read_from_headers_and_deadline(context: Any, caller: Caller) -> None:
    assert caller_of(context) == caller


def test_an_insert_with_a_name_is_refused() -> None:
    """A client that repeats it would count on the first one being known."""
    calls = calls_of(FakeVerbs())
    insert = milvus_pb2.InsertRequest(collection_name="books")
    refused = calls.answer("Insert", insert, Caller(idempotency_key="order 7")).status
    assert "idempotent insert is not supported" in refused.reason


def test_a_search_knows_its_client_and_how_long_that_waits() -> None:
    verbs = FakeVerbs()
    calls = calls_of(verbs)
    create = milvus_pb2.CreateCollectionRequest(
        collection_name="books", schema=schema_bytes(key_message(), vector_message())
    )
    assert calls.answer("CreateCollection", create, Caller()).code == 0
    calls.answer("Search", search_request(), Caller(client="7", time_left_s=1.5))
    (search,) = verbs.searches
    assert (search.consistency.client, search.timeout_s) == ("7", 1.5)
