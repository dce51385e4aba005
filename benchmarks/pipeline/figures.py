"""All of the pipeline's measures in one run, and the file that keeps their figures."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.pipeline import (
    compacting,
    flush_call,
    flushing,
    growth,
    importing,
    indexing,
    joins,
    places,
    visible_import,
)
from benchmarks.pipeline.courses import flush_course, import_course, segment_courses
from benchmarks.pipeline.flush_call import FlushCalls
from benchmarks.pipeline.growth import Course, GrowthPoint
from benchmarks.pipeline.joins import Joins
from benchmarks.pipeline.places import Turns
from benchmarks.pipeline.sides import Sides
from elanus import __version__

TURNS = 7
CALL_TURNS = 3
GROWTH_DIM = 32
GROWTH_PASSES = 3
GROWTH_ROWS = (100_000, 500_000, 1_000_000, 2_000_000, 5_000_000)
IMPORTED_ROWS = (1_000_000, 5_000_000, 20_000_000)
PARTS = ("jobs", "calls", "workers", "stores", "joins", "growth")


class Figures(msgspec.Struct, frozen=True):
    """The results of one run.

    ``jobs``: by the names of `measures`; ``growth``: by those of `courses`; ``machine``: processors,
    operating system. ``imports``: import calls, by what is waited for; ``workers``: imports by the number of
    workers of a cluster; ``stores``: imports by where the files are; ``joins``: searches as Spark jobs.
    """

    version: str
    machine: str
    jobs: dict[str, Sides]
    flush_calls: FlushCalls
    growth_dim: int
    growth: dict[str, list[GrowthPoint]]
    imports: dict[str, Turns] = {}
    workers: dict[str, Turns] = {}
    stores: dict[str, Turns] = {}
    joins: Joins | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. ``share``: of the rows of each part, ``turns_max``: of any."""

    share: float = 1.0
    turns_max: int = TURNS

    def rows(self, whole: int) -> int:
        return max(1000, round(whole * self.share))

    def turns(self, wanted: int) -> int:
        return min(self.turns_max, wanted)


WHOLE = Size()
QUICK = Size(0.02, 1)
"""A check that everything runs; not to be quoted."""


def measures(threads: int, size: Size = WHOLE) -> dict[str, Callable[[Path], Sides]]:
    """Every job that is measured against plain work; each is given an empty directory."""
    turns = size.turns(TURNS)
    return {
        "flush": lambda directory: flushing.measure(directory, size.rows(40_000), 768, turns),
        "flush narrow": lambda directory: flushing.measure(directory, size.rows(200_000), 128, turns),
        "import": lambda directory: importing.measure(directory, size.rows(100_000), 256, turns),
        "compaction": lambda directory: compacting.measure(directory, size.rows(200_000), 128, turns),
        "index build": lambda directory: indexing.measure(directory, size.rows(10_000), 128, threads, turns),
    }


def courses(
    directory: Path, dim: int, steps: tuple[int, ...], imported: tuple[int, ...], passes: int
) -> dict[str, Course]:
    """Every kind of job whose growth is measured, with its input made below the directory."""
    return {
        "import": import_course(directory / "import", dim, imported, passes),
        "flush": flush_course(directory / "flush", dim, steps, passes),
        **segment_courses(directory / "segments", dim, steps, passes),
    }


def measure(
    report: Callable[[str], None],
    only: Collection[str] = PARTS,
    size: Size = WHOLE,
    before: Figures | None = None,
) -> Figures:
    """Measure everything, in less than half an hour, or ``only`` some `PARTS`: the rest is from ``before``.

    ``report`` is called with a line before each part.
    """
    threads = os.cpu_count() or 1
    machine = f"{threads} processors, {platform.system()}"
    found = before or Figures("", "", {}, FlushCalls(0, 0, []), GROWTH_DIM, {})
    found = msgspec.structs.replace(found, version=__version__, machine=machine)
    for part in PARTS:
        if part in only:
            found = msgspec.structs.replace(found, **_MEASURED[part](report, size))
    return found


def _jobs(report: Callable[[str], None], size: Size) -> dict[str, object]:
    jobs = {}
    for name, take in measures(os.cpu_count() or 1, size).items():
        report(f"{name} and plain work")
        with _directory() as directory:
            jobs[name] = take(directory)
    return {"jobs": jobs}


def _calls(report: Callable[[str], None], size: Size) -> dict[str, object]:
    report("flush calls")
    calls = flush_call.measure(size.rows(10_000), 768, size.turns(TURNS))
    report("import calls")
    imports = visible_import.measure(size.rows(1_000_000), 128, size.turns(CALL_TURNS))
    return {"flush_calls": calls, "imports": imports}


def _workers(report: Callable[[str], None], size: Size) -> dict[str, object]:
    with _directory() as directory:
        rows, turns = size.rows(1_000_000), size.turns(CALL_TURNS)
        return {"workers": places.measure_workers(directory, rows, 128, turns, report)}


def _stores(report: Callable[[str], None], size: Size) -> dict[str, object]:
    with _directory() as directory:
        rows, turns = size.rows(200_000), size.turns(CALL_TURNS)
        return {"stores": places.measure_stores(directory, rows, 128, turns, report)}


def _joins(report: Callable[[str], None], size: Size) -> dict[str, object]:
    rows, queries, turns = size.rows(1_000_000), size.rows(100_000), size.turns(CALL_TURNS)
    return {"joins": joins.measure(rows, 128, queries, joins.FEW, turns, report)}


def _growth(report: Callable[[str], None], size: Size) -> dict[str, object]:
    report("the rows of growth")
    steps, imported = (_steps(rows, size) for rows in (GROWTH_ROWS, IMPORTED_ROWS))
    with _directory() as directory:
        measured = courses(directory, GROWTH_DIM, steps, imported, size.turns(GROWTH_PASSES))
        return {"growth": growth.measure(directory / "spark", measured, report)}


def _steps(rows: tuple[int, ...], size: Size) -> tuple[int, ...]:
    return tuple(some for some in rows if some <= rows[-1] * size.share) or rows[:1]


_MEASURED = {
    "jobs": _jobs,
    "calls": _calls,
    "workers": _workers,
    "stores": _stores,
    "joins": _joins,
    "growth": _growth,
}


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="elanus-pipeline-") as directory:
        yield Path(directory)
