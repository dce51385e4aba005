"""The global reduce: what several query nodes found becomes one answer (seed 3, 6.6).

The rule is the node's own (`elanus.core.reduce`), so the answer does not depend on how segments are spread.
Each node has reduced already: its hits are the best k of distinct keys that it holds, its rows the newest
of each key. That is enough here: the best row of a key is the best its node has of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from elanus.core.metrics import Metric
from elanus.core.reduce import comparable_keys, merge
from elanus.core.schema import TIMESTAMP_FIELD
from elanus.rpc.querynode import NodeHits


def merge_hits(parts: Sequence[NodeHits], k: int) -> NodeHits:
    """The best ``k`` hits of each query over all parts, one per primary key. At least one part."""
    if len(parts) == 1:
        return parts[0]
    queries = len(parts[0].offsets) - 1
    counts = [np.diff(part.offsets) for part in parts]
    widths = [int(count.max(initial=0)) for count in counts]
    starts = np.cumsum([0, *widths])
    shape = (queries, int(starts[-1]))
    scores = np.zeros(shape, dtype=np.float32)
    places = np.zeros(shape, dtype=np.int64)
    valid = np.zeros(shape, dtype=np.bool_)
    ids = pa.concat_arrays([part.ids for part in parts])
    first = 0
    for part, count, start, width in zip(parts, counts, starts, widths, strict=False):
        there = np.arange(width) < count[:, None]
        where = (slice(None), slice(start, start + width))
        valid[where] = there
        scores[where][there] = part.scores
        places[where][there] = first + np.arange(len(part.scores))
        first += len(part.scores)
    bigger = Metric(parts[0].metric_type).bigger_is_better
    keys = comparable_keys(ids)[places] if len(ids) else places
    merged = merge(scores, keys, k, larger_is_better=bigger, valid=valid)
    query_of = np.repeat(np.arange(queries), np.diff(merged.offsets))
    winners = pa.array(places[query_of, merged.positions])
    return NodeHits(
        metric_type=parts[0].metric_type,
        offsets=merged.offsets,
        ids=ids.take(winners),
        scores=scores[query_of, merged.positions],
        fields={
            name: pa.concat_arrays([part.fields[name] for part in parts]).take(winners)
            for name in parts[0].fields
        },
    )


def merge_rows(parts: Sequence[Mapping[str, pa.Array]], key: str, limit: int | None) -> dict[str, pa.Array]:
    """Rows in the order of their primary key ``key``, the newest of each, the first ``limit`` of them.

    Every part has the system field Timestamp; the result has not.
    """
    columns = {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}
    stamps = columns.pop(TIMESTAMP_FIELD).to_numpy()
    if len(parts) == 1:
        return columns
    keys = comparable_keys(columns[key]) if len(stamps) else np.empty(0, dtype=np.int64)
    order = np.lexsort((-stamps, keys))
    ordered = keys[order]
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    kept = pa.array(order[first][:limit])
    return {name: column.take(kept) for name, column in columns.items()}
