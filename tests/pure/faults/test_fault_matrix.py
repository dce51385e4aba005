"""Every fault at every step of every job: nothing is lost, nothing is doubled, what is left over goes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import compaction_course
import flush_course
import import_course
import index_course
import pytest
import report
import sweep_course
from flush_course import BATCH_ROWS, BATCHES, DELETED
from injected import Fault, Victim
from rows import ROWS

from elanus.api.indexcoord import BuildState
from elanus.core.imports import ImportState, WriteMode

pytestmark = pytest.mark.faults


def cases(job: str) -> list[tuple[Victim, str]]:
    return [
        (victim, step) for of, victim, step in report.cases() if of == job and victim is not Victim.DAMAGE
    ]


@pytest.mark.parametrize(("victim", "step"), cases(report.FLUSH))
async def test_a_flush_comes_to_the_same_end(victim: Victim, step: str, tmp_path: Path) -> None:
    fault = Fault(victim, step)
    ending = await flush_course.Course(tmp_path, fault).run()
    assert fault.struck.is_set(), "a fault that did not happen proves nothing"
    assert ending.flushed
    for contents in (ending.before, ending.after):
        assert contents.keys == Counter(range(BATCHES * BATCH_ROWS))
        assert contents.deleted == Counter(range(DELETED))
        assert contents.missing == ()
    assert ending.before.nameless == (), "garbage collection knows an orphan by the attempt in its name"
    assert bool(ending.before.orphans) == report.leaves_files(victim, step)
    assert ending.after.orphans == (), "they are reclaimed"


@pytest.mark.parametrize(("victim", "step"), cases(report.COMPACTION))
async def test_a_compaction_comes_to_the_same_end(victim: Victim, step: str, tmp_path: Path) -> None:
    fault = Fault(victim, step)
    ending = await compaction_course.Course(tmp_path, fault).run()
    assert fault.struck.is_set()
    living = Counter(range(compaction_course.DELETED, 2 * compaction_course.SEGMENT_ROWS))
    for contents in (ending.before, ending.after):
        assert contents.keys == living
        assert len(contents.segments) == 1, "one took the place of two"
        assert contents.missing == ()
    assert ending.before.nameless == ()
    assert bool(ending.before.orphans) == report.leaves_files(victim, step)
    assert ending.after.orphans == ()
    assert len(ending.reasons) == (1 if victim in (Victim.DISK, Victim.PUT) else 0), (
        "a plan says why it failed"
    )


@pytest.mark.parametrize(("victim", "step"), cases(report.COMPACTION))
async def test_a_merge_of_delta_logs_comes_to_the_same_end(victim: Victim, step: str, tmp_path: Path) -> None:
    fault = Fault(victim, step)
    ending = await compaction_course.DeltaCourse(tmp_path, fault).run()
    assert fault.struck.is_set()
    deleted = Counter(key for number in range(1, compaction_course.DELTAS + 1) for key in range(number))
    for contents in (ending.before, ending.after):
        assert contents.deleted == deleted
        assert contents.keys == Counter(range(compaction_course.SEGMENT_ROWS))
        assert contents.missing == ()
    assert ending.before.nameless == ()
    assert ending.after.orphans == ()
    assert len(ending.reasons) == (1 if victim in (Victim.DISK, Victim.PUT) else 0)


@pytest.mark.parametrize(("victim", "step"), cases(report.GC))
async def test_a_garbage_collection_comes_to_the_same_end(victim: Victim, step: str, tmp_path: Path) -> None:
    fault = Fault(victim, step)
    ending = await sweep_course.Course(tmp_path, fault).run()
    assert fault.struck.is_set()
    assert ending.report.error == ""
    rows = sweep_course.SEGMENT_ROWS
    assert ending.contents.keys == Counter([*range(rows), *range(2 * rows, 3 * rows)])
    assert ending.contents.missing == (), "what was written meanwhile stays, even when a sweep is late"
    assert (ending.contents.orphans, ending.dropped) == ((), ())


@pytest.mark.parametrize(("victim", "step"), cases(report.IMPORT))
async def test_an_import_comes_to_an_end_that_is_whole(victim: Victim, step: str, tmp_path: Path) -> None:
    fault = Fault(victim, step)
    ending = await import_course.Course(tmp_path, fault).run()
    assert fault.struck.is_set()
    refused = victim in (Victim.DISK, Victim.PUT)
    assert (ending.task.state is ImportState.FAILED) == refused, ending.task.reason
    if refused:
        assert ending.between.keys == Counter(), "all or nothing"
        assert ending.again is not None
        assert ending.again.state is ImportState.COMPLETED, ending.again.reason
    for contents in (ending.before, ending.after):
        assert contents.keys == Counter(range(import_course.FILES * import_course.ROWS))
        assert contents.missing == ()
    assert ending.before.nameless == ()
    assert bool(ending.before.orphans) == report.leaves_files(victim, step)
    assert ending.after.orphans == ()


@pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.OVERWRITE])
@pytest.mark.parametrize("victim", [Victim.DRIVER, Victim.ZOMBIE])
@pytest.mark.parametrize("step", ["after write", "before commit"])
async def test_a_write_that_replaces_rows_deletes_with_its_rows_and_once(
    mode: WriteMode, victim: Victim, step: str, tmp_path: Path
) -> None:
    """The rows are there with their deletes, of one try only, and no file of another try is left."""
    fault = Fault(victim, step)
    ending = await import_course.Course(tmp_path, fault, mode=mode).run()
    assert fault.struck.is_set()
    assert ending.task.state is ImportState.COMPLETED, ending.task.reason
    for contents in (ending.between, ending.before, ending.after):
        assert contents.keys == contents.deleted == Counter(range(import_course.FILES * import_course.ROWS))
        assert contents.missing == ()
    assert ending.after.orphans == ()


@pytest.mark.parametrize(("victim", "step"), cases(report.BUILD))
async def test_an_index_build_comes_to_the_same_end(victim: Victim, step: str, tmp_path: Path) -> None:
    fault = Fault(victim, step)
    ending = await index_course.Course(tmp_path, fault).run()
    assert fault.struck.is_set()
    assert (ending.state, ending.rows) == (BuildState.FINISHED, ROWS)
    assert ending.nameless == (), "an orphan is under the build and the version that wrote it"
    assert bool(ending.orphans) == report.leaves_files(victim, step)


# damaged input


def damage() -> Fault:
    return Fault(Victim.DAMAGE, "before read")


async def test_a_damaged_record_of_the_log_stops_its_own_vchannel_only(tmp_path: Path) -> None:
    ending = await flush_course.Course(tmp_path, damage(), damaged=True).run()
    assert ending.flushed, "the other vchannel's segment"
    assert ending.before.keys == Counter(range(BATCHES * BATCH_ROWS))
    assert ending.errors
    assert all("by-dev-rootcoord-dml_1" in e and "position 8 " in e for e in ending.errors), ending.errors


async def test_a_damaged_segment_stops_its_own_compaction_only(tmp_path: Path) -> None:
    ending = await compaction_course.Course(tmp_path, damage(), damaged=True).run()
    rows, deleted = compaction_course.SEGMENT_ROWS, compaction_course.DELETED
    assert ending.reasons
    assert all(ending.damaged_path in reason for reason in ending.reasons), ending.reasons
    assert ending.after.keys == Counter([*range(rows), *range(rows + deleted, 3 * rows)])
    assert ending.after.missing == ()
    assert len(ending.after.segments) == 2, "the others are compacted"


async def test_a_damaged_manifest_keeps_its_segment_from_being_collected(tmp_path: Path) -> None:
    ending = await sweep_course.Course(tmp_path, damage(), damaged=True).run()
    rows = sweep_course.SEGMENT_ROWS
    assert ending.contents.keys == Counter([*range(rows), *range(2 * rows, 3 * rows)])
    assert ending.contents.missing == ()
    assert ending.dropped == (), "what is garbage for sure is collected"


async def test_a_damaged_file_fails_its_own_import_only(tmp_path: Path) -> None:
    ending = await import_course.Course(tmp_path, damage(), damaged=True).run()
    assert ending.task.state is ImportState.FAILED
    assert "1.parquet" in ending.task.reason
    assert ending.between.keys == Counter()
    assert ending.after.keys == Counter(range(import_course.ROWS)), "the sound file alone"


async def test_a_damaged_segment_is_named_and_harms_no_other_index(tmp_path: Path) -> None:
    ending = await index_course.Course(tmp_path, damage(), damaged=True).run()
    assert ending.state is BuildState.FAILED
    assert "insert_log/400/401/2/a1-rows.parquet" in ending.fail_reason
    assert ending.rows == ROWS, "the other segment has its index"


def test_the_reliability_page_shows_the_matrix() -> None:
    expected = {key: report.expected(key) for key in report.cases()}
    assert report.shown(report.PAGE.read_text()) == report.table(expected), "run `make faults`"
