"""The segments that an import adds to a collection: their manifests and records."""

from __future__ import annotations

from dataclasses import replace

from elanus.api.imports import ImportedSegment
from elanus.core.imports import ImportTask
from elanus.core.segments import SegmentInfo, SegmentManifest, SegmentState
from elanus.core.timestamps import Timestamp


def imported_manifest(task: ImportTask, written: ImportedSegment, commit_ts: Timestamp) -> SegmentManifest:
    return SegmentManifest(
        written.segment_id,
        task.collection_id,
        written.partition_id,
        written.vchannel,
        (replace(written.insert_log, ts_min=commit_ts, ts_max=commit_ts),),
        (written.stats_log,),
        deletes_from=commit_ts,
        commit_ts=commit_ts,
    )


def imported_segment(manifest: SegmentManifest, path: str, max_rows: int) -> SegmentInfo:
    """Return the record of an imported segment. ``max_rows``: of a segment of the schema: it is merged with
    others while it is small compared to that."""
    return SegmentInfo(
        manifest.segment_id,
        manifest.collection_id,
        manifest.partition_id,
        manifest.vchannel,
        SegmentState.FLUSHED,
        max_rows=max_rows,
        created=manifest.commit_ts,
        last_expire=manifest.commit_ts,
        sealed_at=manifest.commit_ts,
        rows=manifest.rows,
        size_bytes=manifest.size_bytes,
        manifest=path,
        is_sorted=manifest.is_sorted,
    )
