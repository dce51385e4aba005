"""The stop of a data node: indexcoord is notified, so that no index build waits for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elanus.core.errors import Unavailable
from elanus.core.ids import NodeID
from elanus.pipeline.jobs import JobRunner
from elanus.server.pipeline_role import PipelineDependencies, PipelineRole
from elanus.server.settings import Settings


class Index:
    """An indexcoord: it answers, cannot be reached, or never answers."""

    def __init__(self, error: Exception | None = None, *, is_silent: bool = False) -> None:
        self.calls: list[tuple[str, int]] = []
        self._error = error
        self._is_silent = is_silent

    async def register_indexnode(self, node_id: NodeID, address: str, builds_max: int = 1) -> None:
        self.calls.append(("register", node_id))

    async def indexnode_stops(self, node_id: NodeID) -> None:
        self.calls.append(("stops", node_id))
        if self._error is not None:
            raise self._error
        if self._is_silent:
            await asyncio.Event().wait()


@pytest.mark.parametrize("index", [Index(), Index(Unavailable("indexcoord restarts")), Index(is_silent=True)])
async def test_a_data_node_that_stops_says_so_last(index: Any, tmp_path: Path) -> None:
    session: Any = SimpleNamespace(slots=2, task_scratch=tmp_path, rows_arrived=lambda: None)
    runner = JobRunner(session)
    unused: Any = None
    needs = PipelineDependencies(
        Settings(), session, runner, unused, "", "file:///", "", unused, unused, unused, index
    )
    role = PipelineRole(needs, NodeID(7), "here", lambda _: None)
    role._work = [asyncio.create_task(role._heartbeat())]
    await asyncio.sleep(5)
    await asyncio.wait_for(role.stop(), 30)
    assert index.calls == [("register", 7)] * 3 + [("stops", 7)]
    await asyncio.sleep(60)
    assert index.calls[-1] == ("stops", 7), "it registers no more"
    runner.close()
