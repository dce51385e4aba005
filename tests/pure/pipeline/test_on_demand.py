"""The session that sleeps without jobs, on stand-ins for Spark and a clock of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from elanus.api.pipeline import SparkState
from elanus.pipeline.on_demand import OnDemandSession
from elanus.pipeline.port import JobCancelled, JobLost, RunningJob

IDLE_STOP_S = 60.0
PATIENCE_S = 20


class Spark:
    """A session: what happened to it, and a gate at which it stops."""

    slots = 2
    task_scratch = Path("tasks")

    def __init__(self, number: int) -> None:
        self.number = number
        self.stops: list[str] = []
        self.cancels: list[str] = []
        self.alive = True
        self.stopping = threading.Event()
        self.may_stop = threading.Event()
        self.may_stop.set()
        self.stop_error: Exception | None = None

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
        assert not self.stops, "no job runs on a session that was stopped"
        return [task(plan) for plan in plans]

    def running_job(self, group: str) -> RunningJob | None:
        return None

    def cancel(self, group: str) -> None:
        self.cancels.append(group)

    def is_alive(self) -> bool:
        return self.alive

    def stop(self) -> None:
        self.stopping.set()
        assert self.may_stop.wait(PATIENCE_S)
        self.stops.append("stop")
        if self.stop_error is not None:
            raise self.stop_error

    def stop_for_good(self) -> None:
        self.stops.append("for good")


class Place:
    """The session under test, all sessions that it had, and its clock. It is its own preparation."""

    def __init__(self, idle_stop_s: float = IDLE_STOP_S) -> None:
        self.now_s = 0.0
        self.sparks = [Spark(0)]
        self.start_error: Exception | None = None
        self.starting = threading.Event()
        self.may_start = threading.Event()
        self.may_start.set()
        self.prepared: list[str] = []
        self.session = OnDemandSession(self.sparks[0], self._start, idle_stop_s, lambda: self.now_s, self)
        self.threads = ThreadPoolExecutor(8)

    def begin(self) -> None:
        self.prepared.append("begin")

    def give_up(self) -> None:
        self.prepared.append("give up")

    def _start(self) -> Spark:
        self.starting.set()
        assert self.may_start.wait(PATIENCE_S)
        if self.start_error is not None:
            raise self.start_error
        self.sparks.append(Spark(len(self.sparks)))
        return self.sparks[-1]

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.session.stop_if_idle()

    def sleep(self) -> None:
        self.pass_time(IDLE_STOP_S)
        assert self.session.state is SparkState.ASLEEP

    def job(
        self, plan: int = 1, task: Callable[[Any], Any] = lambda plan: plan, group: str = "g"
    ) -> list[Any]:
        return self.session.run(task, [plan], group=group, description="the job", pool="p")

    def order(self, plan: int = 1, group: str = "g") -> Future[list[Any]]:
        return self.threads.submit(self.job, plan, group=group)

    def until_awake(self) -> None:
        changed = self.session._changed
        with changed:
            assert changed.wait_for(lambda: self.session.state is SparkState.AWAKE, PATIENCE_S)

    def until_waiting(self, *groups: str) -> None:
        """Wait until these jobs wait for a session."""
        changed, waiting = self.session._changed, self.session._waiting
        while True:
            with changed:
                if set(groups) <= set(waiting):
                    return
            time.sleep(0.001)


@pytest.fixture
def place() -> Iterator[Place]:
    found = Place()
    yield found
    found.may_start.set()
    for spark in found.sparks:
        spark.may_stop.set()
    found.threads.shutdown()


def test_it_sleeps_after_its_time_without_a_job_and_no_earlier(place: Place) -> None:
    place.pass_time(IDLE_STOP_S - 1)
    assert place.session.state is SparkState.AWAKE
    place.job()
    place.pass_time(IDLE_STOP_S - 1)
    assert (place.session.state, place.sparks[0].stops) == (SparkState.AWAKE, []), (
        "counted from the job's end"
    )
    place.pass_time(1)
    assert (place.session.state, place.sparks[0].stops) == (SparkState.ASLEEP, ["stop"])
    place.pass_time(IDLE_STOP_S)
    assert place.sparks[0].stops == ["stop"], "once"


def test_it_never_sleeps_with_a_time_of_zero() -> None:
    place = Place(idle_stop_s=0)
    place.pass_time(1e9)
    assert (place.session.state, place.sparks[0].stops) == (SparkState.AWAKE, [])


def test_it_does_not_sleep_while_a_job_runs_however_long(place: Place) -> None:
    def long(plan: int) -> int:
        place.pass_time(10 * IDLE_STOP_S)
        return plan

    assert place.job(7, long) == [7]
    assert place.sparks[0].stops == []


def test_asleep_it_is_alive_and_has_its_slots_and_its_scratch(place: Place) -> None:
    place.sleep()
    assert place.session.is_alive()
    assert (place.session.slots, place.session.task_scratch) == (Spark.slots, Spark.task_scratch)
    assert place.session.running_job("g") is None


def test_a_job_wakes_it(place: Place) -> None:
    place.sleep()
    assert place.job(3) == [3]
    assert (place.session.state, len(place.sparks)) == (SparkState.AWAKE, 2)
    place.sleep()
    assert [spark.stops for spark in place.sparks] == [["stop"], ["stop"]]


def test_the_first_rows_after_a_quiet_time_start_it_before_the_job(place: Place) -> None:
    place.sleep()
    place.may_start.clear()
    place.session.rows_arrived()  # returns although nothing has started yet
    assert place.starting.wait(PATIENCE_S)
    assert place.session.state is SparkState.STARTING
    place.session.rows_arrived()
    place.may_start.set()
    assert place.job(5) == [5]
    assert len(place.sparks) == 2, "one start serves the rows and the job"
    place.pass_time(IDLE_STOP_S - 1)
    assert place.session.state is SparkState.AWAKE


def test_rows_that_trickle_in_let_it_sleep(place: Place) -> None:
    for _ in range(3):
        place.pass_time(IDLE_STOP_S / 2)
        place.session.rows_arrived()
    assert place.session.state is SparkState.ASLEEP
    assert len(place.sparks) == 1


def test_a_start_without_a_job_sleeps_again_and_the_next_one_waits_for_a_longer_quiet_time(
    place: Place,
) -> None:
    place.sleep()
    place.session.rows_arrived()
    place.until_awake()
    place.sleep()
    place.now_s += 0.5 * IDLE_STOP_S
    place.session.rows_arrived()
    assert place.session.state is SparkState.ASLEEP
    place.now_s += 2 * IDLE_STOP_S
    place.session.rows_arrived()
    place.until_awake()
    place.job()  # it was right: the quiet time is the first one again
    place.sleep()
    place.session.rows_arrived()
    place.until_awake()


def test_a_start_ahead_that_fails_ends_the_process_like_any_other(place: Place) -> None:
    place.sleep()
    place.start_error = RuntimeError("no Java")
    place.session.rows_arrived()
    with pytest.raises(JobLost):
        place.job()
    assert not place.session.is_alive()


def test_many_jobs_wake_it_once(place: Place) -> None:
    place.sleep()
    place.may_start.clear()
    ordered = [place.order(n, f"g{n}") for n in range(4)]
    assert place.starting.wait(PATIENCE_S)
    place.pass_time(10 * IDLE_STOP_S)
    place.may_start.set()
    assert [job.result(PATIENCE_S) for job in ordered] == [[n] for n in range(4)]
    assert len(place.sparks) == 2


def test_a_job_that_comes_while_it_stops_waits_and_runs_on_the_next(place: Place) -> None:
    place.sparks[0].may_stop.clear()
    place.now_s = IDLE_STOP_S
    stopping = place.threads.submit(place.session.stop_if_idle)
    assert place.sparks[0].stopping.wait(PATIENCE_S)
    job = place.order(5)
    place.until_waiting("g")
    assert (place.session.state, place.session.is_alive()) == (SparkState.STOPPING, True)
    assert len(place.sparks) == 1, "one after the other: Spark can only be once in a process"
    place.sparks[0].may_stop.set()
    assert job.result(PATIENCE_S) == [5]
    stopping.result(PATIENCE_S)
    assert len(place.sparks) == 2


def test_a_job_that_finds_no_spark_is_lost_and_the_process_has_to_end(place: Place) -> None:
    place.sleep()
    place.start_error = OSError("no java")
    with pytest.raises(JobLost, match="the job: Spark did not start: no java"):
        place.job()
    assert not place.session.is_alive()
    with pytest.raises(JobLost, match="Spark does not run"):
        place.job()


def test_a_start_that_fails_loses_all_jobs_that_wait_for_it(place: Place) -> None:
    place.sleep()
    place.may_start.clear()
    first = place.order(group="first")
    assert place.starting.wait(PATIENCE_S)
    second = place.order(group="second")
    place.until_waiting("second")
    place.start_error = OSError("no java")
    place.may_start.set()
    for job in (first, second):
        with pytest.raises(JobLost):
            job.result(PATIENCE_S)


def test_a_stop_that_fails_ends_the_process_and_loses_the_job_that_waits(place: Place) -> None:
    place.sparks[0].stop_error = TimeoutError("still there")
    place.sparks[0].may_stop.clear()
    place.now_s = IDLE_STOP_S
    stopping = place.threads.submit(place.session.stop_if_idle)
    assert place.sparks[0].stopping.wait(PATIENCE_S)
    job = place.order()
    place.until_waiting("g")
    place.sparks[0].may_stop.set()
    with pytest.raises(JobLost):
        job.result(PATIENCE_S)
    stopping.result(PATIENCE_S)
    assert not place.session.is_alive()
    assert len(place.sparks) == 1


def test_a_jvm_that_dies_awake_is_noticed(place: Place) -> None:
    place.sparks[0].alive = False
    assert not place.session.is_alive()


def test_a_job_is_cancelled_while_it_waits_for_a_start(place: Place) -> None:
    place.sleep()
    place.may_start.clear()
    first = place.order(1, "first")
    assert place.starting.wait(PATIENCE_S)
    second = place.order(2, "second")
    place.until_waiting("second")
    place.session.cancel("second")
    with pytest.raises(JobCancelled):
        second.result(PATIENCE_S)
    place.may_start.set()
    assert first.result(PATIENCE_S) == [1]


def test_a_running_job_is_cancelled_in_its_session(place: Place) -> None:
    def cancelled(plan: int) -> int:
        place.session.cancel("g")
        return plan

    place.job(1, cancelled)
    assert place.sparks[0].cancels == ["g"]


def test_the_end_of_the_process_ends_a_session_that_runs_and_needs_none(place: Place) -> None:
    place.session.stop_for_good()
    assert place.sparks[0].stops == ["for good"]
    asleep = Place()
    asleep.sleep()
    asleep.session.stop_for_good()
    assert asleep.sparks[0].stops == ["stop"]


def test_a_session_that_starts_while_the_process_ends_is_ended(place: Place) -> None:
    place.sleep()
    place.may_start.clear()
    job = place.order()
    assert place.starting.wait(PATIENCE_S)
    place.session.stop_for_good()
    place.may_start.set()
    with pytest.raises(JobLost, match="the process ends"):
        job.result(PATIENCE_S)
    assert place.sparks[1].stops == ["for good"]


def test_what_is_prepared_while_it_sleeps_is_given_up_before_it_starts(place: Place) -> None:
    place.sleep()
    assert place.prepared == ["begin"]
    place.may_start.clear()
    job = place.order()
    assert place.starting.wait(PATIENCE_S)
    assert place.prepared == ["begin", "give up"]
    place.may_start.set()
    job.result(PATIENCE_S)
