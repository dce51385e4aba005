"""Full-text search on a query node: the statistics of terms.

The scores of a full-text search depend on how rare its terms are among all rows. The proxy asks for that
first, for the same timestamp as the search. The statistics count visible rows only, and these are the same
whatever segments they are in: a handoff, a compaction or a move between nodes changes no score.
"""

from __future__ import annotations

from elanus.api.querynode import NodeStatistics
from elanus.core.schema import CollectionSchema
from elanus.core.term_statistics import TermStatistics
from elanus.expr import compile_filter
from elanus.index import TermIndex
from elanus.querynode.snapshot import Snapshot

_ALL_ROWS = compile_filter("", CollectionSchema("", ()))


def statistics(snapshot: Snapshot, request: NodeStatistics) -> TermStatistics:
    """Return the statistics of this node's rows. Raises what `Snapshot.blocks` raises."""
    total = TermStatistics.none(len(request.terms))
    blocks = snapshot.blocks(request.read_ts, (), ignore_growing=False, expired_until=request.expired_until)
    for block in blocks:
        column = block.vectors.get(request.field_id)
        selection = block.select(request.read_ts, _ALL_ROWS, request.expired_until)
        if selection.count and column is not None and isinstance(column.index, TermIndex):
            total += column.index.statistics(request.terms, selection.mask)
    return total
