"""The segments whose rows an overwrite deletes: those of a snapshot of the partition, whose files it pins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from elanus.core.imports import ImportTask, WriteMode
from elanus.core.segments import SegmentManifest
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.snapshots import Snapshots

_LEASE_MS = 24 * 3600 * 1000


@asynccontextmanager
async def replaced_segments(
    snapshots: Snapshots, manifests: Manifests, task: ImportTask
) -> AsyncIterator[tuple[SegmentManifest, ...]]:
    """Yield the partition's segments as of now, of an overwrite; none for other writes.

    Rows that clients write while the overwrite runs are not replaced, unless their keys are. Raises as
    `Snapshots.take_snapshot` does.
    """
    if task.mode is not WriteMode.OVERWRITE:
        yield ()
        return
    lease = await snapshots.take_snapshot(task.collection_id, (task.partition_id,), _LEASE_MS)
    try:
        yield (await manifests.snapshot(lease.path)).segments
    finally:
        await snapshots.release_snapshot(lease.snapshot_id)
