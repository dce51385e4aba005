"""The compactions of a data node: what it says about them, and how each end is reported."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import CID, DEFAULT, schema, settle

from elanus.api.datacoord import CompactionCommit, SegmentOutput
from elanus.api.datanode import CompactionOrder, CompactionWork
from elanus.core.errors import Unavailable
from elanus.core.ids import SegmentID
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.datanode.compactions import Compactions, SparkCompactions
from elanus.server.pipeline_role import compactions_at_once
from elanus.server.settings_pipeline import PipelineSettings


def order(plan_id: int, attempt: int) -> CompactionOrder:
    return CompactionOrder(
        plan_id, attempt, CID, DEFAULT, "v0", SegmentID(7), schema(), (), (), NO_TIMESTAMP, NO_TIMESTAMP
    )


class Runner:
    """Ends a compaction when the test says so, with an error if there is one."""

    room = 3

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.error: Exception | None = None

    async def compact(self, order: CompactionOrder) -> tuple[SegmentOutput, ...]:
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return ()


class Coordinator:
    def __init__(self) -> None:
        self.failed: list[tuple[int, str]] = []
        self.reachable = True
        self.committing = asyncio.Event()
        self.committing.set()

    async def commit_compaction(self, commit: CompactionCommit) -> None:
        await self.committing.wait()
        if not self.reachable:
            raise Unavailable("datacoord restarts")

    async def compaction_failed(self, epoch: int, plan_id: int, reason: str) -> None:
        if not self.reachable:
            raise Unavailable("datacoord restarts")
        self.failed.append((plan_id, reason))


def node() -> tuple[Compactions, Runner, Coordinator]:
    runner, coordinator = Runner(), Coordinator()
    return Compactions(1, coordinator, runner), runner, coordinator  # type: ignore[arg-type]


async def test_an_order_is_held_until_its_commit_is_answered() -> None:
    compactions, runner, coordinator = node()
    coordinator.committing.clear()
    compactions.take(order(1, 11))
    compactions.take(order(2, 12))
    assert compactions.work == CompactionWork((11, 12), 3)
    runner.go_on.set()
    await settle()
    assert compactions.work.attempts == (11, 12), "they are being committed"
    coordinator.committing.set()
    await settle()
    assert compactions.work.attempts == ()


@pytest.mark.parametrize("error", [None, Unavailable("the store"), AssertionError("a defect")])
async def test_an_end_that_cannot_be_reported_is_no_longer_held(error: Exception | None) -> None:
    compactions, runner, coordinator = node()
    coordinator.reachable, runner.error = False, error
    runner.go_on.set()
    compactions.take(order(1, 11))
    await settle()
    assert (compactions.work.attempts, coordinator.failed) == ((), [])


async def test_an_attempt_that_stops_after_a_later_one_has_ended_ends_quietly() -> None:
    """A job that is cancelled stops when its tasks have."""
    stopping = asyncio.Event()

    class Stubborn(Runner):
        async def compact(self, order: CompactionOrder) -> tuple[SegmentOutput, ...]:
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                await stopping.wait()
                raise
            return ()

    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    runner = Stubborn()
    compactions = Compactions(1, Coordinator(), runner)  # type: ignore[arg-type]
    compactions.take(order(1, 11))
    await settle()
    compactions.take(order(1, 12))
    await settle()
    runner.go_on.set()
    await settle()
    assert compactions.work.attempts == (11,)
    stopping.set()
    await settle()
    assert compactions.work.attempts == ()
    assert reported == []


async def test_a_failure_that_nobody_expected_is_reported_too() -> None:
    compactions, runner, coordinator = node()
    runner.error = AssertionError("a defect")
    runner.go_on.set()
    compactions.take(order(1, 11))
    await settle()
    assert coordinator.failed == [(1, "AssertionError: a defect")]


@pytest.mark.parametrize(
    ("master", "slots", "rooms"),
    [("spark://cluster:7077", (2, 64, 3, 1), (1, 63, 2, 1)), ("local[*]", (2, 3, 64), (1, 2, 4))],
)
def test_compactions_follow_the_cores_and_leave_one_to_flushes(
    master: str, slots: tuple[int, ...], rooms: tuple[int, ...]
) -> None:
    cluster: Any = SimpleNamespace(slots=0)
    most = compactions_at_once(PipelineSettings(spark_master=master))
    compactions = SparkCompactions(cluster, "file:///store", Path("scratch"), most)
    found = []
    for cluster.slots in slots:
        found.append(compactions.room)
    assert tuple(found) == rooms
