"""Spark in a process of its own: the caller's side.

Spark's Python side, its JVM and its workers live in the *pipeline process*, which exists only while Spark
runs. The roles that order jobs are elsewhere and stay: they speak to that process over a socket pair, by
messages that pickle. So a server whose Spark sleeps holds neither PySpark nor a second set of libraries in
memory, and a Spark that dies takes no role with it.

The other side is `elanus.pipeline.driver_calls`. Nothing here imports Spark.

Left out: starting a process again. `elanus.pipeline.on_demand` does that when a job needs it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from elanus.core.faults import JobFault
from elanus.pipeline.class_archive import ClassArchive
from elanus.pipeline.last_words import LastWords
from elanus.pipeline.port import JobLost, RunningJob

Plan = TypeVar("Plan")
Outcome = TypeVar("Outcome")

_EXIT_TIMEOUT_S = 40.0
"""How long a process may take to stop Spark in order; its JVM has half a minute of that."""
_QUICK_EXIT_TIMEOUT_S = 8.0
_GONE = "the pipeline process ended"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a method of the session in the other process."""

    number: int
    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a call. ``error`` is raised at the caller."""

    number: int
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The first message of a process: its session runs, with these properties."""

    slots: int
    task_scratch: Path
    archive: ClassArchive | None


@dataclass(frozen=True, slots=True)
class Slots:
    """A message of a running process: its workers have come or gone, and it has so many slots now."""

    slots: int


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The first message of a process whose session does not start."""

    reason: str


class DriverFailed(JobFault):
    """The pipeline process did not start Spark. The text says why."""


class DriverSession:
    """Implements `elanus.pipeline.on_demand.SparkSession` by a session in another process."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection, started: Started) -> None:
        self.slots = started.slots
        self.task_scratch = started.task_scratch
        self.archive = started.archive
        self._process = process
        self._connection = connection
        self._numbers = count(1)
        self._calls: dict[int, Future[Any]] = {}
        self._gone = False
        self._lock = threading.Lock()
        threading.Thread(target=self._read, name="spark driver", daemon=True).start()

    def run(
        self,
        task: Callable[[Plan], Outcome],
        plans: Sequence[Plan],
        *,
        group: str,
        description: str,
        pool: str,
        cpus: int = 1,
    ) -> list[Outcome]:
        """As `elanus.pipeline.port.JobSession.run`; `JobLost` if the process ends meanwhile."""
        call = self._call("run", task, list(plans), group, description, pool, cpus)
        try:
            outcomes: list[Outcome] = call.result()
        except JobLost as error:
            raise error if str(error) != _GONE else JobLost(f"{description}: {_GONE}") from None
        return outcomes

    def running_job(self, group: str) -> RunningJob | None:
        with contextlib.suppress(JobLost):  # the caller of `run` receives the error
            job: RunningJob | None = self._call("running_job", group).result()
            return job
        return None

    def cancel(self, group: str) -> None:
        with contextlib.suppress(JobLost):  # `run` ends by itself
            self._call("cancel", group).result()

    def is_alive(self) -> bool:
        """Whether the process runs. It ends on its own when its JVM or its session does."""
        return not self._gone and self._process.poll() is None

    def stop(self) -> None:
        """End Spark in order, and the process.

        Raises what `elanus.pipeline.session.PipelineSession.stop` raises, and `subprocess.TimeoutExpired`.
        """
        self._end("stop", _EXIT_TIMEOUT_S)

    def stop_for_good(self) -> None:
        """End both at once. Jobs that run are lost."""
        try:
            self._end("stop_for_good", _QUICK_EXIT_TIMEOUT_S)
        except (TimeoutError, subprocess.TimeoutExpired):
            _kill(self._process)

    def _end(self, method: str, timeout_s: float) -> None:
        with contextlib.suppress(JobLost):  # it has ended already
            self._call(method).result(timeout_s)
        _close_input(self._process)
        self._process.wait(timeout_s)

    def _call(self, method: str, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        number = next(self._numbers)
        with self._lock:
            if self._gone:
                future.set_exception(JobLost(_GONE))
                return future
            self._calls[number] = future
            try:
                self._connection.send(Call(number, method, arguments))
            except OSError:
                del self._calls[number]
                future.set_exception(JobLost(_GONE))
        return future

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                answer: Answer | Slots = self._connection.recv()
                if isinstance(answer, Slots):
                    self.slots = answer.slots
                    continue
                with self._lock:
                    future = self._calls.pop(answer.number)
                if answer.error is None:
                    future.set_result(answer.value)
                else:
                    future.set_exception(answer.error)
        with self._lock:
            self._gone = True
            lost, self._calls = list(self._calls.values()), {}
            self._connection.close()
        for future in lost:
            future.set_exception(JobLost(_GONE))


class Drivers:
    """Starts pipeline processes, one at a time. Safe for any number of threads.

    ``command``: starts the program; the number of its end of the socket pair is appended. ``order``: the
    first message to it, with all that it needs; arguments would be visible to every user of the machine.
    """

    def __init__(self, command: Sequence[str], order: object) -> None:
        self._command = command
        self._order = order
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The id of the present process; ``None`` while there is none."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> DriverSession:
        """Start a process and wait until its Spark runs: seconds. Raises `DriverFailed`."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            if self._ended:
                ours.close()
                raise DriverFailed("the data node ends")
            self._process = process = subprocess.Popen(
                [*self._command, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
            )
        assert process.stdout is not None
        words = LastWords(process.stdout)
        connection = Connection(ours.detach())
        try:
            connection.send(self._order)
            first: Started | NotStarted = connection.recv()
        except (EOFError, OSError):
            connection.close()
            _close_input(process)
            code = process.wait()
            raise DriverFailed(words.explained(f"{_GONE} with code {code} before Spark ran", code)) from None
        if isinstance(first, NotStarted):
            connection.close()
            _kill(process)
            raise DriverFailed(words.explained(first.reason))
        return DriverSession(process, connection, first)

    def close(self) -> None:
        """Kill the present process, also while it starts; later starts are refused."""
        with self._lock:
            self._ended = True
            process = self._process
        if process is not None:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process; what it started ends with the pipes that it held."""
    process.kill()
    process.wait()
    _close_input(process)


def _close_input(process: subprocess.Popen[bytes]) -> None:
    """A process takes the end of its input as the end of its parent."""
    if process.stdin is not None:
        process.stdin.close()


def inherited(number: str) -> Connection:
    """Return the connection of this process to the one that started it. Its children do not get it."""
    os.set_inheritable(int(number), False)
    return Connection(int(number))
