"""The job ledger: what survives, what is lost, what is forgotten, what is cancelled."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from data_bench import Bench
from virtual_time import START_WALL_MS, run_virtually

from elanus.core.errors import JobNotFound, NotCancellable, Unavailable
from elanus.core.jobs import JobEntry, JobKind, JobProgress, JobState
from elanus.datacoord.ledger import JobLedger
from elanus.meta.port import Put

ADDRESS = "unix:/pipeline"


def entry(number: int = 1, state: JobState = JobState.RUNNING, kind: JobKind = JobKind.FLUSH) -> JobEntry:
    ended_s = 0.0 if state in (JobState.WAITING, JobState.RUNNING) else START_WALL_MS / 1000 + number
    return JobEntry(
        f"job-{number}",
        "life",
        kind,
        "size",
        ("ch",),
        1,
        state=state,
        ordered_s=float(number),
        started_s=2.0,
        ended_s=ended_s,
    )


async def started(bench: Bench, jobs_max: int = 100) -> JobLedger:
    ledger = bench.ledger(jobs_max)
    await ledger.start()
    return ledger


def test_the_ledger_outlives_its_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        ledger = await started(bench)
        whole = replace(entry(1, JobState.FINISHED), outputs=("a",), output_count=1, rows=7, size_bytes=8)
        await ledger.report_jobs("life", ADDRESS, (whole, entry(2, JobState.FAILED)))
        again = await started(bench)
        assert await again.jobs() == (whole, entry(2, JobState.FAILED))
        assert await again.job("job-1") == whole
        with pytest.raises(JobNotFound, match="no job 'job-9'"):
            await again.job("job-9")

    run_virtually(scenario())


def test_an_entry_that_cannot_be_read_keeps_no_server_from_starting(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        await bench.meta.txn([Put("datacoord/job/old", b'{"kind": "of another release"}')])
        assert await (await started(bench)).jobs() == ()

    run_virtually(scenario())


def test_the_jobs_of_a_process_that_died_become_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        ledger = await started(bench)
        await ledger.report_jobs("life", ADDRESS, (entry(1), entry(2, JobState.FINISHED)))
        await asyncio.sleep(9.0)
        await ledger.expire()
        assert [e.state for e in await ledger.jobs()] == [JobState.RUNNING, JobState.FINISHED]
        await ledger.report_jobs("life", ADDRESS, ())
        await asyncio.sleep(9.0)
        await ledger.expire()
        assert (await ledger.job("job-1")).state is JobState.RUNNING, "it gave a sign of life"
        await asyncio.sleep(2.0)
        await ledger.expire()
        gone = await ledger.job("job-1")
        assert (gone.state, bool(gone.ended_s)) == (JobState.LOST, True)
        assert await (await started(bench)).job("job-1") == gone, "that is persisted"

    run_virtually(scenario())


def test_jobs_of_a_life_before_the_coordinators_are_lost_when_nobody_speaks_for_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        await (await started(bench)).report_jobs("life", ADDRESS, (entry(1),))
        ledger = await started(bench)
        await ledger.expire()
        assert (await ledger.job("job-1")).state is JobState.RUNNING, "its process may be about to speak"
        await asyncio.sleep(11.0)
        await ledger.expire()
        assert (await ledger.job("job-1")).state is JobState.LOST

    run_virtually(scenario())


def test_a_process_that_was_only_slow_gets_its_jobs_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        ledger = await started(bench)
        await ledger.report_jobs("life", ADDRESS, (entry(1),))
        await asyncio.sleep(11.0)
        await ledger.expire()
        await ledger.report_jobs("life", ADDRESS, (entry(1, JobState.FINISHED),))
        assert (await ledger.job("job-1")).state is JobState.FINISHED

    run_virtually(scenario())


def test_the_ledger_is_bounded_in_number_and_age(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        ledger = await started(bench, jobs_max=2)
        many = tuple(entry(n, JobState.FINISHED) for n in range(1, 301))
        await ledger.report_jobs("life", ADDRESS, (*many, entry(301)))
        await ledger.expire()
        kept = [e.job_id for e in await (await started(bench)).jobs()]
        assert kept == ["job-299", "job-300", "job-301"]
        await asyncio.sleep(600.0 + 302.0)
        await ledger.report_jobs("life", ADDRESS, ())
        await ledger.expire()
        assert [e.job_id for e in await ledger.jobs()] == ["job-301"], "it runs"

    run_virtually(scenario())


def test_each_end_is_counted_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        ledger = await started(bench)
        for state in (
            JobState.WAITING,
            JobState.RUNNING,
            JobState.FINISHED,
            JobState.FINISHED,
            JobState.RUNNING,
        ):
            await ledger.report_jobs("life", ADDRESS, (entry(1, state),))
        assert bench.ended == [entry(1, JobState.FINISHED)]

    run_virtually(scenario())


def test_progress_is_shown_and_costs_no_transaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        ledger = await started(bench)
        await ledger.report_jobs("life", ADDRESS, (entry(1),))
        before = await bench.snapshot()
        further = replace(entry(1), progress=JobProgress(4, 3))
        await ledger.report_jobs("life", ADDRESS, (further,))
        assert (await ledger.job("job-1")).progress == JobProgress(4, 3)
        assert await bench.snapshot() == before

    run_virtually(scenario())


def test_what_is_cancelled_and_what_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        ledger = await started(bench)
        build = entry(1, kind=JobKind.INDEX_BUILD)
        mute = replace(entry(4, kind=JobKind.INDEX_BUILD), owner="mute")
        await ledger.report_jobs("life", ADDRESS, (build, entry(2), entry(3, JobState.FINISHED)))
        await ledger.report_jobs("mute", "", (mute,))
        await ledger.cancel_job("job-1")
        assert bench.pipelines[ADDRESS].calls.of("cancel_job") == ["job-1"]
        with pytest.raises(NotCancellable, match="a flush is not cancelled: writers wait"):
            await ledger.cancel_job("job-2")
        with pytest.raises(NotCancellable, match="job-3 has ended: it is finished"):
            await ledger.cancel_job("job-3")
        with pytest.raises(Unavailable, match="has not reported"):
            await ledger.cancel_job("job-4")
        with pytest.raises(JobNotFound):
            await ledger.cancel_job("job-9")

    run_virtually(scenario())
