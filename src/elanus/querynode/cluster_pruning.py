"""Blocks that a search need not look into, because their rows are clusters of other vectors.

The decision is `elanus.core.sphere_pruning`; here it is applied to blocks. Only segments that a compaction by
the searched field made have spheres: a search of others costs nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elanus.api.querynode import NodeSearch
from elanus.core.metrics import TRUTH
from elanus.core.reduce import Merged, worst_winners
from elanus.core.segment_filter import ratio_of
from elanus.core.sphere_pruning import Flags, SpherePruning
from elanus.core.spheres import BOUNDED
from elanus.index import Hits, IndexSpec, SearchParams, VectorIndex, no_hits
from elanus.querynode.block import Block


class ClusterPruning:
    """The course of one search of blocks.

    ``blocks``: in the order in which they are to be searched, some twice, for different queries.
    """

    def __init__(
        self, blocks: Sequence[Block], pruning: SpherePruning, spec: IndexSpec, queries: int
    ) -> None:
        self.blocks = [blocks[number] for number in pruning.order]
        self._numbers = {id(block): number for number, block in enumerate(blocks)}
        self._pruning = pruning
        self._metric = spec.metric_type
        self._queries = queries

    def wanted(self, block: Block) -> Flags | None:
        """Return for which queries the block has to be searched now, (nq,); None: for all."""
        return self._pruning.wanted(self._numbers[id(block)])

    def why(self, block: Block) -> str:
        """Say why a block that no query wants is left out; "" if some query has wanted it before."""
        number = self._numbers[id(block)]
        return "" if self._pruning.was_searched(number) else self._pruning.why(number)

    def noted(self, index: VectorIndex, hits: Hits, wanted: Flags | None) -> Hits:
        """Note the hits of the queries that wanted a block; return those of all queries."""
        if index.has_raw_vectors:  # the scores of codes are not exact
            self._pruning.note(hits.distances, wanted)
        if wanted is None:
            return hits
        spread = no_hits(self._queries, hits.rows.shape[1], self._metric)
        spread.distances[wanted], spread.rows[wanted] = hits.distances, hits.rows
        return spread

    def is_sound(self, scores: npt.NDArray[np.float32], merged: Merged, k: int) -> bool:
        """Whether no block that was left out by its bounds has better rows than the winners.

        ``scores``: of the candidates, as `elanus.core.reduce.merge` had them.
        """
        return self._pruning.is_sound(worst_winners(scores, merged, k))


def pruning_of(
    blocks: Sequence[Block], request: NodeSearch, spec: IndexSpec, params: SearchParams
) -> ClusterPruning | None:
    """Return how a search of the blocks goes on; None: each has to be searched, in any order.

    A search for the true hits looks into all. A page of an iterator obeys the bounds, but no ratio.
    """
    field_id = request.field_id
    known = [b.clustered if b.clustered and b.clustered.field_id == field_id else None for b in blocks]
    if not any(known) or spec.metric_type not in BOUNDED or TRUTH in request.params:
        return None
    pruning = SpherePruning(
        [None if of is None else of.spheres for of in known],
        [None if of is None else of.group for of in known],
        np.asarray(request.queries, dtype=np.float32),
        spec.metric_type,
        request.k,
        radius=None if params.window is None else params.window.radius,
        ratio=0.0 if params.exact else ratio_of(request.params),
        rows=[block.rows for block in blocks],
        compares=request.keeps_scores,
    )
    return ClusterPruning(blocks, pruning, spec, len(request.queries))
