"""Merging delta logs of a vchannel into one. Plain Arrow: no Spark here.

All deletes stay, with their timestamps and partitions, so a read as of any moment finds the same ones.
Memory: the deletes of the files whose times overlap; those of a vchannel's ranges do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from elanus.api.datacoord import SegmentOutput
from elanus.api.datanode import CompactionOrder
from elanus.core.ids import NO_SEGMENT
from elanus.core.schema import TIMESTAMP_FIELD
from elanus.core.segments import BinlogFile
from elanus.storage.delta_log import delta_log_schema, delta_log_writer, read_delta_log
from elanus.storage.paths import delta_log_path
from elanus.storage.port import ObjectStore


def merge_deltas(
    order: CompactionOrder,
    store: ObjectStore,
    scratch: Path,
    name: str,
    progress: Callable[[float, int], None] | None = None,
) -> SegmentOutput:
    """Write the merged delta log, called ``name``, which no other attempt may use.

    ``scratch`` and ``progress``: as for `elanus.pipeline.merge.merge_segments`. Raises `DiskFull`, and
    `ObjectMissing` and `CorruptObject` naming a file.
    """
    file_schema = delta_log_schema(order.schema.primary_field, order.collection_id, order.vchannel)
    path = delta_log_path(order.collection_id, order.vchannel, name)
    rows, written = sum(file.rows for file in order.delta_logs), 0
    with delta_log_writer(store, path, file_schema, scratch) as writer:
        for files in _overlapping(order.delta_logs):
            deletes = pa.concat_tables([read_delta_log(store, file) for file in files])
            if len(files) > 1:
                deletes = deletes.sort_by(TIMESTAMP_FIELD)
            for batch in deletes.select(file_schema.names).cast(file_schema).to_batches():
                writer.write(batch)
            written += deletes.num_rows
            if progress is not None:
                progress(written / max(1, rows), written)
        file = writer.finish()
    return SegmentOutput(NO_SEGMENT, (file,), ())


def _overlapping(files: Sequence[BinlogFile]) -> Iterator[list[BinlogFile]]:
    """Divide the files, by time, into groups that do not overlap."""
    group: list[BinlogFile] = []
    for file in sorted(files, key=lambda f: (f.ts_min, f.ts_max, f.path)):
        if group and file.ts_min > max(f.ts_max for f in group):
            yield group
            group = []
        group.append(file)
    if group:
        yield group
