"""Other scores for one block's hits on a query node: by boosts, where filters match, or by function chains.

A boost's filter is evaluated once for the block, like any other filter, and the result serves later searches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.api.boosts import Boost, Boosts
from elanus.core.function_chains import ID, Chain, run_chain
from elanus.core.hashing import hash_strings
from elanus.core.metrics import Metric
from elanus.core.rankers import boosted, random_shares
from elanus.index import Hits
from elanus.querynode.block import Block

Rows = npt.NDArray[np.int64]


def boosted_scores(block: Block, hits: Hits, boosts: Boosts) -> Hits:
    """Return the hits with other scores, in the order that they had."""
    found = hits.rows >= 0
    rows = hits.rows[found]
    scores = hits.distances.copy()
    scores[found] = boosted(
        hits.distances[found],
        [_weights(block, rows, boost) for boost in boosts.functions],
        [block.evaluate(boost.filter).contains(rows) for boost in boosts.functions],
        boosts.boost_mode,
        boosts.function_mode,
    )
    return Hits(scores, hits.rows)


def chained_scores(block: Block, hits: Hits, chain: Chain, metric: Metric) -> Hits:
    """As `boosted_scores`, by a chain of the stage L0, which maps only.

    A chain sees distances as negative numbers: larger scores are better.
    """
    found = hits.rows >= 0
    rows = hits.rows[found]

    def column_of(name: str) -> pa.Array:
        return block.keys.keys.take(pa.array(rows)) if name == ID else block.take(name, rows)

    sign = np.float32(1 if metric.bigger_is_better else -1)
    scores = hits.distances.copy()
    ends = np.array([0, len(rows)], dtype=np.int64)
    scores[found] = sign * run_chain(chain, ends, sign * hits.distances[found], column_of).scores
    return Hits(scores, hits.rows)


def _weights(block: Block, rows: Rows, boost: Boost) -> npt.NDArray[np.float32]:
    weights = np.full(len(rows), boost.weight, dtype=np.float32)
    return weights * random_shares(_numbers(block, rows, boost), boost.seed) if boost.is_random else weights


def _numbers(block: Block, rows: Rows, boost: Boost) -> Rows:
    """Return the numbers that a row's random weight depends on."""
    if boost.random_field:
        values = block.take(boost.random_field, rows)
        return np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    if block.keys.numbers is not None:
        return block.keys.numbers[rows]
    return hash_strings(block.keys.keys.take(rows)).astype(np.int64)
