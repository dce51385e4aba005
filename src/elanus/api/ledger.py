"""The job ledger's interface: processes report the jobs they run here, and clients query them.

Implemented by datacoord, which alone persists the ledger. A process that runs jobs reports the entries
that changed, and sends regular heartbeats; the jobs of a process that falls silent are shown as lost.
"""

from __future__ import annotations

from typing import Protocol

from elanus.api.idempotency import repeatable
from elanus.core.jobs import JobEntry


class JobLedgerApi(Protocol):
    @repeatable
    async def report_jobs(self, owner: str, address: str, entries: tuple[JobEntry, ...]) -> None:
        """The owner is alive, and these of its jobs changed. May be repeated, and sent without entries.

        ``owner`` names one run of one process; ``address`` is where it takes `PipelineApi` calls, ""
        when its jobs cannot be cancelled from outside.
        """
        ...

    @repeatable
    async def jobs(self) -> tuple[JobEntry, ...]:
        """Return every job the ledger knows, in the order in which they were ordered."""
        ...

    @repeatable
    async def job(self, job_id: str) -> JobEntry:
        """Raises `JobNotFound`."""
        ...

    async def cancel_job(self, job_id: str) -> None:
        """Cancel a job; return when it has ended.

        Raises `JobNotFound`, and `NotCancellable` for one that has ended or is of a kind that cannot be
        cancelled.
        """
        ...
