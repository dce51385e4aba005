"""Reads that are explained: for the client that asks, and in the slow log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from fake_verbs import FakeVerbs
from rest_client import RestClient
from test_wire_calls import PEER, FakeContext
from wire_messages import key_message, schema_bytes, search_request, vector_message

from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.explanation import Explanation, NodeReport, SegmentPart, Step, text_of
from elanus.core.trail import Trail, current, step
from elanus.proxy.access.caller import Caller, FinishedCall
from elanus.proxy.access.guard import AllowAll
from elanus.proxy.access.permission import ObjectType, Permission
from elanus.proxy.api.loading import LoadRequest
from elanus.proxy.calls import Calls
from elanus.proxy.read_watch import FOLLOW_S, SLOW_KEPT, ReadWatch, explained
from elanus.proxy.rest.front import RestFront
from elanus.proxy.rest.operations import rest_operations
from elanus.proxy.wire.context import caller_of
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.operations import milvus_operations
from elanus.proxy.wire.service import _answering
from elanus.proxy.wire.stubs import milvus_pb2


class SteppingVerbs(FakeVerbs):
    """Its searches have a step, and keep whether they were followed."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.followed: list[bool] = []

    def search(self, request: Any) -> Any:
        self.followed.append(current() is not None)
        self.world.now_s += 0.25
        step("search on query nodes")
        self.world.now_s += self.world.search_s
        return super().search(request)


class World:
    """``search_s``: how long the query nodes take."""

    def __init__(self, slow_ms: float = 0, search_s: float = 0.75) -> None:
        self.now_s = 50.0
        self.search_s = search_s
        self.verbs = SteppingVerbs(self)
        self.watch = ReadWatch(
            slow_ms,
            now_s=lambda: self.now_s,
            cpu_s=lambda: 0.0,
            wall_s=lambda: 1_700_000_000.0,
        )
        operations = (
            *milvus_operations(milvus_families(self.verbs, "STANDALONE")),
            *rest_operations(self.verbs),
        )
        self.calls = Calls(operations, AllowAll(), lambda *_: None, watch=self.watch)
        create = milvus_pb2.CreateCollectionRequest(
            collection_name="books", schema=schema_bytes(key_message(), vector_message())
        )
        assert self.calls.answer("CreateCollection", create, Caller()).code == 0
        self.verbs.create_index("default", "books", "vector", "", {"index_type": "FLAT"})
        self.verbs.load(LoadRequest("default", "books"))

    def search(self, *headers: tuple[str, str]) -> Any:
        return _answering("Search", self.calls)(search_request(), FakeContext(None, *headers))


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def test_the_header_asks_for_an_explanation() -> None:
    world = World()
    answer = world.search(("elanus-explain", "1"))
    found = json.loads(answer.status.extra_info["elanus-explain"])
    assert found["request"] == "Search"
    assert [one["name"] for one in found["steps"]] == [
        "check and decode the request",
        "search on query nodes",
    ]
    assert sum(one["ms"] for one in found["steps"]) == found["ms"] == 1000
    assert answer.status.extra_info["elanus-explain-text"].startswith("Search: 1000.00 ms")
    assert answer.status.code == 0


@pytest.mark.parametrize(("form", "key"), [("json", "elanus-explain"), ("text", "elanus-explain-text")])
def test_one_form_of_it_alone(form: str, key: str) -> None:
    assert set(World().search(("elanus-explain", form)).status.extra_info) == {key}


@pytest.mark.parametrize("headers", [(), (("elanus-explain", "0"),)])
def test_others_get_none_and_are_not_followed(headers: tuple[tuple[str, str], ...]) -> None:
    world = World()
    assert dict(world.search(*headers).status.extra_info) == {}
    assert world.verbs.followed == [False]


def test_other_rpcs_are_not_explained() -> None:
    world = World()
    answer = _answering("HasCollection", world.calls)(
        milvus_pb2.HasCollectionRequest(collection_name="books"), FakeContext(None, ("elanus-explain", "1"))
    )
    assert answer.value
    assert dict(answer.status.extra_info) == {}


def test_a_failed_read_is_explained_too() -> None:
    world = World()
    request = search_request()
    request.collection_name = "films"
    answer = _answering("Search", world.calls)(request, FakeContext(None, ("elanus-explain", "1")))
    assert answer.status.code == 100
    assert "elanus-explain" in answer.status.extra_info


def test_the_caller_of_a_call_that_asks() -> None:
    asked = caller_of(FakeContext(None, ("elanus-explain", "1")))
    assert asked == Caller(client=PEER, origin=PEER, explain=[])


def test_rest_has_it_as_a_member() -> None:
    world = World()
    client = RestClient(RestFront(world.calls, strict=False))
    body = {"collectionName": "books", "data": [[0.0] * 4], "limit": 1}
    assert "explain" not in client.post("entities/search", **body)
    explained_answer = client.post("entities/search", **body, explain=True)
    assert explained_answer["code"] == 0, explained_answer
    assert explained_answer["explain"]["request"] == "Search"
    assert explained_answer["explain"]["text"].startswith("Search: ")


def test_slow_reads_are_kept_and_logged(logged: list[Any]) -> None:
    world = World(slow_ms=400)
    assert dict(world.search().status.extra_info) == {}, "the client did not ask"
    (slow,) = world.watch.slow_requests()
    place = (slow.request, slow.database, slow.collection, slow.ms, slow.code)
    assert place == ("Search", "default", "books", 1000, 0)
    assert (slow.at_ms, slow.text) == (1_700_000_000_000, "")
    (line,) = [line for line in logged if line["event"] == "request slow"]
    assert (line["collection"], line["ms"], line["not_logged"]) == ("books", 1000, 0)


def test_the_slow_log_keeps_the_beginning_of_what_is_no_name() -> None:
    watch, sent = ReadWatch(slow_ms=1), "A" * 1_000_000
    permission = Permission("PrivilegeSearch", ObjectType.COLLECTION)
    watch.end(None, FinishedCall("Search", Caller(), permission, sent, (sent,), 100, 2.0))
    (slow,) = watch.slow_requests()
    assert (slow.database, slow.collection) == ("A" * 255 + "…", "A" * 255 + "…")


def test_after_a_slow_read_others_are_followed_for_a_minute() -> None:
    world = World(slow_ms=400)
    world.search()
    world.search()
    assert "search on query nodes" in world.watch.slow_requests()[-1].text
    world.now_s += FOLLOW_S
    world.search()
    assert world.watch.slow_requests()[-1].text == ""
    assert world.verbs.followed == [False, True, False]


def test_fast_reads_leave_nothing_in_the_slow_log(logged: list[Any]) -> None:
    world = World(slow_ms=1500)
    world.search()
    assert world.watch.slow_requests() == []
    assert logged == []


def test_the_slow_log_is_bounded_and_so_are_its_lines(logged: list[Any]) -> None:
    world = World(slow_ms=1, search_s=-0.248)
    for _ in range(SLOW_KEPT + 5):
        world.search()
    assert (len(world.watch.slow_requests()), world.watch.slow_count) == (SLOW_KEPT, SLOW_KEPT + 5)
    assert len([line for line in logged if line["event"] == "request slow"]) == 1


def test_a_defect_in_an_explanation_does_not_fail_the_read(logged: list[Any]) -> None:
    def broken() -> NodeReport:
        raise ZeroDivisionError

    watch = ReadWatch()
    asked: list[Explanation] = []
    trail = watch.begin("Search", asked, 0.0)
    assert trail is not None
    trail.reports.append(broken)
    permission = Permission("PrivilegeSearch", ObjectType.COLLECTION)
    watch.end(trail, FinishedCall("Search", Caller(explain=asked), permission))
    assert asked == []
    assert [line["event"] for line in logged] == ["read not explained"]


@pytest.mark.parametrize(
    ("consistency", "words"),
    [
        (ReadConsistency(ConsistencyLevel.STRONG), "Strong"),
        (ReadConsistency(), "Bounded"),
        (ReadConsistency(guarantee_ts=1 << 40, pinned=True), "pinned by the client"),
    ],
)
def test_the_level_of_consistency_is_that_of_the_read(consistency: ReadConsistency, words: str) -> None:
    trail = Trail(lambda: 0.0, None)
    view = SimpleNamespace(database="db", name="books", consistency_level=ConsistencyLevel.BOUNDED)
    trail.facts |= {"collection": SimpleNamespace(view=view), "consistency": consistency, "read_ts": 1 << 40}
    facts = explained("Search", trail).facts
    assert facts["collection"] == "db.books"
    assert facts["as of"].endswith(f"UTC), consistency: {words}")


def test_the_text_of_a_whole_explanation() -> None:
    seconds = count()
    trail = Trail(lambda: float(next(seconds)), lambda: 0.0)
    trail.step("plan")
    trail.step("search on query nodes")
    trail.step("")
    trail.facts["waited_s"] = 0.5
    trail.facts["answer"] = "{} hits", 10
    segment = SegmentPart(41, "sealed", 100, 7, 9, "index price", "", ("exact: every row compared",), 7)
    trail.received.append(
        NodeReport(3, "search", 12, 2, 1, {"in other partitions": 4}, (segment,), (Step("rank", 1, 1),), 500)
    )
    assert text_of(explained("Search", trail)).splitlines() == [
        "Search: 2000.00 ms, 0.00 ms of processor time, 500.00 ms of it waiting for the timestamp",
        "  answer: 10 hits",
        "  1000.00 ms     0.00 ms cpu  plan",
        "  1000.00 ms     0.00 ms cpu  search on query nodes",
        "  node 3: search, version 12, waited 500.00 ms for the timestamp",
        "       1.00 ms     1.00 ms cpu  rank",
        "    segments considered: 2, 1 of them pruned",
        "    segments left out: 4, in other partitions",
        "    segment 41 (sealed, 100 rows): 0.00 ms",
        "      rows to choose from: 7 (7.0 %), estimated: at most 9",
        "      filter: index price",
        "      exact: every row compared",
        "      rows compared: 7",
        "    1 more segments",
    ]
