"""The budget of a search: what explanations and the kernel's counters say, as one table."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
import numpy as np

from benchmarks.budget import Budget, ThreadShare, _steps, _threads, search_bytes
from elanus.core.explanation import Explanation, NodeReport, SegmentPart, Step
from elanus.proxy.wire.status import EXPLANATION_KEY
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2


def explained(index_ms: float) -> bytes:
    part = SegmentPart(1, "sealed", 10, cpu_ms=index_ms)
    node = NodeReport(1, "search", 1, 1, segments=(part,), steps=(Step("rank rows", 1, 0.3),))
    steps = (Step("plan", 1, 0.1), Step("search on query nodes", 1, 0.4))
    answer = milvus_pb2.SearchResults()
    explanation = Explanation("Search", {}, 2, 0.5, 0, steps, (node,))
    answer.status.extra_info[EXPLANATION_KEY] = msgspec.json.encode(explanation).decode()
    data: bytes = answer.SerializeToString()
    return data


def test_the_nodes_own_steps_are_taken_out_of_the_proxys() -> None:
    answers = iter([explained(0.1), explained(0.2), explained(0.9)])
    asked: list[Sequence[tuple[str, str]]] = []

    def send(_: bytes, *, timeout: float, metadata: Sequence[tuple[str, str]]) -> bytes:
        asked.append(metadata)
        return next(answers)

    steps = _steps(send, [b"1", b"2", b"3"])
    found = {name: round(us) for name, us in steps.items()}
    assert found == {
        "plan": 100,
        "search on query nodes": 100,
        "node: rank rows": 300,
        "of these, the index": 200,
    }
    assert asked == [(("elanus-explain", "json"),)] * 3


def test_what_no_step_explains_is_the_rest() -> None:
    threads = [ThreadShare("python", 700, 1), ThreadShare("event_engine", 20, 0.5)]
    steps = {"plan": 100.0, "node: rank rows": 300.0, "of these, the index": 200.0}
    lines = Budget(1000, 8, 1000, threads, steps).lines()
    assert lines[0] == "1,000 x 8: a call takes 1000 µs, 720 µs of it CPU"
    assert lines[-1] == "  steps together 400.0 µs, the rest 320.0 µs"


def test_every_thread_of_a_process_is_counted() -> None:
    threads = _threads(os.getpid())
    name, ran_ns, _ = threads[os.getpid()]
    assert name
    assert ran_ns > 0


def test_the_replayed_search_is_one_that_clients_send() -> None:
    request = milvus_pb2.SearchRequest.FromString(search_bytes(np.zeros(3, np.float32)))
    group = common_pb2.PlaceholderGroup.FromString(request.placeholder_group)
    assert group.placeholders[0].values[0] == bytes(12)
    assert {pair.key: pair.value for pair in request.search_params}["topk"] == "10"
