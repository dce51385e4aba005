"""A Spark session that ends when no job needs it, and comes back with the next job.

Spark's JVM and its Python workers hold several hundred megabytes whether they work or not, and most servers
flush and index a few minutes an hour. So a session that ran no job for a while is stopped, with its process
(`elanus.pipeline.driver`). The data node stays: it keeps its registration, follows the log and takes
orders. Only a job needs Spark, and a job that finds none waits while a session starts. No job is refused
for it, neither while Spark sleeps nor while it stops. The first rows after a quiet time start it ahead of the
job that they announce (`elanus.pipeline.head_start`).

All methods block, and may be called from any number of threads.

Left out: what to do when Spark cannot be started or stopped. The session is then `SparkState.FAILED`, which
`is_alive` reports: the data node starts again, and the jobs are lost as with a JVM that died, so
the roles that ordered them order them again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from elanus.api.pipeline import SparkState
from elanus.pipeline.head_start import HeadStart
from elanus.pipeline.port import JobCancelled, JobLost, JobSession, RunningJob

Plan = TypeVar("Plan")
Outcome = TypeVar("Outcome")

_END_WAIT_S = 2.0
"""How long `OnDemandSession.stop_for_good` waits for a stop that has begun."""
_log = structlog.get_logger("pipeline")


class SparkSession(JobSession, Protocol):
    """A running session (`elanus.pipeline.driver.DriverSession`)."""

    @property
    def task_scratch(self) -> Path: ...

    def is_alive(self) -> bool: ...

    def stop(self) -> None: ...

    def stop_for_good(self) -> None: ...


class Preparation(Protocol):
    """Work that makes the next start faster, done while Spark sleeps (`elanus.pipeline.class_training`)."""

    def begin(self) -> None:
        """Begin it, if it is needed. Returns at once."""
        ...

    def give_up(self) -> None:
        """End it; the next start needs the processors. Also called when it has not begun or has ended."""
        ...


class OnDemandSession:
    """Implements `JobSession` on sessions that come and go.

    ``first`` runs already; ``start`` starts the later ones, with the same settings. A session that ran no job
    for ``idle_stop_s`` is stopped by `stop_if_idle`; 0 stands for never.
    """

    def __init__(
        self,
        first: SparkSession,
        start: Callable[[], SparkSession],
        idle_stop_s: float,
        monotonic_s: Callable[[], float],
        preparation: Preparation,
    ) -> None:
        self.task_scratch = first.task_scratch
        self._session = first
        """The present session; the last one while there is none."""
        self._start = start
        self._idle_stop_s = idle_stop_s
        self._monotonic_s = monotonic_s
        self._preparation = preparation
        self._state = SparkState.AWAKE
        self._changed = threading.Condition()
        self._jobs = 0
        """The jobs that run or wait for a session."""
        self._waiting: dict[str, bool] = {}
        """The groups of the jobs that wait for a session, and whether each has been cancelled."""
        self._idle_since_s = monotonic_s()
        self._head_start = HeadStart(idle_stop_s)

    @property
    def slots(self) -> int:
        """How many tasks run at a time: in the last session, while there is none."""
        return self._session.slots

    @property
    def state(self) -> SparkState:
        return self._state

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
        """As `JobSession.run`, after a start of Spark if it sleeps. Raises `JobLost` if it does not start."""
        with self._changed:
            self._jobs += 1
            self._head_start.job()
        try:
            session = self._awake(group, description)
            return session.run(task, plans, group=group, description=description, pool=pool, cpus=cpus)
        finally:
            with self._changed:
                self._jobs -= 1
                self._idle_since_s = self._monotonic_s()

    def rows_arrived(self) -> None:
        """Start Spark if it sleeps and these rows announce a job (`elanus.pipeline.head_start`).

        Returns at once. For every arrival: an event loop may call it.
        """
        with self._changed:
            if not self._head_start.rows(self._monotonic_s()) or self._state is not SparkState.ASLEEP:
                return
            self._head_start.began()
            self._idle_since_s = self._monotonic_s()
            self._become(SparkState.STARTING)
        threading.Thread(target=self._start_ahead, name="spark start", daemon=True).start()

    def _start_ahead(self) -> None:
        with contextlib.suppress(JobLost):  # logged, and every job finds that Spark does not run
            self._started("rows arrived")

    def running_job(self, group: str) -> RunningJob | None:
        with self._changed:
            session = self._session if self._state is SparkState.AWAKE else None
        return None if session is None else session.running_job(group)

    def cancel(self, group: str) -> None:
        with self._changed:
            if group in self._waiting:
                self._waiting[group] = True
                self._changed.notify_all()
                return
            session = self._session if self._state is SparkState.AWAKE else None
        if session is not None:
            session.cancel(group)

    def is_alive(self) -> bool:
        """Whether jobs can run, after a start if need be."""
        with self._changed:
            state, session = self._state, self._session
        return session.is_alive() if state is SparkState.AWAKE else state is not SparkState.FAILED

    def stop_if_idle(self) -> None:
        """Stop Spark if no job needed it for long enough. To be called every second or so."""
        with self._changed:
            idle_s = self._monotonic_s() - self._idle_since_s
            if not self._idle_stop_s or self._jobs or idle_s < self._idle_stop_s:
                return
            if self._state is not SparkState.AWAKE:
                return
            self._become(SparkState.STOPPING)
        try:
            self._session.stop()
        except Exception as error:  # noqa: BLE001 - whatever it is, only a new process helps
            _log.error("Spark did not stop", error=str(error))
            self._end_transition(SparkState.STOPPING, SparkState.FAILED)
            return
        # Under the lock, so that a job which arrives at once ends what has begun here.
        with self._changed:
            if self._end_transition(SparkState.STOPPING, SparkState.ASLEEP):
                self._head_start.slept()
                self._preparation.begin()
        _log.info("Spark sleeps", idle_s=round(idle_s))

    def stop_for_good(self) -> None:
        """End Spark, for a process that ends now. Jobs that wait for it are lost.

        A start that is under way cannot be interrupted; its JVM ends with the process.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._state is not SparkState.STOPPING, _END_WAIT_S)
            was, session = self._state, self._session
            self._become(SparkState.FAILED)
        self._preparation.give_up()
        if was is SparkState.AWAKE:
            session.stop_for_good()

    def _awake(self, group: str, description: str) -> SparkSession:
        """Return the running session; waits for its start, and starts it if nobody does."""
        with self._changed:
            self._waiting[group] = False
            try:
                while self._state is not SparkState.AWAKE:
                    if self._waiting[group]:
                        raise JobCancelled(description)
                    if self._state is SparkState.FAILED:
                        raise JobLost(f"{description}: Spark does not run")
                    if self._state is SparkState.ASLEEP:
                        self._become(SparkState.STARTING)
                        break
                    self._changed.wait()
                else:
                    return self._session
            finally:
                del self._waiting[group]
        return self._started(description)

    def _started(self, description: str) -> SparkSession:
        began_s = self._monotonic_s()
        try:
            self._preparation.give_up()
            session = self._start()
        except Exception as error:
            _log.error("Spark did not start", error=str(error))
            self._end_transition(SparkState.STARTING, SparkState.FAILED)
            raise JobLost(f"{description}: Spark did not start: {error}") from error
        if not self._end_transition(SparkState.STARTING, SparkState.AWAKE, session):
            session.stop_for_good()
            raise JobLost(f"{description}: the process ends")
        _log.info("Spark awake", took_s=round(self._monotonic_s() - began_s, 1))
        return session

    def _end_transition(
        self, during: SparkState, state: SparkState, session: SparkSession | None = None
    ) -> bool:
        """Enter a state, with its session, unless `stop_for_good` has ended everything meanwhile."""
        with self._changed:
            if self._state is not during:
                return False
            if session is not None:
                self._session = session
            self._become(state)
            return True

    def _become(self, state: SparkState) -> None:
        """Under the lock."""
        self._state = state
        self._changed.notify_all()
