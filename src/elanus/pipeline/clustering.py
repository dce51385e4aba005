"""Clustering compaction: segments become others, each with a range of the clustering key. No Spark here.

Three steps, each of them tasks of their own (`elanus.pipeline.cluster_jobs`):

1. The *survey* draws the boundaries between clusters from a sample of the inputs' keys, or centroids if the
   key is a vector (`elanus.pipeline.vector_clusters`).
2. Each *split* reads some inputs once, leaves out dead rows, and writes the others to one file per cluster.
3. Each *write* reads the files of one cluster and writes one segment, sorted by primary key.

The files between the steps look like insert logs. No manifest names them, so garbage collection deletes them
after the compaction. Memory: the scalar columns of a few segments; vectors are in mapped files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.api.datacoord import SegmentOutput
from elanus.api.datanode import CompactionOrder
from elanus.core.clustering import (
    Cluster,
    Clustering,
    Key,
    Slice,
    boundaries,
    cluster_of,
    clusters_of,
    slices,
)
from elanus.core.errors import Internal
from elanus.core.schema import ROW_ID_FIELD
from elanus.core.segments import BinlogFile
from elanus.core.types import Matrix
from elanus.pipeline.merge import Described, compact, living, write_segment
from elanus.pipeline.ordering import OpenRows, Rows, in_order, scalar_columns
from elanus.pipeline.vector_clusters import VectorClusters, part_of, survey_vectors
from elanus.storage.binlog import SegmentKey, insert_log_writer, read_columns
from elanus.storage.insert_logs import InsertLogs
from elanus.storage.paths import insert_log_path
from elanus.storage.port import ObjectStore

Boundaries = tuple[Key, ...] | VectorClusters
"""The finding of a survey: the values at which clusters begin, or centroids."""
SAMPLE_ROWS_MAX = 200_000
"""How many values the boundaries are drawn from: enough for a thousand clusters of similar sizes."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The rows of some inputs that are in one cluster."""

    cluster: int
    file: BinlogFile


def outputs_of(
    order: CompactionOrder, store: ObjectStore, scratch: Path, name: str
) -> tuple[SegmentOutput, ...]:
    """Carry out an order of any kind in this process, one step after the other.

    ``name``, ``scratch``: see `elanus.pipeline.merge.merge_segments`, and what it raises.
    """
    if order.clustering is None:
        return (compact(order, store, scratch, name),)
    found = survey(order, store)
    chunks = [
        chunk
        for number, part in enumerate(parts_of(order))
        for chunk in split(part, found, store, scratch, f"{name}-{number}")
    ]
    steps = writes_of(order.clustering, chunks, found)
    outputs = (write(order, step, store, scratch, name) for step in steps)
    return checked(tuple(outputs), chunks)


def survey(order: CompactionOrder, store: ObjectStore) -> Boundaries:
    """Return what separates the clusters of the inputs' rows. Dead rows count as well."""
    if _is_vector(order):
        return survey_vectors(order, store)
    clustering, key = _clustering(order), _key_name(order)
    rows = sum(manifest.rows for manifest in order.inputs)
    chance = np.random.default_rng(order.plan_id)
    sample = []
    for manifest in order.inputs:
        if manifest.insert_logs:
            values = read_columns(store, manifest, [key], order.schema.added_fields).column(key)
            if rows > SAMPLE_ROWS_MAX:
                wanted = -(-len(values) * SAMPLE_ROWS_MAX // rows)
                values = values.take(pa.array(chance.choice(len(values), wanted, replace=False)))
            sample += values.chunks
    return boundaries(pa.chunked_array(sample).combine_chunks(), clustering.clusters) if sample else ()


def parts_of(order: CompactionOrder) -> list[CompactionOrder]:
    """Return the order cut into parts, each with about as many rows of inputs as one segment may have."""
    rows_max, found = _clustering(order).rows_max, [[order.inputs[0]]]
    for manifest in order.inputs[1:]:
        if sum(m.rows for m in found[-1]) + manifest.rows <= rows_max:
            found[-1].append(manifest)
        else:
            found.append([manifest])
    return [replace(order, inputs=tuple(part)) for part in found]


def split(
    part: CompactionOrder, found: Boundaries, store: ObjectStore, scratch: Path, name: str
) -> tuple[Chunk, ...]:
    """Write the rows that are left of some inputs to one file per cluster. ``found``: see `survey`."""
    inputs = [manifest for manifest in part.inputs if manifest.insert_logs]
    if not inputs:
        return ()
    schema = part.schema
    with InsertLogs(store, inputs, schema, scratch) as logs:
        table = logs.columns(scalar_columns(schema), schema.searched_fields).combine_chunks()
        rows = living(part, table, store)
        if not len(rows):
            return ()
        opened = OpenRows(table, logs, schema)
    if isinstance(found, VectorClusters):
        numbers = found.clusters_of(opened.vectors[_key_name(part)], rows)
    else:
        numbers = clusters_of(_values(table, part, rows), found)
    chunks = []
    for cluster in np.unique(numbers).tolist():
        ordered = in_order(table, schema.primary_field.name, rows[numbers == cluster])
        key = _segment_key(part, 0)
        path = insert_log_path(
            key.collection_id, key.partition_id, key.segment_id, f"{name}-cluster-{cluster}"
        )
        with insert_log_writer(store, path, schema, key, scratch, by_time=False) as writer:
            for batch in opened.batches(ordered, key):
                writer.write(batch)
            chunks.append(Chunk(cluster, writer.finish()))
    if sum(chunk.file.rows for chunk in chunks) != len(rows):
        raise Internal(f"clusters of {len(rows)} rows have {sum(c.file.rows for c in chunks)} rows")
    return tuple(chunks)


@dataclass(frozen=True, slots=True)
class Write:
    """One segment to write: its number among the outputs, and the files of its cluster.

    ``centroids``: those of its cluster, if the key is a vector.
    """

    number: int
    slice: Slice
    files: tuple[BinlogFile, ...]
    centroids: Matrix | None = field(default=None, compare=False)


def writes_of(clustering: Clustering, chunks: Sequence[Chunk], found: Boundaries = ()) -> list[Write]:
    """Return the segments to write. ``found``: see `survey`.

    Raises `Internal` if they were more than there are ids for.
    """
    files: list[list[BinlogFile]] = [[] for _ in range(1 + max((c.cluster for c in chunks), default=-1))]
    for chunk in chunks:
        files[chunk.cluster].append(chunk.file)
    planned = slices([sum(f.rows for f in of) for of in files], clustering.rows_max)
    if len(planned) > clustering.ids:
        raise Internal(
            f"{len(planned)} segments for {clustering.ids} ids: the inputs had more rows than planned"
        )
    centroids = found.of_cluster if isinstance(found, VectorClusters) else lambda _: None
    return [
        Write(number, one, tuple(files[one.cluster]), centroids(one.cluster))
        for number, one in enumerate(planned)
    ]


def write(order: CompactionOrder, step: Write, store: ObjectStore, scratch: Path, name: str) -> SegmentOutput:
    """Write one segment."""
    schema, key = order.schema, _segment_key(order, step.number)
    with InsertLogs(store, [step.files], schema, scratch) as logs:
        table = logs.columns(scalar_columns(schema), schema.searched_fields).combine_chunks()
        opened = OpenRows(table, logs, schema)
    if step.centroids is None:
        rows = _slice_of(table, order, step.slice)
        described = Described(cluster_of(_clustering(order).field_id, _values(table, order, rows)))
    else:
        vectors = opened.vectors[_key_name(order)]
        rows, spheres = part_of(vectors, table.column(ROW_ID_FIELD).to_numpy(), step.centroids, step.slice)
        described = Described(Cluster(_clustering(order).field_id, None, None), spheres)
    ordered = in_order(table, schema.primary_field.name, rows)
    batches = opened.batches(ordered, key)
    return write_segment(batches, len(rows), schema, key, store, scratch, name, described)


def checked(outputs: tuple[SegmentOutput, ...], chunks: Sequence[Chunk]) -> tuple[SegmentOutput, ...]:
    """Return the outputs. Raises `Internal` unless they have as many rows as the splits wrote."""
    written = sum(file.rows for output in outputs for file in output.insert_logs)
    wanted = sum(chunk.file.rows for chunk in chunks)
    if written != wanted:
        raise Internal(f"the clusters have {written} rows, their inputs {wanted}")
    return outputs


def _slice_of(table: pa.Table, order: CompactionOrder, one: Slice) -> Rows:
    """Return the rows of one part of a cluster. All parts are cut from the same order of the rows."""
    if one.parts == 1:
        return np.arange(table.num_rows)
    # The row id decides between equal values, so that each task finds the same order.
    order_by = [(_key_name(order), "ascending"), (ROW_ID_FIELD, "ascending")]
    ranked = pc.sort_indices(table, sort_keys=order_by).to_numpy()
    first, last = (table.num_rows * n // one.parts for n in (one.part, one.part + 1))
    rows: Rows = np.sort(ranked[first:last].astype(np.int64))
    return rows


def _values(table: pa.Table, order: CompactionOrder, rows: Rows) -> pa.Array:
    column = table.column(_key_name(order)).take(pa.array(rows))
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _clustering(order: CompactionOrder) -> Clustering:
    if order.clustering is None:
        raise Internal(f"compaction {order.plan_id} has no clustering key")
    return order.clustering


def _is_vector(order: CompactionOrder) -> bool:
    return order.schema.by_id[_clustering(order).field_id].kind.vector is not None


def _key_name(order: CompactionOrder) -> str:
    return order.schema.by_id[_clustering(order).field_id].name


def _segment_key(order: CompactionOrder, number: int) -> SegmentKey:
    segment_id = _clustering(order).segment_id(number)
    return SegmentKey(order.collection_id, order.partition_id, segment_id, order.vchannel)
