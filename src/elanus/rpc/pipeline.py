"""What the online process asks of the pipeline process as a whole."""

from __future__ import annotations

from typing import Protocol

from elanus.rpc.fencing import order_of
from elanus.rpc.repeat import repeatable


class PipelineApi(Protocol):
    @repeatable
    async def ping(self) -> None:
        """Answers while the process takes orders."""
        ...

    @order_of("datacoord")
    async def cancel_job(self, job_id: str) -> None:
        """Returns when the job's tasks have stopped. Raises `JobNotFound` for one that does not run here."""
        ...
