"""Grouping search on a query node: ranks as many rows as it takes to find the groups.

The nearest rows may all belong to a few groups. So a query that has not found enough groups among its best n
rows is ranked again, for four times as many, until it has them or there are no more rows. Other queries of
the request are not repeated. The rows that are ranked at a time have a limit, the same that searches without
groups have; a query that reaches it is answered with the groups found so far.

Groups are chosen from one ranking of all rows of the node, so they do not depend on how rows are spread over
segments.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from elanus.core.grouping import Grouping, choose_groups, group_codes
from elanus.core.ids import FieldID
from elanus.core.reduce import Keys
from elanus.core.schema import CollectionSchema
from elanus.index import ElementIndex
from elanus.querynode.block import Block
from elanus.querynode.found import Found
from elanus.querynode.gather import FoundRows
from elanus.querynode.ranking import Ranking

Places = npt.NDArray[np.int64]
_GROWTH = 4
"""How many times as many rows are ranked in the next round."""


def grouped(ranking: Ranking, blocks: list[Block], schema: CollectionSchema) -> Found:
    """Return the hits of the first groups of each query, group by group.

    ``ranking``: its request has a grouping, and ``k`` is the number of groups.
    """
    request = ranking.request
    grouping = request.grouping
    assert grouping is not None
    rows_max = sum(_candidates(block, request.field_id) for block in blocks)
    depth = request.k * grouping.size
    pending = np.arange(len(request.queries))
    parts: list[tuple[Places, Found]] = []
    while True:
        wanted = replace(request, queries=request.queries[pending], k=depth)
        found = replace(ranking, request=wanted).rank(blocks)
        chosen = choose_groups(found.offsets, _codes(found, grouping, schema), grouping, request.k)
        deepest = _depth(depth * _GROWTH, len(pending), len(blocks), rows_max, request.candidates_max)
        done = chosen.complete | (np.diff(found.offsets) < depth)
        if deepest <= depth:
            done[:] = True
        places = chosen.places[np.repeat(done, np.diff(chosen.offsets))]
        queries = np.repeat(pending, np.where(done, np.diff(chosen.offsets), 0))
        parts.append((queries, found.selected(np.empty(0, dtype=np.int64), places)))
        pending = pending[~done]
        if not len(pending):
            return _joined(parts, len(request.queries))
        depth = deepest


def _candidates(block: Block, field_id: FieldID) -> int:
    """Return how many hits the block can have at most: rows, or elements of their lists."""
    index = block.vectors[field_id].index
    return index.elements if isinstance(index, ElementIndex) else block.rows


def _depth(wanted: int, queries: int, blocks: int, rows_max: int, candidates_max: int) -> int:
    """Return how many rows to rank for each query: all blocks return that many hits for each."""
    return min(wanted, rows_max, candidates_max // max(1, queries * blocks))


def _codes(found: Found, grouping: Grouping, schema: CollectionSchema) -> Places:
    keys = grouping.keys(lambda name: found.rows.column(name, schema.field(name).arrow_type))
    return group_codes(keys.values())


def _joined(parts: list[tuple[Places, Found]], queries: int) -> Found:
    """Return the hits of all rounds, in the order of queries. The rounds have the same blocks."""
    query_of = np.concatenate([of for of, _ in parts])
    order = np.argsort(query_of, kind="stable")
    offsets = np.zeros(queries + 1, dtype=np.int64)
    np.cumsum(np.bincount(query_of, minlength=queries), out=offsets[1:])
    rows = [found.rows for _, found in parts]
    numbers: list[Keys] = [found.numbers for _, found in parts if found.numbers is not None]
    elements = [found.elements for _, found in parts if found.elements is not None]
    return Found(
        offsets,
        np.concatenate([found.scores for _, found in parts])[order],
        FoundRows(
            rows[0].blocks,
            np.concatenate([found.block_of for found in rows])[order],
            np.concatenate([found.rows for found in rows])[order],
        ),
        np.concatenate(numbers)[order] if len(numbers) == len(parts) else None,
        np.concatenate(elements)[order] if len(elements) == len(parts) else None,
    )
