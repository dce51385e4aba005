"""The first steps of every process of a server, and the signals that stop it."""

from __future__ import annotations

import asyncio
import signal
import sys

from elanus.server.collector_pauses import shorten_collector_pauses
from elanus.server.logs import LogSettings, configure_logging
from elanus.server.memory import fix_allocator
from elanus.server.open_files import raise_open_files_limit

_SWITCH_INTERVAL_S = 0.0005
"""How long a busy thread may hold the interpreter. The default, 5 ms, is the time of many searches."""


def set_up_process(logging: LogSettings, name: str) -> int:
    """Set up memory, threads, logging and open files; before any thread is started.

    ``name``: of the process, in its log lines. Returns the limit of open files.
    """
    fix_allocator()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    shorten_collector_pauses()
    configure_logging(logging, name)
    return raise_open_files_limit()


def stop_signals() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set from now on, on the running loop."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping
