"""The end of a parent, seen by its child on standard input."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import psutil
import pytest

from elanus.server.parent import when_parent_ends


class Unbuffered:
    """Standard input without a buffer: a thread that is blocked in a read of it holds no lock of Python's."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor


def test_the_watch_ends_with_the_input_and_needs_no_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, parents = os.pipe()
    monkeypatch.setattr(sys, "stdin", Unbuffered(ours))

    async def watch() -> None:
        ended = asyncio.Event()
        when_parent_ends(asyncio.get_running_loop(), ended)
        os.write(parents, b"a line")
        assert not ended.is_set()
        os.close(parents)
        await ended.wait()

    asyncio.run(watch())
    os.close(ours)


_CHILD = """
import os, signal
from elanus.server.parent import killed_with_parent
killed_with_parent()
print(os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""
_PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked for it")
def test_a_stopped_child_does_not_outlive_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT, _CHILD], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        while child.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        parent.kill()
        try:
            child.wait(timeout=30)
        except psutil.TimeoutExpired:
            child.kill()
            raise
