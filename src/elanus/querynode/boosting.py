"""Boosts on a query node: the scores of one block's hits, changed where filters match.

A boost's filter is evaluated once for the block, like any other filter, and the result serves later searches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elanus.api.boosts import Boost, Boosts
from elanus.core.hashing import hash_strings
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
        [block.evaluate(boost.filter)[rows] for boost in boosts.functions],
        boosts.boost_mode,
        boosts.function_mode,
    )
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
