"""Spark in a process of its own: the side of that process, which answers calls of `elanus.pipeline.driver`.

Jobs run in threads, as many as are ordered; short calls have threads of their own, so that a look or a
cancellation never waits for a job. Takes any session, so it is tested without Spark.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import structlog

from elanus.core.errors import ElanusError
from elanus.core.faults import Fault
from elanus.pipeline.driver import Answer, Call, Slots
from elanus.pipeline.on_demand import SparkSession
from elanus.pipeline.port import JobLost

_JOBS_MAX = 1024
"""More than are ever ordered at a time: the callers have limits."""
_SHORT_CALLS = 4
_ALIVE_LOOK_S = 1.0
_log = structlog.get_logger("pipeline")


class DriverCalls:
    """Answers the calls that arrive at a connection by the methods of a session."""

    def __init__(self, connection: Connection, session: SparkSession) -> None:
        self._connection = connection
        self._session = session
        self._sending = threading.Lock()
        self._stopping = threading.Event()
        self._jobs = ThreadPoolExecutor(_JOBS_MAX, thread_name_prefix="spark-job")
        self._short = ThreadPoolExecutor(_SHORT_CALLS, thread_name_prefix="spark-call")

    def serve(self) -> None:
        """Answer until the other process closes the connection or ends."""
        while True:
            try:
                call: Call = self._connection.recv()
            except (EOFError, OSError):
                return
            threads = self._jobs if call.method == "run" else self._short
            threads.submit(self._answer, call)

    def wait_for_death(self, look_s: float = _ALIVE_LOOK_S) -> bool:
        """Return when the session has ended on its own: True; or was stopped by a call: False.

        Reports to the caller meanwhile how many slots there are, and again when workers have come or gone.
        """
        reported = 0
        while not self._stopping.wait(look_s):
            if not self._session.is_alive() and not self._stopping.is_set():
                return True
            if self._session.slots != reported:
                reported = self._session.slots
                self._send(Slots(reported))
        return False

    def _answer(self, call: Call) -> None:
        try:
            answer = Answer(call.number, self._done(call))
        except (ElanusError, Fault) as error:
            answer = Answer(call.number, error=error)
        except Exception as error:  # noqa: BLE001 - the caller must not wait forever
            _log.exception("call of Spark failed", method=call.method)
            answer = Answer(call.number, error=JobLost(f"{type(error).__name__}: {error}"))
        self._send(answer)

    def _send(self, message: Answer | Slots) -> None:
        try:
            with self._sending:
                self._connection.send(message)
        except OSError as error:
            _log.info("message not sent", error=str(error))

    def _done(self, call: Call) -> object:
        session, arguments = self._session, call.arguments
        match call.method:
            case "run":
                task, plans, group, description, pool, cpus = arguments
                return session.run(task, plans, group=group, description=description, pool=pool, cpus=cpus)
            case "running_job":
                return session.running_job(*arguments)
            case "cancel":
                session.cancel(*arguments)
            case "stop":
                self._stopping.set()
                session.stop()
            case "stop_for_good":
                self._stopping.set()
                session.stop_for_good()
            case _:
                raise ValueError(f"no call {call.method!r}")
        return None
