"""The last lines that a process wrote before it ended: why Java, or a library, did not start.

Java says why it ends on its standard streams alone; PySpark's error knows only that it did. A library that
cannot start its threads while Python loads it ends the process before any code of ours runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections import deque
from typing import IO

_LINES = 50
_QUOTED = 2
_NOISE = ("{", "at ", "WARNING")
"""Lines of our log, of Java's stack traces, and of what Java would rather not have."""
_WAIT_S = 2.0
_SHELL_SIGNALS = 128
"""Shells, and programs that follow them, report the end by a signal as its number and this."""
_STDERR = 2
_CAUSES = (
    (
        re.compile(r"pthread_create|Resource temporarily unavailable|native thread|start new thread"),
        "no more threads or processes are allowed: raise the limit (ulimit -u, ulimit -v, TasksMax= of "
        "systemd, the pids limit of the container)",
    ),
    (
        re.compile(r"Could not (?:reserve|allocate)|insufficient memory|Cannot allocate memory|MemoryError"),
        "there is not enough memory: raise the limit (ulimit -v, MemoryMax= of systemd, that of the "
        "container), or lower pipeline.driver_memory_mb",
    ),
    (
        re.compile(r"Unrecognized|Invalid (?:maximum|initial) heap|UnsupportedClassVersion"),
        "this Java does not run Spark: look at JAVA_HOME, pipeline.java and pipeline.spark_conf",
    ),
)
_BY_SIGNAL: dict[int, str] = {
    # OpenBLAS raises it where it cannot start its threads
    signal.SIGINT: _CAUSES[0][1],
    signal.SIGKILL: _CAUSES[1][1],
}


class LastWords:
    """Passes what a process writes on to our standard error, and keeps the last lines of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._thread = threading.Thread(target=self._pass_on, name="spark errors", daemon=True)
        self._thread.start()

    def explained(self, reason: str, code: int | None = None) -> str:
        """Return why a process that has ended did not start, and the remedy where that is known.

        ``code``: as of `subprocess.Popen.wait`.
        """
        self._thread.join(_WAIT_S)
        return explained(reason, tuple(self._lines), code)

    def _pass_on(self) -> None:
        with self._stream:
            for line in self._stream:
                self._lines.append(line.decode(errors="replace").strip())
                with contextlib.suppress(OSError):  # nobody listens any more: the lines that are kept count
                    os.write(_STDERR, line)


def explained(reason: str, lines: tuple[str, ...], code: int | None = None) -> str:
    """Return the reason with the most relevant lines, and with the remedy."""
    said = [line for line in lines if line.strip("# ") and not line.startswith(_NOISE)]
    reason = reason.rstrip(".")
    for pattern, remedy in _CAUSES:
        if relevant := [line for line in said if pattern.search(line)]:
            return f"{reason}: {_quoted(relevant[:_QUOTED])}: {remedy}"
        if pattern.search(reason):
            return f"{reason}: {remedy}"
    if (remedy := _BY_SIGNAL.get(_signal(code), "")) != "":
        return f"{reason}: {remedy}"
    relevant = [line for line in said if "Exception" in line or "Error" in line] or said
    return f"{reason}: {_quoted(relevant[-_QUOTED:])}" if relevant else reason


def _quoted(lines: list[str]) -> str:
    return "; ".join(line.strip("# .")[:300] for line in lines)


def _signal(code: int | None) -> int:
    if code is None:
        return 0
    return -code if code < 0 else code - _SHELL_SIGNALS
