"""Run by `test_adding` on sources with one more job: datacoord's client orders it, a runner runs it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from elanus.api.toy import ToyOrder

from elanus.api.datanode import DataNodePorts
from elanus.core.errors import Cancelled
from elanus.core.ids import NodeID
from elanus.core.jobs import JobKind, JobState
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.port import JobCancelled
from elanus.rpc.carrier import RpcChannel, RpcServer
from elanus.server.builders import data_node_ports
from elanus.server.pipeline_role import INTERFACES, PipelineDependencies, PipelineRole
from elanus.server.settings import Settings
from elanus.sim.pipeline import PipelineProcess
from elanus.sim.run import run_seed


class Session:
    """Runs tasks here, without Spark."""

    slots = 2

    def __init__(self, scratch: Path) -> None:
        self.task_scratch = scratch
        self.is_cancelled = False

    def run(self, task: Callable[[Any], Any], plans: Sequence[Any], **_: str) -> list[Any]:
        if self.is_cancelled:
            raise JobCancelled("cancelled")
        return [task(plan) for plan in plans]

    def running_job(self, group: str) -> None: ...
    def cancel(self, group: str) -> None: ...
    def rows_arrived(self) -> None: ...


def role(runner: JobRunner, session: Any) -> PipelineRole:
    """The process that runs jobs, with the dependencies that the toy uses."""
    unused: Any = None
    dependencies = PipelineDependencies(
        Settings(), session, runner, unused, "", "file:///", "", unused, unused, unused, unused
    )
    return PipelineRole(dependencies, NodeID(7), "here", lambda _: None)


async def ordered(session: Session) -> None:
    runner = JobRunner(session)
    process = role(runner, session)
    server = RpcServer("127.0.0.1:0", [(api, process.part(api)) for api in INTERFACES])
    await server.start()
    channel = RpcChannel(f"127.0.0.1:{server.port}")
    try:
        await order(data_node_ports("here", channel, NodeID(1)), runner, session)
    finally:
        await channel.close()
        await server.stop()
        runner.close()


async def order(ports: DataNodePorts, runner: JobRunner, session: Session) -> None:
    assert await ports.toys.add(ToyOrder((1, 2, 3)), "numbers have come") == 6
    (entry,) = runner.book.entries()
    assert (entry.kind, entry.state, entry.cause) == (JobKind.TOY, JobState.FINISHED, "numbers have come")
    session.is_cancelled = True
    with pytest.raises(Cancelled, match="the toy was cancelled"):
        await ports.toys.add(ToyOrder((1,)), "once more")


def main() -> None:
    asyncio.run(ordered(Session(Path(sys.argv[1]))))
    simulated: Any = PipelineProcess
    assert asyncio.run(simulated.add(None, ToyOrder((4, 5)), "numbers have come")) == 9
    outcome = run_seed(1)
    assert outcome.broken == "", outcome.message


if __name__ == "__main__":
    main()
