"""A short call is received, answered and sent by one thread: the library's own threads sleep meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import grpc
import pytest
from serving_storm import StormyServer

from elanus.rpc.library_settings import library_settings

pytestmark = pytest.mark.e2e

CALLS = 400
LIBRARY_THREAD = "event_engine"


def library_wake_ups(experiments: str) -> float:
    """Return how often threads of the library go to sleep, per call of a client that calls in turn."""
    settings = {"GRPC_EXPERIMENTS": experiments} if experiments else library_settings({})
    server = StormyServer("loop", {**os.environ, **settings})
    try:
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = channel.unary_unary("/storm/Echo")
            call(b"the first connects", timeout=60)
            before = _sleeps(server.usage.pid)
            for _ in range(CALLS):
                call(b"again", timeout=60)
            sleeps = _sleeps(server.usage.pid) - before
        assert server.stop() == 0
        return sleeps / CALLS
    finally:
        server.kill()


def _sleeps(pid: int) -> int:
    """How often the library's threads have waited since they began."""
    found = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        if (thread / "comm").read_text().strip() == LIBRARY_THREAD:
            lines = (thread / "status").read_text().splitlines()
            found += next(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
    return found


def test_no_thread_of_the_library_wakes_up_for_a_short_call() -> None:
    theirs, ours = library_wake_ups("event_engine_listener"), library_wake_ups("")
    assert theirs > 1.5, f"{theirs} wake-ups per call: the library has no threads of its own any more"
    assert ours < theirs / 2, f"{ours} wake-ups of the library's threads per call, {theirs} by default"
