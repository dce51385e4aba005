"""Bugs of imports: which rows they add, when reads find them, and what a cancelled one does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elanus.core.imports import Duplicates, ImportState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, plus_ms
from elanus.datacoord import import_commits
from elanus.datacoord.import_commits import ImportCommits
from elanus.datacoord.import_queue import ImportQueue
from elanus.querycoord import switching
from elanus.querycoord.switching import VersionSwitch
from elanus.querycoord.visible_from import decide_moments
from elanus.querynode.write_deletes import WriteDeletes
from elanus.server.import_served import ServedImports
from elanus.sim import import_jobs, plan


def _with_imports(plant: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    """Hunted where it can be found: every seed has them."""

    def planted(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(plan, "has_imports", lambda seed: True)
        plant(patch)

    planted.__doc__ = plant.__doc__
    return planted


@_with_imports
def rows_as_old_as_their_files(patch: pytest.MonkeyPatch) -> None:
    """Imported rows have the timestamp in their files, which was taken before the job."""
    manifest_of = import_commits.imported_manifest

    def early(task: Any, written: Any, commit_ts: Any) -> Any:
        manifest = manifest_of(task, written, commit_ts)
        return replace(manifest, insert_logs=(written.insert_log,), commit_ts=NO_TIMESTAMP)

    patch.setattr(import_commits, "imported_manifest", early)


@_with_imports
def moments_of_their_own(patch: pytest.MonkeyPatch) -> None:
    """Each segment of an import becomes visible at a moment of its own."""

    original = VersionSwitch._moments

    async def moments(self: VersionSwitch, online: Any, target: Any, before: Any) -> Any:
        opened = decide_moments(online, target.segments, target.recovery.heirs, before).open
        visible_from, deletes = await original(self, online, target, before)
        own = {s: plus_ms(visible_from[s], 1000 * n) for n, s in enumerate(opened)}
        if own:
            await self.persist(replace(self.record, stamps={**visible_from, **own}))
        return {**visible_from, **own}, deletes

    patch.setattr(VersionSwitch, "_moments", moments)


@_with_imports
def completed_before_it_is_served(patch: pytest.MonkeyPatch) -> None:
    """A task is completed as soon as it has committed."""

    async def at_once(self: ServedImports, task: Any) -> bool:
        return True

    patch.setattr(ServedImports, "is_served", at_once)


@_with_imports
def cancelled_import_committed(patch: pytest.MonkeyPatch) -> None:
    """A commit does not look at what has become of its task while the manifests were written."""
    cancel, apply = ImportQueue.cancel_import, ImportCommits._apply

    async def cancel_only(self: ImportQueue, task_id: Any) -> None:
        running, self._running = self._running, {}
        await cancel(self, task_id)
        self._running = running

    async def anyway(self: ImportCommits, task: Any, outcome: Any, attempt: int) -> None:
        commit_ts = await self._rootcoord.alloc_timestamp(1)
        segments = await self._write(task, outcome, commit_ts, attempt)
        async with self._lock:
            await apply(self, replace(task, state=ImportState.STARTED), outcome, segments, commit_ts, [])
        self._changes.happened(task.collection_id)

    patch.setattr(ImportQueue, "cancel_import", cancel_only)
    patch.setattr(ImportCommits, "commit", anyway)


def write_deletes_left_out(patch: pytest.MonkeyPatch) -> None:
    """A version brings the rows of an upsert online, and the old rows stay."""
    patch.setattr(WriteDeletes, "announced", lambda *_: ())


def write_deletes_at_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The old rows are gone before reads see the new ones."""
    patch.setattr(
        switching, "delete_moments", lambda unserved, *_: {log.file.path: Timestamp(0) for log in unserved}
    )


@_with_imports
def first_row_of_a_key_stays(patch: pytest.MonkeyPatch) -> None:
    """Of two rows of an upsert with one key the wrong one is left out."""
    bucket = import_jobs.Bucket
    patch.setattr(import_jobs, "Bucket", lambda *given: bucket(*given[:-1], Duplicates.FIRST))


_OTHER_ROWS = frozenset({"SEG1", "VIS3", "VIS4"})
BUGS = (
    (
        "imported rows as old as their files",
        rows_as_old_as_their_files,
        frozenset({"SEG1", "VIS1", "VIS3", "VIS4"}),
        12,
        2,
    ),
    ("imported segments with moments of their own", moments_of_their_own, frozenset({"IMP1"})),
    ("import completed before it is served", completed_before_it_is_served, frozenset({"VIS1"})),
    ("deletes of an upsert left out", write_deletes_left_out, frozenset({"VIS2", "DEL1"}), 8, 50),
    ("deletes of an upsert at its commit", write_deletes_at_the_commit, frozenset({"IMP1"}), 4, 140),
    ("cancelled import committed", cancelled_import_committed, frozenset({"IMP1"}), 12, 4),
    ("first row of a key stays in an upsert", first_row_of_a_key_stays, frozenset({"VIS3", "VIS4"})),
)
