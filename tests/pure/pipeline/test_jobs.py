"""The job runner on a session without Spark: limits, order, cancellation, and the ledger."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elanus.api.job_book import JobBook
from elanus.core.errors import DiskFull, JobNotFound
from elanus.core.jobs import JobKind, JobProgress, JobState
from elanus.pipeline import jobs
from elanus.pipeline.jobs import JobRunner, default_limits
from elanus.pipeline.port import Job, JobCancelled, JobLost, JobOutput, RunningJob
from elanus.pipeline.progress import ProgressBoard, ProgressReport
from elanus.storage.objects import open_store
from elanus.storage.paths import progress_path

TIMEOUT_S = 10


class HeldSession:
    """Runs each job in the calling thread once the test lets it go on (at once when nothing is held)."""

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots
        self.begun: list[str] = []
        self.pools: list[str] = []
        self.cpus: list[int] = []
        self.cancels: list[str] = []
        self.deaf_to_cancels = 0
        self.running: dict[str, RunningJob] = {}
        self.alive = True
        self._gates: dict[str, threading.Event] = {}
        self._cancelled: set[str] = set()
        self._change = threading.Condition()

    def hold(self, description: str) -> None:
        self._gates[description] = threading.Event()

    def release(self, description: str) -> None:
        self._gates[description].set()

    def run(
        self,
        task: Callable[[Any], Any],
        plans: Sequence[Any],
        *,
        group: str,
        description: str,
        pool: str,
        cpus: int,
    ) -> list[Any]:
        with self._change:
            self.begun.append(description)
            self.pools.append(pool)
            self.cpus.append(cpus)
            self._groups = {**getattr(self, "_groups", {}), group: description}
            self._change.notify_all()
        gate = self._gates.get(description)
        assert gate is None or gate.wait(TIMEOUT_S)
        if group in self._cancelled:
            raise JobCancelled(description)
        return [task(plan) for plan in plans]

    def is_alive(self) -> bool:
        return self.alive

    def running_job(self, group: str) -> RunningJob | None:
        return self.running.get(group)

    def cancel(self, group: str) -> None:
        self.cancels.append(group)
        if len(self.cancels) > self.deaf_to_cancels:
            self._cancelled.add(group)
            self._gates[self._groups[group]].set()

    async def wait_begun(self, *descriptions: str) -> None:
        def wait() -> None:
            with self._change:
                assert self._change.wait_for(lambda: set(descriptions) <= set(self.begun), TIMEOUT_S)

        await asyncio.to_thread(wait)


class Clock:
    """Each look at it lets a second pass."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


def sum_up(outcomes: Sequence[int]) -> JobOutput:
    return JobOutput(tuple(f"file-{outcome}" for outcome in outcomes), sum(outcomes), 100 * sum(outcomes))


def job(
    kind: JobKind, name: str, plans: tuple[int, ...] = (1, 2), task: Callable[[int], int] = int
) -> Job[int, int]:
    return Job(kind, (name,), task, plans, sum_up)


def running(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, TIMEOUT_S))


def test_outcomes_come_in_the_order_of_the_plans_and_are_booked() -> None:
    async def scenario() -> None:
        runner = JobRunner(HeldSession(), book=JobBook(clock=Clock()))
        outcomes = await runner.run(job(JobKind.FLUSH, "ch0", (3, 4)), "user flush", attempt=2)
        assert outcomes == [3, 4]
        (record,) = runner.book.entries()
        assert (record.kind, record.cause, record.inputs) == (JobKind.FLUSH, "user flush", ("ch0",))
        assert (record.state, record.attempt, record.error) == (JobState.FINISHED, 2, "")
        assert (record.outputs, record.output_count) == (("file-3", "file-4"), 2)
        assert (record.rows, record.size_bytes) == (7, 700)
        assert (record.ordered_s, record.started_s, record.ended_s) == (1001.0, 1002.0, 1003.0)
        runner.close()

    running(scenario())


def test_builds_wait_for_each_other_and_flushes_do_not_wait_for_them() -> None:
    async def scenario() -> None:
        session = HeldSession()
        session.hold("index build: a")
        runner = JobRunner(session)
        first = asyncio.create_task(runner.run(job(JobKind.INDEX_BUILD, "a"), "flushed"))
        await session.wait_begun("index build: a")
        second = asyncio.create_task(runner.run(job(JobKind.INDEX_BUILD, "b"), "flushed"))
        await runner.run(job(JobKind.FLUSH, "ch0"), "sealed")
        assert session.begun == ["index build: a", "flush: ch0"]
        states = {record.inputs[0]: record.state for record in runner.book.entries()}
        assert states == {"a": JobState.RUNNING, "b": JobState.WAITING, "ch0": JobState.FINISHED}
        session.release("index build: a")
        await asyncio.gather(first, second)
        assert session.begun[2:] == ["index build: b"]
        assert session.pools == ["INDEX_BUILD", "FLUSH", "INDEX_BUILD"]
        runner.close()

    running(scenario())


def test_an_error_of_a_task_is_raised_and_booked() -> None:
    def fail(_plan: int) -> int:
        raise DiskFull("no room")

    async def scenario() -> None:
        runner = JobRunner(HeldSession())
        with pytest.raises(DiskFull, match="no room"):
            await runner.run(job(JobKind.FLUSH, "ch0", task=fail), "sealed")
        (record,) = runner.book.entries()
        assert (record.state, record.error, record.outputs) == (JobState.FAILED, "DiskFull: no room", ())
        assert await runner.run(job(JobKind.FLUSH, "ch0"), "sealed") == [1, 2]
        runner.close()

    running(scenario())


def test_cancelling_the_caller_cancels_the_job_until_it_has_ended() -> None:
    async def scenario() -> None:
        session = HeldSession()
        session.hold("index build: a")
        session.deaf_to_cancels = 1  # Spark had not begun yet when the first one came
        runner = JobRunner(session)
        task = asyncio.create_task(runner.run(job(JobKind.INDEX_BUILD, "a"), "flushed"))
        await session.wait_begun("index build: a")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (record,) = runner.book.entries()
        assert record.state is JobState.CANCELLED
        assert session.cancels == [record.job_id] * 2
        assert await runner.run(job(JobKind.INDEX_BUILD, "b"), "flushed") == [1, 2], "its place is free again"
        runner.close()

    running(scenario())


def test_a_job_cancelled_while_it_waits_never_begins() -> None:
    async def scenario() -> None:
        session = HeldSession()
        session.hold("index build: a")
        runner = JobRunner(session)
        first = asyncio.create_task(runner.run(job(JobKind.INDEX_BUILD, "a"), "flushed"))
        await session.wait_begun("index build: a")
        second = asyncio.create_task(runner.run(job(JobKind.INDEX_BUILD, "b"), "flushed"))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        session.release("index build: a")
        await first
        assert session.begun == ["index build: a"]
        ended = runner.book.entries()
        assert [record.state for record in ended] == [JobState.CANCELLED, JobState.FINISHED]
        assert ended[0].duration_ms(ended[0].ended_s) == 0
        runner.close()

    running(scenario())


@pytest.mark.parametrize("name", ["a", "b"])
def test_somebody_cancels_a_job_that_runs_or_waits(name: str) -> None:
    async def scenario() -> None:
        session = HeldSession()
        session.hold("index build: a")
        runner = JobRunner(session)
        tasks = {n: asyncio.create_task(runner.run(job(JobKind.INDEX_BUILD, n), "flushed")) for n in "ab"}
        await session.wait_begun("index build: a")
        ids = {entry.inputs[0]: entry.job_id for entry in runner.book.entries()}
        await runner.cancel(ids[name])
        with pytest.raises(JobCancelled):  # not CancelledError: nobody cancelled the task that waits
            await tasks.pop(name)
        (entry,) = [entry for entry in runner.book.entries() if entry.job_id == ids[name]]
        assert entry.state is JobState.CANCELLED
        with pytest.raises(JobNotFound):
            await runner.cancel(ids[name])
        session.release("index build: a")
        for other in tasks.values():
            assert await other == [1, 2]
        runner.close()

    running(scenario())


def test_how_far_a_job_is_gets_written_down_while_it_runs() -> None:
    async def scenario() -> None:
        session = HeldSession()
        session.hold("index build: a")
        runner = JobRunner(session)
        task = asyncio.create_task(runner.run(job(JobKind.INDEX_BUILD, "a"), "flushed", waiting=("a load",)))
        await session.wait_begun("index build: a")
        (entry,) = runner.book.entries()
        assert (entry.progress, entry.waiting) == (JobProgress(tasks=2), ("a load",))
        session.running[entry.job_id] = RunningJob(JobProgress(2, 1, 0.5, rows=7), "http://spark/1")
        while (entry := runner.book.entries()[0]).progress.rows == 0:  # noqa: ASYNC110 - looked at by time
            await asyncio.sleep(0.01)
        assert (entry.progress.percent, entry.ui_url) == (75.0, "http://spark/1")
        session.release("index build: a")
        await task
        (entry,) = runner.book.entries()
        assert (entry.progress.percent, entry.progress.rows) == (100.0, 3)
        runner.close()

    running(scenario())


def test_a_spark_that_does_not_answer_holds_up_no_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_LOOK_INTERVAL_S", 0.01)

    async def scenario() -> None:
        loop, looked, goes_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))

        class Silent(HeldSession):
            def running_job(self, group: str) -> RunningJob | None:
                loop.call_soon_threadsafe(looked.set)
                goes_on.wait(TIMEOUT_S)
                return None

        session = Silent()
        session.hold("flush: ch0")
        runner = JobRunner(session)
        work = asyncio.ensure_future(runner.run(job(JobKind.FLUSH, "ch0"), "sealed"))
        await looked.wait()
        try:
            assert await asyncio.wait_for(asyncio.to_thread(int), TIMEOUT_S / 2) == 0
        finally:
            goes_on.set()
            session.release("flush: ch0")
        assert await work == [1, 2]
        runner.close()

    running(scenario())


def test_a_job_that_is_over_before_anybody_has_looked_has_its_page_too() -> None:
    async def scenario() -> None:
        session = HeldSession()
        session.hold("flush: a")
        runner = JobRunner(session)
        task = asyncio.create_task(runner.run(job(JobKind.FLUSH, "a"), "sealed"))
        await session.wait_begun("flush: a")
        (entry,) = runner.book.entries()
        session.running[entry.job_id] = RunningJob(JobProgress(2, 2), "http://spark/1")
        session.release("flush: a")
        await task
        (entry,) = runner.book.entries()
        assert (entry.state, entry.ui_url) == (JobState.FINISHED, "http://spark/1")
        runner.close()

    running(scenario())


def test_reports_of_tasks_are_added_and_go_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_LOOK_INTERVAL_S", 0.01)
    board = ProgressBoard(tmp_path.as_uri(), "build-1")

    async def scenario() -> None:
        session = HeldSession()
        session.hold("index build: a")
        runner = JobRunner(session)
        reporting = replace(job(JobKind.INDEX_BUILD, "a", (1,)), board=board)
        task = asyncio.create_task(runner.run(reporting, "flushed"))
        await session.wait_begun("index build: a")
        open_store(board.store_url).put(progress_path("build-1", ProgressReport(0, 3, 250, 70).name), b"")
        session.running[runner.book.entries()[0].job_id] = RunningJob(JobProgress(1, 0))
        while not (entry := runner.book.entries()[0]).progress.rows:  # noqa: ASYNC110 - looked at by time
            await asyncio.sleep(0.01)
        assert (entry.progress.percent, entry.progress.rows) == (25.0, 70)
        session.release("index build: a")
        await task
        assert board.read() == []
        runner.close()

    running(scenario())


def test_a_store_that_says_nothing_of_progress_harms_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_LOOK_INTERVAL_S", 0.01)
    looked: list[str] = []

    def broken(board: ProgressBoard) -> list[ProgressReport]:
        looked.append(board.job)
        raise OSError("no connection")

    monkeypatch.setattr(ProgressBoard, "read", broken)
    monkeypatch.setattr(ProgressBoard, "clear", broken)

    async def scenario() -> None:
        session = HeldSession()
        session.hold("index build: a")
        runner = JobRunner(session)
        board = ProgressBoard(tmp_path.as_uri(), "build-1")
        reporting = replace(job(JobKind.INDEX_BUILD, "a"), board=board)
        task = asyncio.create_task(runner.run(reporting, "flushed"))
        while not looked:  # noqa: ASYNC110 - looked at by time
            await asyncio.sleep(0.01)
        session.release("index build: a")
        assert await task == [1, 2]
        runner.close()

    running(scenario())


def test_outcomes_that_cannot_be_summed_up_end_the_job() -> None:
    async def scenario() -> None:
        def fail(_outcomes: Sequence[int]) -> JobOutput:
            raise ZeroDivisionError

        runner = JobRunner(HeldSession())
        with pytest.raises(ZeroDivisionError):
            await runner.run(Job(JobKind.FLUSH, ("a",), int, (1,), fail), "sealed")
        (entry,) = runner.book.entries()
        assert entry.state is JobState.FAILED
        runner.close()

    running(scenario())


def test_the_ledger_keeps_the_latest_jobs_only() -> None:
    async def scenario() -> None:
        runner = JobRunner(HeldSession(), book=JobBook(history_max_jobs=3))
        for number in range(5):
            await runner.run(job(JobKind.FLUSH, str(number)), "sealed")
        assert [record.inputs[0] for record in runner.book.entries()] == ["2", "3", "4"]
        assert len({record.job_id for record in runner.book.entries()}) == 3
        runner.close()

    running(scenario())


def test_builds_and_compactions_together_leave_a_slot_for_flushes() -> None:
    async def scenario() -> None:
        session = HeldSession(slots=2)
        runner = JobRunner(session)
        session.hold("index build: a")
        build = asyncio.ensure_future(runner.run(job(JobKind.INDEX_BUILD, "a"), "flushed"))
        await session.wait_begun("index build: a")
        compaction = asyncio.ensure_future(runner.run(job(JobKind.COMPACTION, "b"), "small"))
        await runner.run(job(JobKind.FLUSH, "c"), "sealed")
        assert session.begun == ["index build: a", "flush: c"]
        session.release("index build: a")
        await asyncio.gather(build, compaction)
        assert session.begun[2:] == ["compaction: b"]
        runner.close()

    running(scenario())


def test_imports_at_the_same_time_have_equal_shares() -> None:
    """Jobs of one pool have their turns one after another; pools of Spark's scheduler share the slots."""

    async def scenario() -> None:
        session = HeldSession()
        runner = JobRunner(session)
        for name in ("import: a", "import: b"):
            session.hold(name)
        first, second = (
            asyncio.create_task(runner.run(job(JobKind.IMPORT, name), "files")) for name in ("a", "b")
        )
        await session.wait_begun("import: a", "import: b")
        assert set(session.pools) == {"IMPORT-0", "IMPORT-1"}
        session.release("import: a")
        await first
        await runner.run(job(JobKind.IMPORT, "c"), "files")
        assert session.pools[2] == session.pools[session.begun.index("import: a")], "pools are used again"
        session.release("import: b")
        await second
        runner.close()

    running(scenario())


def test_builds_run_as_many_at_a_time_as_is_set_or_as_there_are_slots_for() -> None:
    """A build of 4 cores, of 9 slots: two have room, and a slot is left to flushes."""

    async def scenario(builds: int, *expected: str) -> None:
        session = HeldSession(slots=9)
        runner = JobRunner(session, default_limits(9, builds))
        for name in "abc":
            session.hold(f"index build: {name}")
        jobs = [replace(job(JobKind.INDEX_BUILD, name, (1,)), cpus=4) for name in "abc"]
        tasks = [asyncio.create_task(runner.run(one, "flushed")) for one in jobs]
        await session.wait_begun(*expected)
        await runner.run(job(JobKind.FLUSH, "d"), "sealed")
        assert sorted(session.begun) == ["flush: d", *expected]
        for name in "abc":
            session.release(f"index build: {name}")
        await asyncio.gather(*tasks)
        assert sorted(session.cpus) == [1, 4, 4, 4]
        runner.close()

    running(scenario(1, "index build: a"))
    running(scenario(0, "index build: a", "index build: b"))


def test_large_builds_that_do_not_fit_into_memory_together_run_one_after_the_other() -> None:
    """There are cores for all of them, and memory for a large one and a small one."""

    async def scenario() -> None:
        session = HeldSession(slots=9)
        runner = JobRunner(session, default_limits(9, 0), memory_bytes=100)
        sizes = {"a": 60, "b": 60, "c": 40}
        for name in sizes:
            session.hold(f"index build: {name}")
        jobs = [
            replace(job(JobKind.INDEX_BUILD, name, (1,)), memory_bytes=size_bytes)
            for name, size_bytes in sizes.items()
        ]
        tasks = [asyncio.create_task(runner.run(one, "flushed")) for one in jobs]
        await session.wait_begun("index build: a")
        await runner.run(job(JobKind.FLUSH, "d"), "sealed")
        assert sorted(session.begun) == ["flush: d", "index build: a"], "flushes never wait for builds"
        session.release("index build: a")
        await session.wait_begun("index build: b", "index build: c")
        for name in "bc":
            session.release(f"index build: {name}")
        await asyncio.gather(*tasks)
        runner.close()

    running(scenario())


@pytest.mark.parametrize("alive", [True, False])
def test_a_job_that_ends_with_its_spark_is_no_failure_of_its_own(alive: bool) -> None:
    """Its role ends with Spark too, and its coordinator orders the job again."""

    def lost(_: int) -> int:
        session.alive = alive
        raise JobLost("the pipeline process ended")

    session = HeldSession()
    runner = JobRunner(session)

    async def ordered() -> bool:
        work = asyncio.ensure_future(runner.run(job(JobKind.COMPACTION, "segment 1", task=lost), "test"))
        while [entry.state for entry in runner.book.entries()] != [JobState.FAILED]:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        done, _ = await asyncio.wait([work], timeout=TIMEOUT_S if alive else 0.05)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return bool(done)

    assert running(ordered()) is alive
