"""How late the event loop of a server is that has much: 20,000 sealed segments, and 1,000 loaded collections.

The segments are written while the server is stopped, with its own functions (`benchmarks.limits.sealed`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.limits.sealed import add_segments
from benchmarks.limits.segments import ROWS
from benchmarks.limits.server import DIM, LimitServer, count, create

SEGMENTS = 20_000
COLLECTIONS = 1_000
REST_S = 20.0
_FLUSH_S = 300.0
_NAME = "rows"
_SETTINGS = {"compaction.enabled": False}
"""It would merge segments as small as these."""
Say = Callable[[str, str], None]
"""Called with what was done since the server's start, and the URL of its metrics."""


def measure_states(say: Say) -> None:
    for measure in (_segments, _collections):
        with tempfile.TemporaryDirectory(prefix="elanus-heartbeat-") as directory:
            server = LimitServer(Path(directory), REST_S, _SETTINGS)
            try:
                server.start()
                measure(server, say)
            finally:
                server.stop()


def _segments(server: LimitServer, say: Say) -> None:
    create(server.client, _NAME, load=True)
    _insert_and_flush(server, 0)
    server.stop()
    add_segments(server.data_dir, SEGMENTS - 1, ROWS, ROWS)
    rows = SEGMENTS * ROWS
    server.started(lambda client: count(client, _NAME) == rows)
    say(f"start with {SEGMENTS} segments", server.observe_url)
    _insert_and_flush(server, rows)
    time.sleep(REST_S)
    say(f"the same, and the handoff of one more to {SEGMENTS} segments", server.observe_url)


def _collections(server: LimitServer, say: Say) -> None:
    for number in range(COLLECTIONS):
        create(server.client, f"{_NAME}_{number}", load=True)
    say(f"creating and loading {COLLECTIONS} collections", server.observe_url)
    server.restart(lambda client: count(client, f"{_NAME}_{COLLECTIONS - 1}") == 0)
    time.sleep(REST_S)
    say(f"start with {COLLECTIONS} loaded collections", server.observe_url)


def _insert_and_flush(server: LimitServer, first: int) -> None:
    server.client.insert(_NAME, [{"id": first + n, "v": [0.0] * DIM} for n in range(ROWS)])
    server.client.flush(_NAME, timeout=_FLUSH_S)
