"""All of the pipeline's measures in one run, and the file that keeps their figures."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from benchmarks.pipeline import compacting, flush_call, flushing, growth, importing, indexing
from benchmarks.pipeline.flush_call import FlushCalls
from benchmarks.pipeline.growth import GrowthPoint
from benchmarks.pipeline.sides import Sides
from elanus import __version__

TURNS = 7
GROWTH_DIM = 32
GROWTH_PASSES = 3
GROWTH_ROWS = (100_000, 250_000, 500_000, 1_000_000, 2_000_000, 5_000_000)


class Figures(msgspec.Struct, frozen=True):
    """What one run found. ``jobs``: by the names of `measures`; ``machine``: processors, operating system."""

    version: str
    machine: str
    jobs: dict[str, Sides]
    flush_calls: FlushCalls
    growth_dim: int
    growth: list[GrowthPoint]


def measures(threads: int) -> dict[str, Callable[[Path], Sides]]:
    """Every job that is measured beside plain work; each is given an empty directory."""
    return {
        "flush": lambda directory: flushing.measure(directory, 40_000, 768, TURNS),
        "flush narrow": lambda directory: flushing.measure(directory, 200_000, 128, TURNS),
        "import": lambda directory: importing.measure(directory, 100_000, 256, TURNS),
        "compaction": lambda directory: compacting.measure(directory, 200_000, 128, TURNS),
        "index build": lambda directory: indexing.measure(directory, 10_000, 128, threads, TURNS),
    }


def measure(tell: Callable[[str], None]) -> Figures:
    """Measure everything: some minutes. ``tell`` is given a line before each part."""
    threads = os.cpu_count() or 1
    jobs = {}
    for name, take in measures(threads).items():
        tell(f"{name} beside plain work")
        with _directory() as directory:
            jobs[name] = take(directory)
    tell("growth")
    with _directory() as directory:
        points = growth.measure(directory, GROWTH_DIM, GROWTH_ROWS, GROWTH_PASSES)
    tell("flush calls")
    calls = flush_call.measure(10_000, 768, TURNS)
    machine = f"{threads} processors, {platform.system()}"
    return Figures(__version__, machine, jobs, calls, GROWTH_DIM, points)


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="elanus-pipeline-") as directory:
        yield Path(directory)
