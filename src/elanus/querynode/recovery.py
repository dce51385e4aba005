"""Growing segments that already have binlogs: a node that starts to follow a vchannel loads them first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from elanus.api.querynode import UnrecoveredSegment, WatchVchannel
from elanus.core.errors import FieldNotFound
from elanus.core.ids import FieldID
from elanus.core.schema import TIMESTAMP_FIELD, CollectionSchema
from elanus.core.segments import SegmentManifest
from elanus.core.unreadable import unreadable_text
from elanus.expr import load_parser
from elanus.index import IndexSpec, load_library
from elanus.querynode.coverage import Coverage
from elanus.querynode.deletes import WriteMoments
from elanus.querynode.delta_logs import DeltaLogs
from elanus.querynode.growing import GrowingSegment, NewRows
from elanus.storage.binlog import read_columns
from elanus.storage.port import CorruptObject, ObjectMissing, ObjectStore


@dataclass(frozen=True, slots=True)
class Recovered:
    """``damaged``: the segments that could not be recovered."""

    segments: tuple[GrowingSegment, ...]
    damaged: tuple[UnrecoveredSegment, ...] = ()


def recover_growing(
    request: WatchVchannel,
    schema: CollectionSchema,
    specs: Mapping[FieldID, IndexSpec],
    coverage: Coverage,
    store: ObjectStore,
    delta_logs: DeltaLogs,
) -> Recovered:
    """Return the covered growing segments of the request as of its checkpoint, with deletes applied.

    A damaged or missing file concerns its segment alone; one with deletes concerns all of them. For a worker
    thread. The first call loads what the first search would have to wait for: the index library, and the
    parser of filters.
    """
    load_library()
    load_parser()
    damaged = [d for d in request.damaged if coverage.takes(d.partition_id)]
    wanted = [m for m in request.growing if m.rows and coverage.takes(m.partition_id)]
    segments: list[GrowingSegment] = []
    for manifest in wanted:
        try:
            segments.append(_recover(manifest, schema, specs, store))
        except (CorruptObject, ObjectMissing, FieldNotFound) as error:
            damaged.append(_unrecovered(manifest, error))
    files = [log.file for log in request.delta_logs] if segments else []
    moments = WriteMoments.of(request.moments)
    try:
        for run in delta_logs.deletes(request.vchannel, files, {file.path for file in files}):
            for segment in segments:
                segment.delete(run.of_partition(segment.partition_id, moments))
    except (CorruptObject, ObjectMissing) as error:
        known = {d.segment_id for d in damaged}
        damaged += [_unrecovered(m, error) for m in wanted if m.segment_id not in known]
        segments = []
    return Recovered(tuple(segments), tuple(damaged))


def unreadable(manifest: SegmentManifest, error: Exception) -> str:
    """Return what is wrong with a segment's files, and the remedy."""
    reason = f"{error}: no such object" if isinstance(error, ObjectMissing) else str(error)
    return unreadable_text(manifest.segment_id, manifest.partition_id, reason)


def _unrecovered(manifest: SegmentManifest, error: Exception) -> UnrecoveredSegment:
    return UnrecoveredSegment(manifest.segment_id, manifest.partition_id, unreadable(manifest, error))


def _recover(
    manifest: SegmentManifest,
    schema: CollectionSchema,
    specs: Mapping[FieldID, IndexSpec],
    store: ObjectStore,
) -> GrowingSegment:
    names = [field.name for field in schema.fields]
    segment = GrowingSegment(manifest.segment_id, manifest.partition_id, schema, specs)
    for batch in read_columns(store, manifest, [TIMESTAMP_FIELD, *names], schema.added_fields).to_batches():
        row_ts = np.array(batch.column(TIMESTAMP_FIELD).to_numpy(), dtype=np.int64)
        segment.append([NewRows(batch.select(names), row_ts)])
    return segment
