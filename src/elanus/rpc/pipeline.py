"""What the online process asks of the pipeline process as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class JobView:
    """A Spark job. ``started_s``: Unix time, 0 while it waits. ``error`` is set when it failed."""

    job_id: str
    kind: str
    state: str
    cause: str
    started_s: float
    duration_ms: float
    rows: int
    size_bytes: int
    error: str


class PipelineApi(Protocol):
    async def jobs(self) -> tuple[JobView, ...]:
        """The latest jobs, those that run last."""
        ...
