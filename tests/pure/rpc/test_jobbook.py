"""A process's own account of its jobs, and its reports to the ledger."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from virtual_time import run_virtually

from elanus.api.job_book import HISTORY_MAX_JOBS, SIGN_OF_LIFE_S, JobBook, keep_reported
from elanus.core.errors import Unavailable
from elanus.core.jobs import JobEntry, JobKind, JobProgress, JobState


class FakeLedger:
    def __init__(self) -> None:
        self.received: list[list[JobState]] = []
        self.entries: dict[str, JobEntry] = {}
        self.away = False

    async def report_jobs(self, owner: str, address: str, entries: tuple[JobEntry, ...]) -> None:
        assert (owner, address) == ("life", "unix:/p")
        if self.away:
            raise Unavailable("away")
        self.received.append([entry.state for entry in entries])
        self.entries |= {entry.job_id: entry for entry in entries}


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_changes_of_state_are_reported_at_once_and_progress_with_the_next_heartbeat() -> None:
    async def scenario() -> None:
        book, ledger = JobBook("life"), FakeLedger()
        reporting = asyncio.ensure_future(keep_reported(book, ledger, "unix:/p"))  # type: ignore[arg-type]
        await settle()
        assert ledger.received == [[]], "a process says that it is there before it has jobs"
        job_id = book.order(JobKind.FLUSH, "size", ["ch"])
        await settle()
        book.begin(job_id, tasks=2)
        await settle()
        assert ledger.received[1:] == [[JobState.WAITING], [JobState.RUNNING]]
        book.progressed(job_id, JobProgress(2, 1))
        await settle()
        assert ledger.entries[job_id].progress.tasks_done == 0
        await asyncio.sleep(SIGN_OF_LIFE_S * 1.5)
        assert ledger.entries[job_id].progress.tasks_done == 1
        book.finish(job_id, ["a"], rows=3, size_bytes=4)
        await settle()
        assert ledger.entries[job_id].state is JobState.FINISHED
        count = len(ledger.received)
        await asyncio.sleep(SIGN_OF_LIFE_S * 3.5)
        assert ledger.received[count:] == [[], [], []], "signs of life"
        reporting.cancel()

    run_virtually(scenario())


def test_a_ledger_that_was_away_gets_the_latest_of_each_job() -> None:
    async def scenario() -> None:
        book, ledger = JobBook("life"), FakeLedger()
        ledger.away = True
        reporting = asyncio.ensure_future(keep_reported(book, ledger, "unix:/p"))  # type: ignore[arg-type]
        for _ in range(HISTORY_MAX_JOBS + 50):
            job_id = book.order(JobKind.FLUSH, "size", ["ch"])
            book.begin(job_id)
            await settle()
            book.fail(job_id, OSError("no"))
        running = book.order(JobKind.INDEX_BUILD, "flushed", ["s"])
        await asyncio.sleep(5 * SIGN_OF_LIFE_S)
        ledger.away = False
        await asyncio.sleep(2 * SIGN_OF_LIFE_S)
        assert ledger.entries[running].state is JobState.WAITING
        assert ledger.entries[job_id].error == "OSError: no"
        assert HISTORY_MAX_JOBS <= len(ledger.entries) <= HISTORY_MAX_JOBS + 1, (
            "the reports that wait are bounded"
        )
        reporting.cancel()

    run_virtually(scenario())


def test_a_report_that_is_cut_short_is_made_again_by_the_next_role() -> None:
    """A node that loses its session stops while it waits for a ledger that does not answer."""

    async def scenario() -> None:
        book, ledger = JobBook("life"), FakeLedger()
        hanging = SimpleNamespace(report_jobs=lambda *_: asyncio.Event().wait())
        job_id = book.order(JobKind.FLUSH, "size", ["ch"])
        book.begin(job_id)
        book.fail(job_id, OSError("no"))
        first = asyncio.ensure_future(keep_reported(book, hanging, "unix:/p"))  # type: ignore[arg-type]
        await settle()
        first.cancel()
        await settle()
        second = asyncio.ensure_future(keep_reported(book, ledger, "unix:/p"))  # type: ignore[arg-type]
        await settle()
        assert ledger.entries[job_id].state is JobState.FAILED
        second.cancel()

    run_virtually(scenario())


def test_a_look_after_the_end_changes_nothing() -> None:
    book = JobBook("life")
    job_id = book.order(JobKind.FLUSH, "size", ["ch"])
    book.begin(job_id)
    book.cancel(job_id)
    book.progressed(job_id, JobProgress(9, 9))
    (entry,) = book.entries()
    assert (entry.state, entry.progress.tasks) == (JobState.CANCELLED, 1)
    with pytest.raises(KeyError):
        book.finish(job_id)
