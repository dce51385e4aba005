"""Writes the archive of Spark's classes (`elanus.pipeline.class_archive`) while Spark sleeps.

A JVM writes an archive when it ends: it starts more slowly for that, and needs seconds at its end. No job
should wait for either. So a program of its own does it: it starts Spark as the pipeline process does, runs
the smallest job, and stops. It begins when Spark goes to sleep for the first time without an archive, and a
job that comes meanwhile ends it.

Run as ``python -m elanus.pipeline.class_training SETTINGS SCRATCH``; ends with its standard input.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import structlog

from elanus.pipeline.class_archive import ClassArchive
from elanus.pipeline.java import find_java
from elanus.pipeline.spark_conf import SparkSettings
from elanus.storage.without_pandas import keep_pandas_out

_SCRATCH = "training"
"""The program's own scratch directory, below that of the session."""
_WRITE_TIMEOUT_S = 600.0
"""How long Java may take to write the archive: seconds, and minutes on a busy machine."""
_log = structlog.get_logger("pipeline")


class ClassTraining:
    """Implements `elanus.pipeline.on_demand.Preparation` by the program.

    A run that was not given up is the last one of this object: one that failed would fail again.
    """

    def __init__(self, settings: SparkSettings, scratch: Path, archive: ClassArchive | None) -> None:
        self._command = [
            sys.executable,
            "-m",
            "elanus.pipeline.class_training",
            msgspec.json.encode(settings).decode(),
            str(scratch),
        ]
        self._scratch = scratch / _SCRATCH
        self._archive = archive
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        archive = self._archive
        if archive is None or self._process is not None or archive.is_there or not archive.is_possible:
            return
        _log.info("archive of Java classes begun", path=str(archive.path))
        # A process group of its own, which is ended as a whole.
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )

    def give_up(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._process = None


def train(settings: SparkSettings, scratch: Path) -> None:
    """Write the archive of the sessions that use this scratch directory. Raises what Spark raises."""
    from elanus.pipeline.session import (
        PipelineSession,  # loads Spark, which no other part of this module needs
    )

    archive = ClassArchive(scratch, find_java(settings.java), Path(sys.modules["pyspark"].__path__[0]))
    archive.clear()
    session = PipelineSession.start(settings, scratch / _SCRATCH, archive.writing())
    session.warm_up()
    session.stop(_WRITE_TIMEOUT_S)
    archive.complete()
    shutil.rmtree(scratch / _SCRATCH, ignore_errors=True)


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 4096):  # a read of the buffer would hold its lock at the end: a crash
        pass
    os._exit(1)


if __name__ == "__main__":
    keep_pandas_out()
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    train(msgspec.json.decode(sys.argv[1], type=SparkSettings), Path(sys.argv[2]))
