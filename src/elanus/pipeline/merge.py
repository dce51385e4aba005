"""Merging segments into one file. Plain Arrow: no Spark here.

Rows that a delete within the fold concerns are left out, and expired ones; the rest are sorted by primary
key, and rows of the same key by their timestamps. Row ids and timestamps stay what they were.

Memory: the scalar columns of all rows, the deletes, and one row group. Vectors, the bulk of most segments,
go through a mapped file in the scratch directory, from where they are taken in the new order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import structlog

from elanus.api.datacoord import SegmentOutput
from elanus.api.datanode import CompactionOrder
from elanus.core.clustering import Cluster
from elanus.core.schema import TIMESTAMP_FIELD, CollectionSchema
from elanus.core.spheres import Spheres
from elanus.core.time_to_live import moment_us, moments_of_expiry
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP
from elanus.pipeline.merge_deltas import merge_deltas
from elanus.pipeline.ordering import OpenRows, Rows, in_order, scalar_columns
from elanus.storage.binlog import SegmentKey, insert_log_writer
from elanus.storage.delta_log import dead_rows, read_delta_log
from elanus.storage.insert_logs import InsertLogs
from elanus.storage.paths import insert_log_path, stats_log_path
from elanus.storage.port import CorruptObject, ObjectMissing, ObjectStore
from elanus.storage.stats_log import KeyStatsBuilder, read_spheres, write_stats_log

_log = structlog.get_logger("pipeline")


@dataclass(frozen=True, slots=True)
class Described:
    """The description of the values of the clustering key in a segment: see `SegmentManifest.cluster`.

    ``spheres``: those around the values, if they are vectors.
    """

    cluster: Cluster | None = None
    spheres: Spheres | None = None


UNKNOWN = Described()


def compact(
    order: CompactionOrder,
    store: ObjectStore,
    scratch: Path,
    name: str,
    progress: Callable[[float, int], None] | None = None,
) -> SegmentOutput:
    """Carry out an order, of segments or of delta logs: see `merge_segments`, `merge_deltas`."""
    merge = merge_deltas if order.merges_deltas else merge_segments
    return merge(order, store, scratch, name, progress)


def merge_segments(
    order: CompactionOrder,
    store: ObjectStore,
    scratch: Path,
    name: str,
    progress: Callable[[float, int], None] | None = None,
) -> SegmentOutput:
    """Write the new segment's files, called ``name``, which no other attempt may use; none if no row lives.

    ``scratch`` is a local directory; ``progress`` is called with the share of rows written, and their number.
    Raises `DiskFull`, and `ObjectMissing` and `CorruptObject` naming a file. After an error the store may
    hold one of the files, which nothing names.
    """
    schema, inputs = order.schema, [manifest for manifest in order.inputs if manifest.insert_logs]
    key = SegmentKey(order.collection_id, order.partition_id, order.segment_id, order.vchannel)
    with InsertLogs(store, inputs, schema, scratch) as logs:
        table = logs.columns(scalar_columns(schema), schema.searched_fields).combine_chunks()
        rows = in_order(table, schema.primary_field.name, living(order, table, store))
        if not len(rows):
            return SegmentOutput(key.segment_id, (), ())
        opened = OpenRows(table, logs, schema)
    described = described_by(order, store)
    batches = opened.batches(rows, key)
    return write_segment(batches, len(rows), schema, key, store, scratch, name, described, progress)


def described_by(order: CompactionOrder, store: ObjectStore) -> Described:
    """Return the description of a cluster that is rewritten alone, which holds for those of its rows, too.

    Spheres that cannot be read any more are left out: they only save searches some work.
    """
    first = order.inputs[0]
    if len(order.inputs) > 1 or first.cluster is None:
        return UNKNOWN
    field = order.schema.by_id.get(first.cluster.field_id)
    if field is None or field.kind.vector is None:
        return Described(first.cluster)
    try:
        return Described(first.cluster, read_spheres(store, first.stats_logs))
    except (ObjectMissing, CorruptObject) as error:
        _log.warning("spheres of a cluster lost", segment=first.segment_id, error=str(error))
        return UNKNOWN


def write_segment(
    batches: Iterable[pa.RecordBatch],
    rows: int,
    schema: CollectionSchema,
    key: SegmentKey,
    store: ObjectStore,
    scratch: Path,
    name: str,
    described: Described = UNKNOWN,
    progress: Callable[[float, int], None] | None = None,
) -> SegmentOutput:
    """Write so many rows, in the order of their primary keys, as a segment's files. Raises `DiskFull`."""
    path = insert_log_path(key.collection_id, key.partition_id, key.segment_id, name)
    stats_path = stats_log_path(key.collection_id, key.partition_id, key.segment_id, name)
    stats, written = KeyStatsBuilder(), 0
    with insert_log_writer(store, path, schema, key, scratch, by_time=False) as writer:
        for batch in batches:
            stats.add(batch.column(schema.primary_field.name))
            writer.write(batch)
            written += batch.num_rows
            if progress is not None:
                progress(written / rows, written)
        file = writer.finish()
    write_stats_log(store, stats_path, stats.finish(), described.spheres)
    return SegmentOutput(key.segment_id, (file,), (stats_path,), described.cluster)


def living(order: CompactionOrder, table: pa.Table, store: ObjectStore) -> Rows:
    """Return the numbers of the rows that the order keeps. ``table``: the inputs' `scalar_columns`."""
    keys = table.column(order.schema.primary_field.name)
    row_ts = table.column(TIMESTAMP_FIELD).to_numpy()
    deletes = [read_delta_log(store, file) for file in order.delta_logs]
    dead = dead_rows(keys, row_ts, deletes, order.partition_id, order.fold_until)
    dead |= row_ts == MAX_TIMESTAMP  # rows of the file that a clone leaves out
    if order.expire_until > NO_TIMESTAMP:
        dead |= row_ts <= order.expire_until
    if order.schema.ttl_field:
        # No read goes back to a moment before the fold.
        dead |= moments_of_expiry(table.column(order.schema.ttl_field).combine_chunks()) <= moment_us(
            order.fold_until
        )
    return np.flatnonzero(~dead)
