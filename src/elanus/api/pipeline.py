"""The interface of the pipeline process as a whole towards the online process."""

from __future__ import annotations

from typing import Protocol

from elanus.api.fencing import order_of
from elanus.api.idempotency import repeatable


class PipelineApi(Protocol):
    @repeatable
    async def ping(self) -> None:
        """Answers while the process takes orders."""
        ...

    @order_of("datacoord")
    async def cancel_job(self, job_id: str) -> None:
        """Cancel a job; return when its tasks have stopped. Raises `JobNotFound` if it does not run here."""
        ...
