"""Function chains on a query node: those of the stage L1, on the hits of all its blocks.

Here larger scores are better, so chains see distances as negative numbers, as in the reference.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from elanus.core.function_chains import ID, Chain, run_chain
from elanus.core.metrics import Metric
from elanus.core.reduce import comparable_keys
from elanus.core.schema import CollectionSchema
from elanus.querynode.found import Found


def chained_hits(found: Found, chain: Chain, metric: Metric, schema: CollectionSchema) -> Found:
    """Return what a chain leaves of a node's hits, best first, equal scores in the order of keys."""
    primary = schema.primary_field
    sign = np.float32(1 if metric.bigger_is_better else -1)

    def column_of(name: str) -> pa.Array:
        field = primary if name == ID else schema.field(name)
        return found.rows.column(field.name, field.arrow_type)

    left = run_chain(chain, found.offsets, sign * found.scores, column_of)
    kept = found.selected(left.offsets, left.places)
    keys = comparable_keys(kept.ids(primary)) if len(left.scores) else np.empty(0, dtype=np.int64)
    query_of = np.repeat(np.arange(len(left.offsets) - 1), np.diff(left.offsets))
    order = np.lexsort((keys, -left.scores, query_of))
    return replace(kept.selected(left.offsets, order), scores=sign * left.scores[order])
