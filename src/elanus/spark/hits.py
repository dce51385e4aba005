"""Hits as Arrow batches between the stages of a join, and their reduce to the best of each query."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.reduce import comparable_keys, primary_keys
from elanus.spark.segment_search import Neighbors

QUERY, RANK, KEY, SCORE = "query_id", "rank", "key", "score"


def hits_schema(query: pa.DataType, key: pa.DataType) -> pa.Schema:
    """Return the columns of hits: rank 1 is the best one."""
    return pa.schema([(QUERY, query), (RANK, pa.int32()), (KEY, key), (SCORE, pa.float32())])


def as_batch(queries: pa.Array, found: Neighbors, schema: pa.Schema) -> pa.RecordBatch:
    """Return the hits of these queries as a batch of `hits_schema`."""
    counts = np.diff(found.offsets)
    query_of = np.repeat(np.arange(len(counts)), counts)
    rank = np.arange(len(query_of)) - found.offsets[:-1][query_of] + 1
    columns = [
        queries.take(pa.array(query_of)).cast(schema.field(QUERY).type),
        pa.array(rank, pa.int32()),
        pa.array(found.keys, schema.field(KEY).type),
        pa.array(found.scores),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def reduced(batches: Iterable[pa.RecordBatch], schema: pa.Schema, k: int, *, bigger: bool) -> pa.RecordBatch:
    """Return the best ``k`` hits of each query with distinct keys, by the order of `elanus.core.reduce`.

    ``batches``: all hits of the queries that they have hits of. Memory: a few times that of the hits.
    """
    parts = [batch for batch in batches if batch.num_rows]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=schema)
    table = pa.Table.from_batches(
        parts
    ).combine_chunks()  # Spark's batches lose what the schema says of nulls
    query = _codes(table.column(QUERY))
    key = comparable_keys(primary_keys(_whole(table.column(KEY))))
    scores = table.column(SCORE).to_numpy()
    ascending = -scores if bigger else scores
    order = np.lexsort((ascending, key, query))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = np.diff(query[order]).astype(bool) | np.diff(key[order]).astype(bool)
    kept = order[first]
    kept = kept[np.lexsort((key[kept], ascending[kept], query[kept]))]
    starts = np.flatnonzero(np.diff(query[kept], prepend=-1))
    rank = np.arange(len(kept)) - np.repeat(starts, np.diff(np.append(starts, len(kept)))) + 1
    best = rank <= k
    chosen = table.take(pa.array(kept[best]))
    columns = [_whole(chosen.column(name)) for name in schema.names]
    columns[schema.get_field_index(RANK)] = pa.array(rank[best], pa.int32())
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return a number for each distinct value, null among them."""
    encoded = _whole(column).dictionary_encode(null_encoding="encode")
    codes: npt.NDArray[np.int64] = encoded.indices.to_numpy().astype(np.int64)
    return codes


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
