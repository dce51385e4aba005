"""The true answer of a search: every row compared by the vectors that clients sent, whatever the index.

It reads the same snapshot at the same timestamp as the search, so writes in between change nothing. An index
that holds its vectors compares all of them; where it holds only codes, the vectors are read from the
segment's files, some at a time.
"""

from __future__ import annotations

import numpy as np

from elanus.core.types import Matrix
from elanus.index import Hits, NullableIndex, RowMask, SearchParams, no_hits, over_rows
from elanus.index.hits import merge
from elanus.querynode.vectors import VectorColumn

_CHUNK_ROWS = 1 << 14


def true_hits(
    column: VectorColumn, queries: Matrix, k: int, params: SearchParams, mask: RowMask | None
) -> Hits:
    """Return the best rows of a block. ``params``: those of `elanus.index.true_params`, resolved."""
    index = column.index
    assert index is not None, "a field that can be searched"
    if index.has_raw_vectors:
        return index.search(queries, k, params, mask)
    valid = index.valid if isinstance(index, NullableIndex) else np.ones(index.rows, dtype=np.bool_)
    rows = np.flatnonzero(valid if mask is None else valid & mask.to_bool())
    metric = index.spec.metric_type
    parts = [no_hits(len(queries), k, metric)]
    for start in range(0, len(rows), _CHUNK_ROWS):
        chunk = rows[start : start + _CHUNK_ROWS]
        vectors: Matrix = column.fetch(chunk)
        exact = over_rows(column.field.data_type, column.field.dim, metric, vectors, index.spec.params)
        found = exact.search(queries, k, params)
        parts.append(Hits(found.distances, np.where(found.rows < 0, found.rows, chunk[found.rows])))
    return merge(parts, len(queries), k, metric)
