"""Growing segments that already have binlogs: a node that starts to follow a vchannel loads them first."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from elanus.api.querynode import WatchVchannel
from elanus.core.ids import FieldID
from elanus.core.schema import TIMESTAMP_FIELD, CollectionSchema
from elanus.core.segments import SegmentManifest
from elanus.index import IndexSpec
from elanus.querynode.coverage import Coverage
from elanus.querynode.delta_logs import DeltaLogs
from elanus.querynode.growing import GrowingSegment, NewRows
from elanus.storage.binlog import read_columns
from elanus.storage.port import ObjectStore


def recover_growing(
    request: WatchVchannel,
    schema: CollectionSchema,
    specs: Mapping[FieldID, IndexSpec],
    coverage: Coverage,
    store: ObjectStore,
    delta_logs: DeltaLogs,
) -> list[GrowingSegment]:
    """Return the covered growing segments of the request as of its checkpoint, with deletes applied.

    For a worker thread. Raises `ObjectMissing`, `CorruptObject`, `FieldNotFound`.
    """
    wanted = [m for m in request.growing if m.rows and coverage.takes(m.partition_id)]
    if not wanted:
        return []
    segments = [_recover(manifest, schema, specs, store) for manifest in wanted]
    files = [log.file for log in request.delta_logs]
    for run in delta_logs.deletes(request.vchannel, files, {file.path for file in files}):
        for segment in segments:
            segment.delete(run.of_partition(segment.partition_id))
    return segments


def _recover(
    manifest: SegmentManifest,
    schema: CollectionSchema,
    specs: Mapping[FieldID, IndexSpec],
    store: ObjectStore,
) -> GrowingSegment:
    names = [field.name for field in schema.fields]
    segment = GrowingSegment(manifest.segment_id, manifest.partition_id, schema, specs)
    for batch in read_columns(store, manifest, [TIMESTAMP_FIELD, *names]).to_batches():
        row_ts = np.array(batch.column(TIMESTAMP_FIELD).to_numpy(), dtype=np.int64)
        segment.append([NewRows(batch.select(names), row_ts)])
    return segment
