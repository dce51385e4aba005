"""The end of a parent, as its child notices it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading


def when_parent_ends(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Set the event when standard input, which only the parent holds open, is closed."""

    def watch() -> None:
        # Not through the buffer: its lock, held while the interpreter ends, is a fatal error of Python.
        while os.read(sys.stdin.fileno(), 4096):
            pass
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()
