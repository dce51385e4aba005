"""How long a server on an empty directory takes to answer, and what it costs to do nothing."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from benchmarks.bench import Bench, Values, cpu_metrics, memory_metrics
from benchmarks.processes import wait_for_quiet

READY_LIMIT_S = 120.0
#: The other measures begin when every part of the server has started, not when it first answers.
QUIET_LIMIT_S = 60.0
_BLOCK_BYTES = 512


def measure_start(bench: Bench) -> Values:
    """Start the server; time until a client is connected, and memory once it is quiet."""
    bench.main.call("ping")  # its imports are done before the clock starts
    server = bench.the_server()
    begun = time.perf_counter()
    server.start()
    bench.main.call("connect", timeout_s=READY_LIMIT_S)
    ready_s = time.perf_counter() - begun
    wait_for_quiet(server.usage, QUIET_LIMIT_S, server.roles)
    return {"start.ready_s": ready_s, **memory_metrics("start.rss_mb", server.usage())}


def measure_idle(bench: Bench) -> Values:
    """CPU of the loaded server while nobody asks, in percent of one core, its memory and its disk space."""
    server = bench.the_server()
    wait_for_quiet(server.usage, QUIET_LIMIT_S)
    before = server.usage()
    time.sleep(bench.settings.idle_s)
    after = server.usage()
    percent_per_ms = 100 / (bench.settings.idle_s * 1e3)
    return {
        **cpu_metrics("idle.cpu_percent", before, after, percent_per_ms),
        **memory_metrics("loaded.rss_mb", after),
        "loaded.disk_mb": _disk_mb(bench.place.folder),
    }


def _disk_mb(folder: Path) -> float:
    """The space that the files below ``folder`` take. A file that goes meanwhile does not count."""
    blocks = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            blocks += path.lstat().st_blocks
    return blocks * _BLOCK_BYTES / 1e6
