"""The interface of data node and index node as a whole towards the coordinators."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from elanus.api.fencing import order_of
from elanus.api.idempotency import repeatable


class SparkState(StrEnum):
    """The Spark of a data node. Orders are taken in all of these states, and wait if need be."""

    AWAKE = "awake"
    STOPPING = "stopping"
    ASLEEP = "asleep"
    """No JVM and no workers: nothing had to be done for a while."""
    STARTING = "starting"
    FAILED = "failed"
    """It could not be started or stopped: the data node is about to start again, with a new process."""


class PipelineApi(Protocol):
    @repeatable
    async def ping(self) -> SparkState:
        """Answers while orders are taken."""
        ...

    @order_of("datacoord")
    async def cancel_job(self, job_id: str) -> None:
        """Cancel a job; return when its tasks have stopped. Raises `JobNotFound` if it does not run here."""
        ...
