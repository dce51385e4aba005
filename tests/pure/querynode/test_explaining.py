"""The explanations that a query node gives: one text for each situation, in ``explained.txt``.

``pytest tests/pure/querynode/test_explaining.py --update-golden`` writes the texts again, to be read as a
diff.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from channel_world import A, B, Cluster, finished
from channel_world import scenario as cluster_scenario
from explained_reads import (
    NOW,
    VECTOR,
    Asked,
    block,
    report_of,
    segment,
    snapshot,
    text_for,
    trail_of_seconds,
)

from elanus.core import trail as trails
from elanus.core.explanation import SEGMENTS_SHOWN_MAX
from elanus.index.curve import RecallCurve
from elanus.proxy.fanout.deadline import Patience

GOLDEN = Path(__file__).parent / "explained.txt"
HNSW = {"index_type": "HNSW", "M": "8", "efConstruction": "40"}
IVF = {"index_type": "IVF_FLAT", "nlist": "32"}
ROWS = 4000
MANY = 300_000
"""So many rows that a scan of a column costs more than asking an index."""


def _graph(**asked: object) -> tuple[object, Asked]:
    return snapshot(segment(1, block(ROWS, HNSW)), index=HNSW), Asked(**asked)  # type: ignore[arg-type]


def _priced(index: str, **asked: object) -> tuple[object, Asked]:
    rows = block(MANY, price_index=index)
    return snapshot(segment(1, rows)), Asked(**asked)  # type: ignore[arg-type]


def _aimed(target: float) -> tuple[object, Asked]:
    params = {**IVF, "nlist": "40"}
    rows = block(5000, params)
    index = rows.vectors[VECTOR].index
    assert index is not None
    index.curve = RecallCurve(np.array([10]), np.array([2, 8, 32]), np.array([[0.6, 0.85, 0.95]]))
    return snapshot(segment(1, rows), index=params), Asked(params={"target_recall": target})


SITUATIONS = {
    "no rows at all": lambda: (snapshot(), Asked()),
    "growing rows are compared": lambda: (snapshot(segment(1, block(100), sealed=False)), Asked()),
    "a growing segment of several blocks is one line": lambda: (
        snapshot(segment(1, block(100), block(60, first_key=100), sealed=False)),
        Asked(),
    ),
    "a sealed segment whose index is not built yet": lambda: (
        snapshot(segment(1, block(5000)), index=HNSW),
        Asked(),
    ),
    "a graph, with the default effort": _graph,
    "a graph, with the effort of the request": lambda: _graph(params={"ef": 80}),
    "a graph so small that all rows are compared": lambda: (
        snapshot(segment(1, block(200, HNSW)), index=HNSW),
        Asked(params={"ef": 200}),
    ),
    "a level of AUTOINDEX": lambda: (
        snapshot(segment(1, block(ROWS, HNSW)), index={"index_type": "AUTOINDEX"}),
        Asked(params={"level": 1}),
    ),
    "a weak filter widens the walk": lambda: _graph(filter="price < 900", params={"ef": 40}),
    "a strict filter: matching rows are compared": lambda: _graph(filter="price == 5"),
    "a filter that was evaluated before": lambda: _graph(filter="price < 900", params={"ef": 40}, times=2),
    "a batch of queries": lambda: _graph(queries=20),
    "bounds show that no row matches": lambda: (
        snapshot(segment(1, block(100)), segment(2, block(100, low=1000, high=2000, first_key=100))),
        Asked(filter="price < 900 and id >= 0"),
    ),
    "a scalar index finds the rows": lambda: _priced("STL_SORT", kind="count", filter="price == 77"),
    "a scalar index finds too many rows": lambda: _priced("STL_SORT", kind="count", filter="price >= 200"),
    "a filter no index answers": lambda: _priced(
        "STL_SORT", kind="count", filter="price * 3 % 7 == 2 and price > 4"
    ),
    "a column without an index": lambda: _priced("", kind="count", filter="price == 77"),
    "inverted lists": lambda: (snapshot(segment(1, block(5000, IVF)), index=IVF), Asked()),
    "inverted lists, more of them under a filter": lambda: (
        snapshot(segment(1, block(5000, IVF)), index=IVF),
        Asked(filter="price < 500", params={"nprobe": 4}),
    ),
    "inverted lists of codes": lambda: (
        snapshot(segment(1, block(5000, {**IVF, "index_type": "IVF_SQ8"})), index=IVF),
        Asked(params={"nprobe": 16}),
    ),
    "a target recall, by the curve of the index": lambda: _aimed(0.9),
    "a target recall that was not reached": lambda: _aimed(0.99),
    "a target recall of an index without a curve": lambda: (
        snapshot(segment(1, block(5000, IVF)), index=IVF),
        Asked(params={"target_recall": 0.9}),
    ),
    "a graph over codes": lambda: (
        snapshot(
            segment(1, block(ROWS, {**HNSW, "index_type": "HNSW_SQ", "sq_type": "SQ8"})),
            index=HNSW,
        ),
        Asked(),
    ),
    "partitions, growing rows and expired rows are left out": lambda: (
        snapshot(
            segment(1, block(100)),
            segment(2, block(100), partition=2),
            segment(3, block(100), sealed=False),
            segment(4, block(100, ts=3)),
            segment(5, block(100), visible_from=NOW + 1),
        ),
        Asked(partitions=(1,), ignore_growing=True, expired_until=5),
    ),
    "a range search": lambda: (snapshot(segment(1, block(500))), Asked(params={"radius": 9.0})),
    "a query by key": lambda: (
        snapshot(segment(1, block(500)), segment(2, block(500, first_key=500))),
        Asked(kind="query", filter="id in [3, 4]"),
    ),
    "a query with a limit whose few rows an index finds": lambda: _priced(
        "STL_SORT", kind="query", filter="price == 7", limit=100
    ),
    "a query with a limit": lambda: (
        snapshot(segment(1, block(5000))),
        Asked(kind="query", filter="price < 900", limit=10),
    ),
    "a query by keys": lambda: (snapshot(segment(1, block(500))), Asked(kind="query", keys=(7, 9))),
    "a count": lambda: (snapshot(segment(1, block(500))), Asked(kind="count")),
}


def _sections() -> dict[str, str]:
    found = {}
    for section in GOLDEN.read_text().split("## ")[1:]:
        name, _, text = section.partition("\n")
        found[name] = text.rstrip("\n")
    return found


def test_the_texts_are_what_they_were(request: pytest.FixtureRequest) -> None:
    texts = {name: text_for(*make()) for name, make in SITUATIONS.items()}
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text("".join(f"## {name}\n{text}\n\n" for name, text in texts.items()))
    assert _sections() == texts, "read the diff of: pytest --update-golden this file; git diff explained.txt"
    assert len(texts) >= 20


def test_rows_compared_by_comparing_all_are_those_that_match() -> None:
    (part,) = report_of(*SITUATIONS["a strict filter: matching rows are compared"]()).segments
    assert part.compared == part.matching == 4
    assert not part.compared_is_estimate


def test_an_index_estimates_at_least_the_rows_that_match() -> None:
    (part,) = report_of(*SITUATIONS["a scalar index finds the rows"]()).segments
    assert part.estimated is not None
    assert part.matching is not None
    assert part.matching <= part.estimated <= 2 * part.matching


def test_of_very_many_segments_the_slowest_are_shown() -> None:
    many = [segment(n, block(2, first_key=2 * n)) for n in range(SEGMENTS_SHOWN_MAX + 5)]
    report = report_of(snapshot(*many), Asked())
    assert (report.segment_count, len(report.segments)) == (SEGMENTS_SHOWN_MAX + 5, SEGMENTS_SHOWN_MAX)


def test_steps_cover_the_time_from_the_first_to_the_last() -> None:
    trail = trail_of_seconds()
    report = report_of(snapshot(segment(1, block(100))), Asked(), trail)
    steps = {step.name: step.ms for step in report.steps}
    assert list(steps) == ["rank rows", "fetch output fields"]
    assert steps["rank rows"] >= sum(part.ms for part in report.segments) > 0


def test_a_read_that_nobody_follows_leaves_no_trail(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a note was made for a read that nobody follows")

    for name in ("step", "visit", "leave", "selected", "method", "because"):
        monkeypatch.setattr(trails.Trail, name, refuse)
    for make in SITUATIONS.values():
        of, asked = make()
        _run_alone(of, asked)


@cluster_scenario
async def test_nodes_of_other_processes_report_if_the_read_is_followed(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2, 3)
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.insert([(4, 4)])
    await cluster.tick()

    def counted(trail: trails.Trail | None) -> int:
        with trails.following(trail):
            return cluster.proxy.count(cluster.node_query("value > 2"), Patience(5.0))

    trail = trail_of_seconds()
    assert await asyncio.to_thread(counted, trail) == await asyncio.to_thread(counted, None)
    reports = {report.node_id: report for report in trail.received}
    assert set(reports) == {A, B}
    parts = [part for report in reports.values() for part in report.segments]
    assert segment_id in [part.segment_id for part in parts]
    assert sorted(part.state for part in parts) == ["growing", "sealed"]


def _run_alone(of: object, asked: Asked) -> None:
    from explained_reads import SCHEMA, _answer

    from elanus.expr import compile_filter

    assert trails.current() is None
    _answer(of, asked, compile_filter(asked.filter, SCHEMA))  # type: ignore[arg-type]
