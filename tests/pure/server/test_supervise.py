"""The data node of a standalone is kept running: restarts, back-off, sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from elanus.core.errors import Unavailable
from elanus.meta.port import MetaFailed
from elanus.server.supervise import LatePipeline, PipelineSupervisor

BACKOFF_MS, BACKOFF_MAX_MS = 1_000, 4_000


class Node:
    """Runs until `end` is called; notes its sessions."""

    pid = 77

    def __init__(self) -> None:
        self.runs: list[tuple[float, Any]] = []
        self.ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.cancelled = 0

    async def run(self, session: Any) -> None:
        self.runs.append((asyncio.get_running_loop().time(), session))
        try:
            await asyncio.shield(self.ending)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def end(self, error: Exception | None = None) -> None:
        ending, self.ending = self.ending, asyncio.get_running_loop().create_future()
        if error is None:
            ending.set_result(None)
        else:
            ending.set_exception(error)


class Place:
    def __init__(self) -> None:
        self.node = Node()
        self.sessions: list[Any] = []
        self.closed: list[Any] = []
        self.refusals = 0
        self.refusal: Exception = Unavailable("no metadata")
        self.counted = 0
        self.supervisor = PipelineSupervisor(self.node, self._join, BACKOFF_MS, BACKOFF_MAX_MS, self._count)
        self.supervisor.start()

    def _count(self) -> None:
        self.counted += 1

    async def _join(self) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise self.refusal
        session = SimpleNamespace(lost=asyncio.Event())

        async def close() -> None:
            self.closed.append(session)

        session.close = close
        self.sessions.append(session)
        return session

    @property
    def begun_s(self) -> list[float]:
        return [began for began, _ in self.node.runs]


async def test_one_that_ends_starts_again_with_a_new_session_after_growing_pauses() -> None:
    place = Place()
    await asyncio.sleep(0.5)
    assert place.supervisor.pid == 77
    for _ in range(4):
        before = len(place.node.runs)
        place.node.end(RuntimeError("Spark died"))
        await asyncio.sleep(0.1)
        assert place.supervisor.pid is None, "nothing runs during the pause"
        await asyncio.sleep(BACKOFF_MAX_MS / 1000)
        assert len(place.node.runs) == before + 1
    ran_s = 0.5, *(BACKOFF_MAX_MS / 1000 - pause_s + 0.1 for pause_s in (1, 2, 4))
    pauses_s = [
        later - former - ran
        for former, later, ran in zip(place.begun_s, place.begun_s[1:], ran_s, strict=False)
    ]
    assert pauses_s == pytest.approx([1, 2, 4, 4])
    assert place.closed == place.sessions[:-1]
    assert (place.supervisor.restarts, place.counted) == (4, 4)
    assert place.supervisor.cause == "RuntimeError: Spark died"
    await place.supervisor.stop()
    assert place.closed == place.sessions
    assert place.node.cancelled == 1


async def test_a_lost_session_ends_the_run() -> None:
    place = Place()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    place.sessions[0].lost.set()
    await asyncio.sleep(2)
    assert place.node.cancelled == 1
    assert len(place.node.runs) == 2
    await place.supervisor.stop()


@pytest.mark.parametrize("refusal", [Unavailable("no metadata"), MetaFailed("meta.db: disk I/O error")])
async def test_it_waits_while_there_is_no_session(refusal: Exception) -> None:
    place = Place()
    place.refusal = refusal
    place.refusals = 20
    with capture_logs() as logged:
        await asyncio.sleep(25)
    assert len(place.node.runs) == 1
    assert place.supervisor.restarts == 0
    assert [entry["event"] for entry in logged] == ["data node waits for its session"], "once for one cause"
    await place.supervisor.stop()


async def inline(make: Callable[[], Any]) -> Any:
    return make()


async def test_its_modules_are_imported_when_what_was_loaded_is_served_again() -> None:
    node = Node()
    made: list[Node] = []
    percents: list[Any] = [{1: 0}, Unavailable("not elected yet"), {1: 40, 2: 100}, {1: 100, 2: 100}]

    def make() -> Node:
        made.append(node)
        return node

    async def in_order() -> Any:
        percent = percents.pop(0)
        if isinstance(percent, Exception):
            raise percent
        return [SimpleNamespace(percentages=percent)]

    late = LatePipeline(in_order, make, inline)
    assert late.pid is None
    run = asyncio.ensure_future(late.run(SimpleNamespace()))
    await asyncio.sleep(1)
    assert (percents, len(made), late.pid) == ([], 1, 77)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


async def test_a_load_that_does_not_end_delays_the_data_node_for_seconds_only() -> None:
    node = Node()

    async def loads() -> Any:
        return [SimpleNamespace(percentages={1: 0})]

    run = asyncio.ensure_future(LatePipeline(loads, lambda: node, inline).run(SimpleNamespace()))
    await asyncio.sleep(1)
    assert node.runs == []
    await asyncio.sleep(2)
    assert len(node.runs) == 1
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
