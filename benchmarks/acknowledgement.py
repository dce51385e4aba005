"""How long the acknowledgement of one inserted row takes, and how much of that is the disk.

Two servers take turns: one writes its log as it should, the other does not wait until the disk has it
(`log.fsync` false). The difference within a round is what the wait costs. Next to it is the same wait without
a server: one record is appended to a file in the same directory, and the file is synchronized.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from benchmarks.limits.server import DIM, LimitServer, create, serving

_NAME = "acknowledged"
_WARM_UP_CALLS = 50
_RECORD_BYTES = 512
_SETTINGS = {"pipeline.enabled": False, "http.enabled": False}


class Round(msgspec.Struct, frozen=True):
    """Medians of one round, in milliseconds per row: acknowledged from the disk, from memory only, and one
    record that is synchronized without a server."""

    durable_ms: float
    volatile_ms: float
    disk_ms: float

    @property
    def share(self) -> float:
        """How much of the acknowledgement is the wait for the disk."""
        return 1 - self.volatile_ms / self.durable_ms


def summary(rounds: Sequence[Round]) -> str:
    """Raises `statistics.StatisticsError` without rounds."""
    shares = sorted(one.share for one in rounds)
    return (
        f"one row is acknowledged in {median(one.durable_ms for one in rounds):.2f} ms, "
        f"{100 * median(shares):.0f} % of it the wait for the disk ({100 * shares[0]:.0f} to "
        f"{100 * shares[-1]:.0f} % in {len(rounds)} rounds); one record alone is synchronized in "
        f"{median(one.disk_ms for one in rounds):.2f} ms"
    )


def measure(rounds: int, calls: int, say: Callable[[str], None]) -> list[Round]:
    """Measure with ``calls`` rows per round and server. ``say`` gets a line per round."""
    with serving(0, _SETTINGS) as durable, serving(0, {**_SETTINGS, "log.fsync": False}) as volatile:
        for server in (durable, volatile):
            create(server.client, _NAME, load=False)
            _inserted_ms(server, _WARM_UP_CALLS)
        found = []
        for number in range(rounds):
            turns = (durable, volatile) if number % 2 else (volatile, durable)
            took_ms = {server: _inserted_ms(server, calls) for server in turns}
            found.append(Round(took_ms[durable], took_ms[volatile], _synced_ms(durable.data_dir, calls)))
            say(f"round {number + 1}: {found[-1]}")
        return found


def _inserted_ms(server: LimitServer, calls: int) -> float:
    rows = np.random.default_rng(1).random((calls, DIM), np.float32)
    return _median_ms(lambda n: server.client.insert(_NAME, [{"id": n, "v": rows[n]}]), calls)


def _synced_ms(directory: Path, calls: int) -> float:
    path = directory.parent / "synchronized"
    with path.open("wb", buffering=0) as file:

        def append(_: int) -> None:
            file.write(bytes(_RECORD_BYTES))
            os.fdatasync(file.fileno())

        return _median_ms(append, calls)


def _median_ms(call: Callable[[int], object], calls: int) -> float:
    took_ms = []
    for number in range(calls):
        began_s = time.perf_counter()
        call(number)
        took_ms.append(1000 * (time.perf_counter() - began_s))
    return median(took_ms)
