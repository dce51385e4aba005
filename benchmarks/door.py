"""The figures of the front door next to their limits: guard, sign-in, REST, console, backup. ``make door``.

Times are of this machine and of processes that share it, so a page that is to be quoted is written on a quiet
one. Each figure says what it is the time of, and from where: processor time of the server, or wall time of a
client.
"""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from benchmarks import backup_copies, kernels, rest
from benchmarks.results import machine
from elanus import __version__
from elanus.console.files import static_files
from elanus.core.projection import projected

GUARD_LIMIT_US, REST_BEHIND_LIMIT_MS, JSON_LIMIT_MS, TAB_LIMIT_MS = 15.0, 0.3, 120.0, 5.0
PROJECTION_LIMIT_MS, LOAD_LIMIT_KB, BACKUP_LEAST_PERCENT = 1000.0, 300.0, 70.0
SAMPLE = (5_000, 768)


class Figure(msgspec.Struct, frozen=True):
    """``limit``: the most that is good, or the least if ``more_is_better``."""

    name: str
    value: float
    limit: float
    unit: str
    more_is_better: bool = False

    @property
    def is_met(self) -> bool:
        return self.value >= self.limit if self.more_is_better else self.value <= self.limit

    @property
    def shown(self) -> str:
        """Return the value with three digits, or with as many as show on which side of the limit it is."""
        for digits in range(3, 10):
            text = f"{self.value:.{digits}g}"
            if replace(self, value=float(text)).is_met == self.is_met:
                return text
        return repr(self.value)

    def __str__(self) -> str:
        sign, verdict = "≥" if self.more_is_better else "≤", "met" if self.is_met else "NOT met"
        return f"{self.name}: {self.shown} {self.unit} ({sign} {self.limit:g}: {verdict})"


def measure(say: Callable[[str], None], directory: Path | None = None) -> list[Figure]:
    """``say`` gets a line for each figure. ``directory``: on the disk that backups are measured on."""
    found: list[Figure] = []
    for figures in (_in_process, _by_rest, lambda: _backup(directory)):
        for figure in figures():
            found.append(figure)
            say(str(figure))
    return found


def _in_process() -> Iterator[Figure]:
    guard_us = kernels.median_ms(kernels.guard_kernel()) / kernels.GUARDED_CALLS * 1000
    yield Figure("sign-in and guard of a call whose token is known", guard_us, GUARD_LIMIT_US, "µs")
    login_ms = kernels.median_ms(kernels.login_kernel())
    yield Figure("sign-in with a password that is not known yet", login_ms, kernels.LOGIN_LIMIT_MS, "ms")
    vectors = np.random.default_rng(1).standard_normal(SAMPLE).astype(np.float32)
    kernel = kernels.Kernel("", SAMPLE[0], PROJECTION_LIMIT_MS, lambda: projected(vectors).points)
    took_ms = kernels.median_ms(kernel)
    yield Figure(f"principal axes of {SAMPLE[0]:,} × {SAMPLE[1]} values", took_ms, PROJECTION_LIMIT_MS, "ms")
    load_kb = sum(len(file.content) for file in static_files().values()) / 1000
    yield Figure("all files of the console", load_kb, LOAD_LIMIT_KB, "kB")


def _by_rest() -> Iterator[Figure]:
    found = rest.measure(lambda _: None)
    behind_ms = found.search_ms - found.grpc_search_ms
    yield Figure("median search by REST, more than by gRPC", behind_ms, REST_BEHIND_LIMIT_MS, "ms")
    rows = f"{rest.ROWS:,} × {rest.DIM}"
    yield Figure(f"server's processor time for {rows} rows as JSON", found.json_cpu_ms, JSON_LIMIT_MS, "ms")
    name = "server's processor time for an open tab of the console, per second"
    yield Figure(name, found.tab_ms, TAB_LIMIT_MS, "ms")


def _backup(directory: Path | None) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="elanus-backup-", dir=directory) as name:
        share = backup_copies.median_share(Path(name), lambda _: None)
    yield Figure("rate of a backup, of that of `cp` and `sync`", 100 * share, BACKUP_LEAST_PERCENT, "%", True)


def page(figures: Sequence[Figure]) -> str:
    """Return the page of a measurement that ended now."""
    return "\n".join(
        [
            "# The front door in figures",
            "",
            "*Made by `make door` (`python -m benchmarks door`), which measures and writes this page.*",
            "",
            f"Elanus {__version__}, {datetime.datetime.now(datetime.UTC).date().isoformat()}, "
            f"{', '.join(machine().values())}.",
            "",
            "| figure | measured | limit | |",
            "|---|---|---|---|",
            *(
                f"| {one.name} | {one.shown} {one.unit} | {'≥' if one.more_is_better else '≤'} "
                f"{one.limit:g} {one.unit} | {'met' if one.is_met else 'not met'} |"
                for one in figures
            ),
            "",
        ]
    )
