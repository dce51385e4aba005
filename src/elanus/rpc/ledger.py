"""The job ledger's interface: who runs jobs tells of them here, who wants to know asks here.

Implemented by datacoord, which alone persists the ledger. A process that runs jobs reports the entries
that changed, and says again and again that it is alive; the jobs of one that falls silent are shown as
lost.
"""

from __future__ import annotations

from typing import Protocol

from elanus.core.jobs import JobEntry
from elanus.rpc.repeat import repeatable


class JobLedgerApi(Protocol):
    @repeatable
    async def report_jobs(self, owner: str, address: str, entries: tuple[JobEntry, ...]) -> None:
        """The owner is alive, and these of its jobs changed. May be said twice, and without entries.

        ``owner`` names one life of one process; ``address`` is where it takes `PipelineApi` calls, ""
        when its jobs cannot be cancelled from outside.
        """
        ...

    @repeatable
    async def jobs(self) -> tuple[JobEntry, ...]:
        """Every job the ledger knows, in the order in which they were ordered."""
        ...

    @repeatable
    async def job(self, job_id: str) -> JobEntry:
        """Raises `JobNotFound`."""
        ...

    async def cancel_job(self, job_id: str) -> None:
        """Returns when the job has ended.

        Raises `JobNotFound`, and `NotCancellable` for one that has ended or is of a kind that is not
        cancelled.
        """
        ...
