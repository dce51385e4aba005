"""The interface of the pipeline process as a whole towards the online process."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from elanus.api.fencing import order_of
from elanus.api.idempotency import repeatable


class SparkState(StrEnum):
    """The Spark of a pipeline process. Orders are taken in all of these states, and wait if need be."""

    AWAKE = "awake"
    STOPPING = "stopping"
    ASLEEP = "asleep"
    """No JVM and no workers: nothing had to be done for a while."""
    STARTING = "starting"
    FAILED = "failed"
    """It could not be started or stopped: the process is about to end and to be restarted."""


class PipelineApi(Protocol):
    @repeatable
    async def ping(self) -> SparkState:
        """Answers while the process takes orders."""
        ...

    @order_of("datacoord")
    async def cancel_job(self, job_id: str) -> None:
        """Cancel a job; return when its tasks have stopped. Raises `JobNotFound` if it does not run here."""
        ...
