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
from benchmarks.pipeline.courses import flush_course, segment_courses
from benchmarks.pipeline.flush_call import FlushCalls
from benchmarks.pipeline.growth import Course, GrowthPoint
from benchmarks.pipeline.sides import Sides
from elanus import __version__

TURNS = 7
GROWTH_DIM = 32
GROWTH_PASSES = 3
GROWTH_ROWS = (100_000, 500_000, 1_000_000, 2_000_000, 5_000_000)


class Figures(msgspec.Struct, frozen=True):
    """The results of one run.

    ``jobs``: by the names of `measures`; ``growth``: by those of `courses`; ``machine``: processors,
    operating system.
    """

    version: str
    machine: str
    jobs: dict[str, Sides]
    flush_calls: FlushCalls
    growth_dim: int
    growth: dict[str, list[GrowthPoint]]


def measures(threads: int) -> dict[str, Callable[[Path], Sides]]:
    """Every job that is measured against plain work; each is given an empty directory."""
    return {
        "flush": lambda directory: flushing.measure(directory, 40_000, 768, TURNS),
        "flush narrow": lambda directory: flushing.measure(directory, 200_000, 128, TURNS),
        "import": lambda directory: importing.measure(directory, 100_000, 256, TURNS),
        "compaction": lambda directory: compacting.measure(directory, 200_000, 128, TURNS),
        "index build": lambda directory: indexing.measure(directory, 10_000, 128, threads, TURNS),
    }


def courses(directory: Path, dim: int, steps: tuple[int, ...], passes: int) -> dict[str, Course]:
    """Every kind of job whose growth is measured, with its input made below the directory."""
    return {
        "flush": flush_course(directory / "flush", dim, steps, passes),
        **segment_courses(directory / "segments", dim, steps, passes),
    }


def measure(report: Callable[[str], None]) -> Figures:
    """Measure everything: ten to twenty minutes. ``report`` is called with a line before each part."""
    threads = os.cpu_count() or 1
    jobs = {}
    for name, take in measures(threads).items():
        report(f"{name} and plain work")
        with _directory() as directory:
            jobs[name] = take(directory)
    report("flush calls")
    calls = flush_call.measure(10_000, 768, TURNS)
    report("the rows of growth")
    with _directory() as directory:
        measured = courses(directory, GROWTH_DIM, GROWTH_ROWS, GROWTH_PASSES)
        points = growth.measure(directory / "spark", measured, report)
    machine = f"{threads} processors, {platform.system()}"
    return Figures(__version__, machine, jobs, calls, GROWTH_DIM, points)


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="elanus-pipeline-") as directory:
        yield Path(directory)
