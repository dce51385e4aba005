"""The fault matrix as a table on the reliability page. `make faults` runs every case and writes it anew."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

DIRECTORY = Path(__file__).parent
sys.path[:0] = [str(DIRECTORY), str(DIRECTORY.parent)]

import flush_course  # noqa: E402 - run as a program, this file stands alone
import index_course  # noqa: E402
import structlog  # noqa: E402
from injected import CASES, STEPS, Fault, Victim  # noqa: E402
from rows import ROWS  # noqa: E402
from virtual_time import VirtualLoop  # noqa: E402

PAGE = DIRECTORY.parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- fault matrix: written by `make faults` -->", "<!-- end of the fault matrix -->"
FLUSH, BUILD = "flush", "index build"

Key = tuple[str, Victim, str]
"""Job, victim, step."""
Results = Mapping[Key, str]
WHOLE, ORPHANS, WRONG = "whole", "whole, orphans", "WRONG"


def cases() -> list[Key]:
    builds = [(BUILD, victim, step) for victim, step in CASES if step != "after commit"]
    return [*((FLUSH, victim, step) for victim, step in CASES), *builds]


def table(results: Results) -> str:
    """A row for each job and victim, a column for each step."""
    lines = ["| job | what strikes | " + " | ".join(STEPS) + " |", "|---" * (2 + len(STEPS)) + "|"]
    for job in (FLUSH, BUILD):
        for victim in Victim:
            cells = [results.get((job, victim, step), "–") for step in STEPS]
            lines.append(f"| {job} | {victim} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdict(key: Key) -> str:
    """Run one case."""
    job, victim, step = key
    with tempfile.TemporaryDirectory() as directory, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_run(job, Fault(victim, step), Path(directory)))


async def _run(job: str, fault: Fault, directory: Path) -> str:
    if job == FLUSH:
        flush = await flush_course.Course(directory, fault).run()
        rows = flush_course.BATCHES * flush_course.BATCH_ROWS
        right = flush.flushed and flush.keys == Counter(range(rows)) and not flush.nameless
        return (ORPHANS if flush.orphans else WHOLE) if right else WRONG
    build = await index_course.Course(directory, fault).run()
    right = build.rows == ROWS and not build.nameless
    return (ORPHANS if build.orphans else WHOLE) if right else WRONG


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
