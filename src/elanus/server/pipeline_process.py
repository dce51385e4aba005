"""The pipeline process: one Spark session, for the data node that started this process.

It exists while Spark runs, and has no state that must survive: the roles are in the process that started it,
and order their jobs again when this one dies. It ends with its parent, and when its JVM ends. Its settings
arrive over the connection: so its imports are few, and its arguments show none of them.

Started by `elanus.pipeline.driver.Drivers` as ``elanus pipeline NUMBER``, with the number of an inherited
socket.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import structlog

from elanus.pipeline.driver import NotStarted, Started, inherited
from elanus.pipeline.driver_calls import DriverCalls
from elanus.pipeline.spark_conf import SparkSettings
from elanus.server.ending import end_process
from elanus.server.logs import LogForm, configure_logging
from elanus.storage.without_pandas import keep_pandas_out

_log = structlog.get_logger("pipeline")

_OOM_SCORE = Path("/proc/self/oom_score_adj")
_OOM_SCORE_MORE, _OOM_SCORE_MAX = 800, 1000


@dataclass(frozen=True, slots=True)
class PipelineOrder:
    """The first message to this process. ``nice``: the scheduling priority that it gives up."""

    spark: SparkSettings
    scratch: Path
    nice: int
    logging: LogForm


def run(number: str) -> NoReturn:
    """Run until the parent ends the connection, or Spark dies. Ends the process with the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent, which then stops us
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    connection = inherited(number)
    order: PipelineOrder = connection.recv()
    configure_logging(order.logging, "pipeline")
    os.nice(order.nice)
    end_first_without_memory()
    keep_pandas_out()
    from elanus.pipeline.session import PipelineSession  # loads Spark

    try:
        session = PipelineSession.start(order.spark, order.scratch)
        session.warm_up()
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent reports it
        connection.send(NotStarted(f"{type(error).__name__}: {error}"))
        end_process(1)
    connection.send(Started(session.slots, session.task_scratch, session.archive))
    calls = DriverCalls(connection, session)
    threading.Thread(target=_end_with_spark, args=(calls,), name="Spark watch", daemon=True).start()
    calls.serve()
    end_process(0)


def end_first_without_memory(score: Path = _OOM_SCORE) -> None:
    """Have the kernel end Spark, and not the server, when memory ends: a job is tried again. Linux only."""
    try:
        score.write_text(str(min(_OOM_SCORE_MAX, int(score.read_text()) + _OOM_SCORE_MORE)))
    except OSError:  # not Linux, or not allowed
        _log.debug("no preference for the end of memory")


def _end_with_parent() -> None:
    """Standard input is a pipe that only the parent holds open; the JVM ends with one that we hold."""
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)


def _end_with_spark(calls: DriverCalls) -> None:
    if calls.wait_for_death():
        _log.error("Spark JVM ended; the pipeline process ends too")
        end_process(1)
