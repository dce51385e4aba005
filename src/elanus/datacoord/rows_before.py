"""The rows that a write must know before it adds its own: a snapshot of them, whose files it pins.

An overwrite deletes the rows of its partition. An import that leaves rows out because the collection has
their keys looks those keys up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from elanus.core.ids import ALL_PARTITIONS
from elanus.core.imports import ImportTask, WriteMode, looks_at_existing
from elanus.core.segments import SegmentManifest
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.snapshots import Snapshots

_LEASE_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class RowsBefore:
    """``replaced``: the segments whose rows an overwrite deletes. ``existing``: the path of a snapshot."""

    replaced: tuple[SegmentManifest, ...] = ()
    existing: str = ""


@asynccontextmanager
async def rows_before(
    snapshots: Snapshots, manifests: Manifests, task: ImportTask
) -> AsyncIterator[RowsBefore]:
    """Yield what a write has to know of the rows that its partition has as of now; nothing for most writes.

    Rows that clients write while an overwrite runs are not replaced, unless their keys are; an import does
    not notice the keys of rows that are written while it runs. Raises as `Snapshots.take_snapshot` does.
    """
    is_overwrite = task.mode is WriteMode.OVERWRITE
    if not is_overwrite and not looks_at_existing(task.mode, task.duplicates):
        yield RowsBefore()
        return
    partitions = () if task.partition_id == ALL_PARTITIONS else (task.partition_id,)
    lease = await snapshots.take_snapshot(task.collection_id, partitions, _LEASE_MS)
    try:
        if is_overwrite:
            yield RowsBefore(replaced=(await manifests.snapshot(lease.path)).segments)
        else:
            yield RowsBefore(existing=lease.path)
    finally:
        await snapshots.release_snapshot(lease.snapshot_id)
