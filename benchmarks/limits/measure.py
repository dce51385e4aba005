"""Which dimensions there are, their steps, and the run over them."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import psutil

from benchmarks.limits.catalog import collections, loaded, vchannels
from benchmarks.limits.connections import connections
from benchmarks.limits.figures import Dimension, Limits
from benchmarks.limits.growth import Clock, Growth, Subject, geometric, grow
from benchmarks.limits.segments import segments
from benchmarks.limits.writes import Deletes, deletes, partitions
from benchmarks.report.limits_page import render_limits
from elanus import __version__
from elanus.core.limits import PARTITIONS_MAX, SHARDS_MAX

USUAL_OPEN_FILES = 1024
"""The usual ``ulimit -n``."""
_SAY_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Budget:
    """``grow_s``: the longest that one dimension grows. ``idle_s``: how long a server at rest is watched.

    ``trickle_s``: how long single rows are written into all loaded collections.
    """

    grow_s: float
    idle_s: float
    trickle_s: float


@dataclass(frozen=True, slots=True)
class Planned:
    """One dimension: its steps, and the server with what grows on it."""

    counts: Sequence[int]
    open: Callable[[Budget, Clock], AbstractContextManager[Subject]]


DIMENSIONS: Mapping[str, Planned] = {
    "collections": Planned(tuple(geometric(10, 10, 10_000)), lambda b, clock: collections(b.idle_s, clock)),
    "loaded collections": Planned(
        tuple(geometric(10, 10, 1000)), lambda b, clock: loaded(b.idle_s, clock, b.trickle_s)
    ),
    "vchannels": Planned(tuple(geometric(SHARDS_MAX, 4, 4096)), lambda b, clock: vchannels(b.idle_s, clock)),
    "sealed segments": Planned((200, 2000, 20_000), lambda b, clock: segments(b.idle_s, clock)),
    "deletes": Planned(
        tuple(geometric(Deletes.KEYS, 10, 100_000_000)), lambda b, clock: deletes(b.idle_s, clock)
    ),
    "partitions": Planned(
        (64, 512, PARTITIONS_MAX - 1, PARTITIONS_MAX),
        lambda b, clock: partitions(b.idle_s, clock, USUAL_OPEN_FILES),
    ),
    "connections": Planned(tuple(geometric(16, 8, 8192)), lambda b, clock: connections(b.idle_s, clock)),
    f"connections with {USUAL_OPEN_FILES} open files": Planned(
        tuple(geometric(16, 8, 2048)), lambda b, clock: connections(b.idle_s, clock, USUAL_OPEN_FILES)
    ),
}


def measure(
    names: Sequence[str], budget: Budget, out: Path, page: Path, say: Callable[[str], None]
) -> Limits:
    """Measure these dimensions. Both files are written after every step; dimensions that are not measured
    stay as the results file has them."""
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it prints a traceback for each failed try
    found = _begun(out)
    for name in names:
        say(f"{name}: up to {DIMENSIONS[name].counts[-1]:,}, for {budget.grow_s:g} s at most")

        def keep(dimension: Dimension) -> None:
            nonlocal found
            found = found.with_dimension(dimension)
            _write(found, out, page)
            if dimension.steps:
                say(f"{dimension.name}: {dimension.steps[-1]}")

        planned = DIMENSIONS[name]
        with planned.open(budget, time.monotonic) as subject:
            spoken = Spoken(subject, partial(_say_progress, say, name), time.monotonic)
            ended = grow(name, spoken, planned.counts, budget.grow_s, time.monotonic, keep)
        keep(ended)
        say(f"{name}: ended ({ended.end}) at {ended.at:,} {ended.said}")
    return found


class Spoken:
    """A subject that grows in parts of some seconds, and reports each."""

    def __init__(self, subject: Subject, report: Callable[[int, int], None], clock: Clock) -> None:
        self._subject = subject
        self._report = report
        self._clock = clock
        self.look = subject.look
        self.trickle = subject.trickle

    def grow(self, have: int, to: int, until_s: float) -> Growth:
        reached, took_ms = have, 0.0
        while reached < to:
            part = self._subject.grow(reached, to, min(until_s, self._clock() + _SAY_EVERY_S))
            took_ms += part.one_more_ms * (part.reached - reached)
            reached = part.reached
            self._report(reached, to)
            if self._clock() >= until_s:
                break
        return Growth(reached, took_ms / max(1, reached - have))


def _say_progress(say: Callable[[str], None], name: str, reached: int, to: int) -> None:
    say(f"{name}: {reached:,} of {to:,}")


def _begun(out: Path) -> Limits:
    """The results file's dimensions, if there is one, and this machine and version."""
    known = msgspec.json.decode(out.read_bytes(), type=Limits).dimensions if out.exists() else {}
    memory_gb = psutil.virtual_memory().total / 2**30
    machine = f"{os.cpu_count()} processors, {memory_gb:.0f} GiB of memory, {platform.system()}"
    return Limits(__version__, machine, known)


def _write(found: Limits, out: Path, page: Path) -> None:
    out.write_bytes(msgspec.json.encode(found) + b"\n")
    page.write_text(render_limits(found))
