"""The fault matrix as a table on the reliability page. `make faults` runs every case and writes it."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

DIRECTORY = Path(__file__).parent
sys.path[:0] = [str(DIRECTORY), str(DIRECTORY.parent)]

import compaction_course  # noqa: E402 - run as a program, this file stands alone
import flush_course  # noqa: E402
import import_course  # noqa: E402
import index_course  # noqa: E402
import structlog  # noqa: E402
import sweep_course  # noqa: E402
from injected import CASES, STEPS, Fault, Victim  # noqa: E402
from rows import ROWS  # noqa: E402
from virtual_time import VirtualLoop  # noqa: E402

from elanus.api.indexcoord import BuildState  # noqa: E402
from elanus.core.imports import ImportState  # noqa: E402

PAGE = DIRECTORY.parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- fault matrix: written by `make faults` -->", "<!-- end of the fault matrix -->"
FLUSH, BUILD, COMPACTION, IMPORT, GC = "flush", "index build", "compaction", "import", "garbage collection"
JOBS = (FLUSH, BUILD, COMPACTION, IMPORT, GC)

Key = tuple[str, Victim, str]
"""Job, victim, step."""
Results = Mapping[Key, str]
WHOLE, ORPHANS, WRONG = "whole", "whole, orphans", "WRONG"
REFUSED, NAMED = "refused, whole", "named, others whole"
_WRITES = (Victim.DISK, Victim.PUT)


def cases() -> list[Key]:
    """A sweep puts no objects; builds, imports and sweeps are committed by their coordinator alone."""
    return [(job, victim, step) for job in JOBS for victim, step in CASES if _happens(job, victim, step)]


def _happens(job: str, victim: Victim, step: str) -> bool:
    return not (job in (BUILD, IMPORT, GC) and step == "after commit") and not (
        job == GC and victim in _WRITES
    )


def leaves_files(victim: Victim, step: str) -> bool:
    """Whether the victim wrote something that no commit named: a zombie writes all that it still can."""
    if victim is Victim.ZOMBIE:
        return step != "after commit"
    return step in ("after write", "before commit")


def expected(key: Key) -> str:
    """The outcome of a case."""
    job, victim, step = key
    if victim is Victim.DAMAGE:
        return NAMED
    if job == IMPORT and victim in _WRITES:
        return REFUSED
    return ORPHANS if job != GC and leaves_files(victim, step) else WHOLE


def table(results: Results) -> str:
    """A row for each job and victim, a column for each step."""
    lines = ["| job | what strikes | " + " | ".join(STEPS) + " |", "|---" * (2 + len(STEPS)) + "|"]
    for job in JOBS:
        for victim in dict.fromkeys(v for of, v, _ in results if of == job):
            cells = [results.get((job, victim, step), "–") for step in STEPS]
            lines.append(f"| {job} | {victim} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdict(key: Key) -> str:
    """Run one case."""
    job, victim, step = key
    run = {FLUSH: _flush, BUILD: _build, COMPACTION: _compaction, IMPORT: _import, GC: _sweep}[job]
    with tempfile.TemporaryDirectory() as directory, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run(Path(directory), Fault(victim, step), victim is Victim.DAMAGE))


def _word(right: bool, orphans: tuple[str, ...], damaged: bool) -> str:
    if not right:
        return WRONG
    return NAMED if damaged else ORPHANS if orphans else WHOLE


async def _flush(directory: Path, fault: Fault, damaged: bool) -> str:
    ending = await flush_course.Course(directory, fault, damaged=damaged).run()
    rows = Counter(range(flush_course.BATCHES * flush_course.BATCH_ROWS))
    named = bool(ending.errors) and all("position" in error for error in ending.errors)
    right = ending.flushed and ending.before.keys == ending.after.keys == rows and named == damaged
    return _word(right and not ending.after.orphans, ending.before.orphans, damaged)


async def _build(directory: Path, fault: Fault, damaged: bool) -> str:
    ending = await index_course.Course(directory, fault, damaged=damaged).run()
    right = ending.rows == ROWS and not ending.nameless
    state = BuildState.FAILED if damaged else BuildState.FINISHED
    named = ".parquet" in ending.fail_reason
    return _word(right and ending.state is state and named == damaged, ending.orphans, damaged)


async def _compaction(directory: Path, fault: Fault, damaged: bool) -> str:
    ending = await compaction_course.Course(directory, fault, damaged=damaged).run()
    dead, rows = compaction_course.DELETED, compaction_course.SEGMENT_ROWS
    living = Counter([*range(rows), *range(rows + dead, 3 * rows)] if damaged else range(dead, 2 * rows))
    named = not damaged or all(ending.damaged_path in reason for reason in ending.reasons)
    right = ending.after.keys == living and not ending.after.missing and not ending.after.orphans
    return _word(right and named, ending.before.orphans, damaged)


async def _import(directory: Path, fault: Fault, damaged: bool) -> str:
    ending = await import_course.Course(directory, fault, damaged=damaged).run()
    rows = (1 if damaged else import_course.FILES) * import_course.ROWS
    right = ending.after.keys == Counter(range(rows)) and not ending.after.orphans
    if ending.task.state is not ImportState.FAILED:
        return _word(right, ending.before.orphans, damaged)
    right = right and not ending.between.keys and bool(ending.task.reason)
    return (NAMED if damaged else REFUSED) if right else WRONG


async def _sweep(directory: Path, fault: Fault, damaged: bool) -> str:
    ending = await sweep_course.Course(directory, fault, damaged=damaged).run()
    rows = sweep_course.SEGMENT_ROWS
    living = Counter([*range(rows), *range(2 * rows, 3 * rows)])
    right = ending.contents.keys == living and not ending.contents.missing and not ending.dropped
    return _word(right and (damaged or not ending.contents.orphans), (), damaged)


def shown(page: str) -> str:
    """The table that stands on the page."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def main() -> int:
    structlog.configure(processors=[_drop])
    results = {key: verdict(key) for key in cases()}
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{rest.partition(END)[2]}")
    sys.stdout.write(table(results) + "\n")
    return int(WRONG in results.values())


def _drop(_logger: object, _method: str, _event: object) -> dict[str, object]:
    raise structlog.DropEvent


if __name__ == "__main__":
    raise SystemExit(main())
