"""Spark in a process of its own: calls over a socket pair, and the end of either side."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import pytest
from polling import until

from elanus.core.errors import DiskFull
from elanus.core.jobs import JobProgress
from elanus.pipeline.driver import DriverFailed, Drivers, DriverSession, Started
from elanus.pipeline.driver_calls import DriverCalls
from elanus.pipeline.last_words import explained
from elanus.pipeline.port import JobCancelled, JobFailed, JobLost, RunningJob

PATIENCE_S = 20
TASKS = Path("tasks")


class Spark:
    """A session whose jobs wait at a gate when their plan is "wait"."""

    slots = 3
    task_scratch = TASKS

    def __init__(self) -> None:
        self.running = threading.Event()
        self.go_on = threading.Event()
        self.cancelled: list[str] = []
        self.stops: list[str] = []
        self.alive = True
        self.cpus: list[int] = []

    def run(
        self,
        task: Callable[[Any], Any],
        plans: Sequence[Any],
        *,
        group: str,
        description: str,
        pool: str,
        cpus: int = 1,
    ) -> list[Any]:
        self.cpus.append(cpus)
        if "wait" in plans:
            self.running.set()
            assert self.go_on.wait(PATIENCE_S)
        if group in self.cancelled:
            raise JobCancelled(description)
        return [task(plan) for plan in plans]

    def running_job(self, group: str) -> RunningJob | None:
        return RunningJob(JobProgress(2, 1), f"http://ui/{group}")

    def cancel(self, group: str) -> None:
        self.cancelled.append(group)
        self.go_on.set()

    def is_alive(self) -> bool:
        return self.alive

    def stop(self) -> None:
        self.stops.append("stop")

    def stop_for_good(self) -> None:
        self.stops.append("for good")


class Process:
    """The process around `Pair.calls`: it ends when its standard input is closed."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self.code: int | None = None
        self.stdin = self
        self._ended = ended

    def close(self) -> None:
        self.kill()

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.code = 0
        self._ended()

    def wait(self, timeout: float | None = None) -> int:
        assert self.code is not None, "it was not asked to end"
        return self.code


class Pair:
    """Both sides in this process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.spark = Spark()
        self.calls = DriverCalls(Connection(theirs.detach()), self.spark)
        self.process = Process(self.end)
        self.serving = threading.Thread(target=self.calls.serve, daemon=True)
        self.serving.start()
        self.session = DriverSession(
            cast("subprocess.Popen[bytes]", self.process), Connection(ours.detach()), Started(3, TASKS, None)
        )
        self.threads = ThreadPoolExecutor(4)

    def end(self) -> None:
        """As the system does for a process that has died."""
        connection = self.calls._connection
        if not connection.closed:
            duplicate = socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
            duplicate.shutdown(socket.SHUT_RDWR)
            duplicate.close()

    def job(self, *plans: Any, task: Callable[[Any], Any] = str, group: str = "g") -> list[Any]:
        return self.session.run(task, plans, group=group, description="the job", pool="p")


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.spark.go_on.set()
    pair.process.kill()
    pair.serving.join(PATIENCE_S)
    assert not pair.serving.is_alive()


def full(_: object) -> None:
    raise DiskFull("no room in the worker")


def broken(_: object) -> None:
    raise KeyError("a bug")


def failed(_: object) -> None:
    error = JobFailed("the job: it did not work")
    error.add_note("in a task of: the job")
    raise error


def test_outcomes_and_looks_come_back(pair: Pair) -> None:
    assert pair.job(1, 2, 3) == ["1", "2", "3"]
    assert pair.session.running_job("g") == RunningJob(JobProgress(2, 1), "http://ui/g")
    assert (pair.session.slots, pair.session.task_scratch) == (3, TASKS)


def test_errors_of_our_own_arrive_as_themselves_with_their_notes(pair: Pair) -> None:
    with pytest.raises(DiskFull, match="no room in the worker"):
        pair.job(1, task=full)
    with pytest.raises(JobFailed, match="it did not work") as caught:
        pair.job(1, task=failed)
    assert caught.value.__notes__ == ["in a task of: the job"]


def test_any_other_error_is_a_lost_job_that_says_what_it_was(pair: Pair) -> None:
    with pytest.raises(JobLost, match="KeyError: 'a bug'"):
        pair.job(1, task=broken)


def test_a_job_that_runs_delays_no_look_and_can_be_cancelled(pair: Pair) -> None:
    job = pair.threads.submit(pair.job, "wait")
    assert pair.spark.running.wait(PATIENCE_S)
    assert pair.session.running_job("g") is not None
    assert pair.job(7, group="another") == ["7"]
    pair.session.cancel("g")
    with pytest.raises(JobCancelled):
        job.result(PATIENCE_S)


def test_the_death_of_the_process_loses_its_jobs_and_later_calls(pair: Pair) -> None:
    job = pair.threads.submit(pair.job, "wait")
    assert pair.spark.running.wait(PATIENCE_S)
    assert pair.session.is_alive()
    pair.process.kill()
    with pytest.raises(JobLost, match="the job: the pipeline process ended"):
        job.result(PATIENCE_S)
    assert not pair.session.is_alive()
    with pytest.raises(JobLost, match="the job: the pipeline process ended"):
        pair.job(1)
    assert pair.session.running_job("g") is None
    pair.session.cancel("g")


@pytest.mark.parametrize(("method", "seen"), [("stop", "stop"), ("stop_for_good", "for good")])
def test_a_stop_ends_spark_and_then_the_process(pair: Pair, method: str, seen: str) -> None:
    getattr(pair.session, method)()
    assert pair.spark.stops == [seen]
    assert pair.process.code == 0
    assert not pair.calls.wait_for_death(0.001), "it was stopped, it did not die"


def test_spark_that_dies_is_noticed(pair: Pair) -> None:
    pair.spark.alive = False
    assert pair.calls.wait_for_death(0.001)


PROGRAM = """
import sys
from pathlib import Path
from elanus.pipeline.driver import NotStarted, Started, inherited
connection = inherited(sys.argv[1])
order = connection.recv()
if order == "fail":
    print("Could not reserve enough space", flush=True)  # as Java says it
    connection.send(NotStarted("no Java"))
elif order == "start":
    connection.send(Started(2, Path("tasks"), None))
if order == "die":
    print("pthread_create failed for thread 1 of 2", file=sys.stderr)  # as OpenBLAS says it
else:
    sys.stdin.read()
"""


def drivers(order: str) -> Drivers:
    return Drivers([sys.executable, "-c", PROGRAM], order)


def test_a_process_starts_and_ends_and_no_other_starts_then() -> None:
    running = drivers("start")
    assert running.pid is None
    session = running.start()
    assert (session.slots, session.is_alive()) == (2, True)
    assert running.pid is not None
    running.close()
    assert running.pid is None
    with pytest.raises(DriverFailed, match="ends"):
        running.start()


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ("fail", r"no Java: Could not reserve enough space: there is not enough memory: raise"),
        ("die", r"ended with code 0 before Spark ran: pthread_create failed .* of 2: no more threads"),
    ],
)
def test_a_process_that_does_not_start_spark_says_why(order: str, reason: str) -> None:
    failing = drivers(order)
    with pytest.raises(DriverFailed, match=reason):
        failing.start()
    failing.close()
    assert failing.pid is None


def test_the_remedy_follows_from_the_last_lines_or_from_the_exit_code() -> None:
    java = (
        "{a line of the log}",
        "#",
        "# There is insufficient memory for the Java Runtime Environment",
        "# x",
    )
    assert explained("refused", java).startswith("refused: There is insufficient memory for the Java Runtime")
    assert "ulimit -u" in explained("ended with code 130", (), 130)
    assert "pipeline.driver_memory_mb" in explained("ended with code -9", (), -9)
    assert "ulimit -u" in explained("RuntimeError: can't start new thread", ())
    assert explained("refused", ("{a line}", "one", "two", "three")) == "refused: two; three"
    assert explained("ended with code 1", (), 1) == "ended with code 1"


def test_a_start_that_goes_on_is_ended() -> None:
    starting = drivers("wait")
    with ThreadPoolExecutor(1) as threads:
        start = threads.submit(starting.start)
        while starting.pid is None:
            assert not start.done()
            time.sleep(0.001)
        starting.close()
        with pytest.raises(DriverFailed):
            start.result(PATIENCE_S)


def test_the_cores_of_a_task_and_the_slots_of_workers_that_join_are_known_on_both_sides(pair: Pair) -> None:
    pair.session.run(str, [1], group="g", description="the job", pool="p", cpus=2)
    assert pair.spark.cpus == [2]
    watch = pair.threads.submit(pair.calls.wait_for_death, 0.001)
    pair.spark.slots = 5
    until(lambda: pair.session.slots == 5, "the workers have joined")
    pair.session._call("stop").result(PATIENCE_S)
    assert watch.result(PATIENCE_S) is False
