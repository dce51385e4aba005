"""The end of a parent, as its child notices it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def when_parent_ends(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Set the event when standard input, which only the parent holds open, is closed."""

    def watch() -> None:
        # Not through the buffer: its lock, held while the interpreter ends, is a fatal error of Python.
        while os.read(sys.stdin.fileno(), 4096):
            pass
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def killed_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends, as in a killed parent.

    A process that is stopped, or whose event loop hangs, does not notice the end by itself, and would keep
    its port and memory. Linux only; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
