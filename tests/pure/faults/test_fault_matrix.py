"""Every fault at every step of every job: nothing is lost, nothing is doubled, what is left over is known."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import flush_course
import index_course
import pytest
import report
from flush_course import BATCH_ROWS, BATCHES, DELETED
from injected import CASES, Fault, Victim
from rows import ROWS

from elanus.rpc.indexcoord import BuildState

INDEX_CASES = [(victim, step) for job, victim, step in report.cases() if job == report.BUILD]
"""The commit of a build is the coordinator's own: nobody stands on its other side."""


@pytest.mark.parametrize(("victim", "step"), CASES)
async def test_a_flush_comes_to_the_same_end(victim: Victim, step: str, tmp_path: Path) -> None:
    fault = Fault(victim, step)
    ending = await flush_course.Course(tmp_path, fault).run()
    assert fault.struck.is_set(), "a fault that did not happen proves nothing"
    assert ending.flushed
    assert ending.keys == Counter(range(BATCHES * BATCH_ROWS))
    assert ending.deleted == Counter(range(DELETED))
    assert ending.nameless == (), "garbage collection knows an orphan by the attempt in its name"
    assert bool(ending.orphans) == leaves_files(victim, step)


def leaves_files(victim: Victim, step: str) -> bool:
    """Whether the victim wrote something that no commit named: a zombie writes all that it still can."""
    if victim is Victim.ZOMBIE:
        return step != "after commit"
    return step in ("after write", "before commit")


@pytest.mark.parametrize(("victim", "step"), INDEX_CASES)
async def test_an_index_build_comes_to_the_same_end(victim: Victim, step: str, tmp_path: Path) -> None:
    fault = Fault(victim, step)
    ending = await index_course.Course(tmp_path, fault).run()
    assert fault.struck.is_set(), "a fault that did not happen proves nothing"
    assert (ending.state, ending.rows) == (BuildState.FINISHED, ROWS)
    assert ending.nameless == (), "an orphan lies under the build and the version that wrote it"
    assert bool(ending.orphans) == leaves_files(victim, step)


async def test_a_damaged_file_is_named_and_harms_no_other_segment(tmp_path: Path) -> None:
    fault = Fault(Victim.TASK, "never")
    ending = await index_course.Course(tmp_path, fault, damaged=True).run()
    assert ending.state is BuildState.FAILED
    assert "insert_log/400/401/2/a1-rows.parquet" in ending.fail_reason
    assert ending.rows == ROWS, "the other segment has its index"


def test_the_reliability_page_shows_the_matrix() -> None:
    expected = {
        (job, victim, step): report.ORPHANS if leaves_files(victim, step) else report.WHOLE
        for job, victim, step in report.cases()
    }
    assert report.shown(report.PAGE.read_text()) == report.table(expected), "run `make faults`"
