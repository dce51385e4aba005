"""The ranking of rows: every block answers, and the reduce selects the best k, one per primary key.

Python touches as many items as there are hits; all work proportional to rows happens in the index. The common
case, one indexed segment whose keys are unique, needs no reduce at all.

Duplicate primary keys need care. A block returns its k best rows. If several of them share a key, the reduce
keeps one, and the block's next rows may belong in the freed places. Where that can matter, the blocks are
searched again for twice as many rows.

Boosts, and function chains of the stage L0, change the scores of a block's hits before they are compared, as
in the reference: a row that is not among its block's k best ones is not considered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import structs

from elanus.api.querynode import NodeSearch
from elanus.core.metrics import TRUTH
from elanus.core.reduce import (
    Keys,
    Merged,
    comparable_keys,
    keys_of_elements,
    may_hide,
    merge,
)
from elanus.core.trail import Trail, current
from elanus.core.vector_lists import Queries, vectors_in
from elanus.index import ElementIndex, Hits, IndexSpec, RowMask, SearchParams, VectorIndex, plan
from elanus.index.hits import stacked
from elanus.index.parallel import PARALLEL_QUERIES_MIN, fan_out
from elanus.querynode.block import Block
from elanus.querynode.boosting import boosted_scores, chained_scores
from elanus.querynode.cluster_pruning import ClusterPruning, pruning_of
from elanus.querynode.found import Found
from elanus.querynode.gather import FoundRows, Rows
from elanus.querynode.query_slices import NO_DEADLINE, QuerySlices, SearchDeadline
from elanus.querynode.truth import true_hits


@dataclass(frozen=True, slots=True)
class _BlockHits:
    """The hits of each answering block. ``scores``, ``rows``: (nq, blocks · k), block after block.

    ``elements``: of a search of elements, their places in the rows. (nq, blocks · k)
    """

    blocks: list[Block]
    k: int
    scores: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int64]
    elements: Rows | None = None

    def numbers(self) -> Keys | None:
        """Return the primary keys of all hits if they are numbers, any key for padding. (nq, blocks · k)."""
        found = [
            block.keys.numbers[self.rows[:, n * self.k : (n + 1) * self.k]]
            for n, block in enumerate(self.blocks)
            if block.keys.numbers is not None
        ]
        return np.concatenate(found, axis=1) if len(found) == len(self.blocks) else None

    def ranks(self) -> Keys:
        """Return the order of all hits' primary keys, any value for padding. (nq, blocks · k)."""
        queries = len(self.rows)
        by_block = np.maximum(self.rows, 0).reshape(queries, len(self.blocks), self.k).transpose(1, 0, 2)
        ids = [
            block.keys.keys.take(pa.array(np.ascontiguousarray(rows).reshape(-1)))
            for block, rows in zip(self.blocks, by_block, strict=True)
        ]
        keys = comparable_keys(pa.concat_arrays(ids))
        return keys.reshape(len(self.blocks), queries, self.k).transpose(1, 0, 2).reshape(queries, -1)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A block with rows that may answer. ``mask``: of its index, None for all rows."""

    block: Block
    index: VectorIndex
    mask: RowMask | None


@dataclass(frozen=True, slots=True)
class Ranking:
    request: NodeSearch
    spec: IndexSpec
    params: SearchParams
    threads: int
    deadline: SearchDeadline = NO_DEADLINE

    def rank(self, blocks: list[Block]) -> Found:
        """Return the k best rows of each query. Raises `DeadlineExceeded`."""
        request = self.request
        slices = QuerySlices(request.queries, self.deadline)
        return slices.search(blocks, request.field_id, request.k, self.params, partial(self._slice, blocks))

    def _slice(self, blocks: list[Block], queries: Queries) -> Found:
        if queries is self.request.queries:
            return self._rank(blocks)
        return replace(self, request=structs.replace(self.request, queries=queries))._rank(blocks)

    def _rank(self, blocks: list[Block]) -> Found:
        k = self.request.k
        prunes = True
        while True:
            pruning = pruning_of(blocks, self.request, self.spec, self.params) if prunes else None
            hits = self._search_blocks(blocks, k, pruning)
            if hits is None:
                empty = np.zeros(len(self.request.queries) + 1, dtype=np.int64)
                no_rows = np.empty(0, dtype=np.int64)
                return Found(empty, np.empty(0, dtype=np.float32), FoundRows((), no_rows, no_rows), None)
            if self.request.keeps_scores and _needs_no_reduce(hits):
                return _as_they_are(hits)
            numbers, valid = hits.numbers(), hits.rows >= 0
            keys = hits.ranks() if numbers is None else numbers
            if hits.elements is not None:
                keys = keys_of_elements(keys, hits.elements)
            bigger = self.spec.metric_type.bigger_is_better
            merged = merge(hits.scores, keys, self.request.k, larger_is_better=bigger, valid=valid)
            if pruning is not None and not pruning.is_sound(hits.scores, merged, self.request.k):
                prunes = False
                continue
            if not may_hide(hits.scores, hits.k, merged, self.request.k, larger_is_better=bigger):
                return _winners(hits, merged, numbers)
            k *= 2

    def _rescored(self, block: Block, hits: Hits) -> Hits:
        boosts, chains = self.request.boosts, self.request.chains
        if boosts is not None:
            hits = boosted_scores(block, hits, boosts)
        if chains is not None and chains.segment is not None:
            hits = chained_scores(block, hits, chains.segment, self.spec.metric_type)
        return hits

    def _search_blocks(
        self, blocks: list[Block], k: int, pruning: ClusterPruning | None
    ) -> _BlockHits | None:
        """Search the blocks that have rows that may answer. None: there are none."""
        trail = current()
        in_turn = trail is not None or pruning is not None
        candidates: list[_Candidate] = []
        found_in_turn: list[Hits] = []
        for block in blocks if pruning is None else pruning.blocks:
            wanted = None if pruning is None else pruning.wanted(block)
            if pruning is not None and wanted is not None and not wanted.any():
                if trail is not None and (why := pruning.why(block)):
                    trail.visit(block)
                    trail.pruned(why)
                continue
            one = self._select(block, trail)
            if one is None:
                continue
            candidates.append(one)
            if in_turn:  # what the index notes belongs to this visit, and its hits may spare the next
                queries = self.request.queries if wanted is None else self.request.queries[wanted]
                found = self._search(one, k, queries)
                found_in_turn.append(found if pruning is None else pruning.noted(one.index, found, wanted))
        if trail is not None:
            trail.leave()
        if not candidates:
            return None
        return self._joined(candidates, found_in_turn or self._search_all(candidates, k), k)

    def _select(self, block: Block, trail: Trail | None) -> _Candidate | None:
        """Return the block with its rows that may answer; None if there are none."""
        request = self.request
        if trail is not None:
            trail.visit(block, was_known=block.was_known(request.read_ts, request.filter))
        selection = block.select(request.read_ts, request.filter, request.expired_until)
        if trail is not None:
            trail.selected(selection.count)
        index = block.vectors[request.field_id].index
        if not selection.count or index is None:
            return None
        mask = selection.mask
        if isinstance(index, ElementIndex):
            mask = index.element_mask(mask, block.chosen_elements(request.filter, request.field_id))
        return _Candidate(block, index, mask)

    def _joined(self, candidates: list[_Candidate], found: list[Hits], k: int) -> _BlockHits:
        """Return the hits of the blocks side by side, with their final scores."""
        hits: list[Hits] = []
        elements: list[Rows] = []
        for one, of_block in zip(candidates, found, strict=True):
            if isinstance(one.index, ElementIndex):
                rows, places = one.index.places(of_block.rows)
                of_block = Hits(of_block.distances, rows)
                elements.append(places)
            hits.append(self._rescored(one.block, of_block))
        blocks = [one.block for one in candidates]
        joined = np.concatenate(elements, axis=1) if elements else None
        if len(hits) == 1:
            return _BlockHits(blocks, k, hits[0].distances, hits[0].rows, joined)
        scores = np.concatenate([h.distances for h in hits], axis=1)
        return _BlockHits(blocks, k, scores, np.concatenate([h.rows for h in hits], axis=1), joined)

    def _search_all(self, candidates: list[_Candidate], k: int) -> list[Hits]:
        """Search each block: side by side where cores are spare, and where it takes long enough."""
        if len(candidates) > 1 and self.threads > 1 and self._is_long(candidates):
            return fan_out(lambda one: self._search(one, k, self.request.queries), candidates, self.threads)
        return [self._search(one, k, self.request.queries) for one in candidates]

    def _is_long(self, candidates: list[_Candidate]) -> bool:
        queries, params = vectors_in(self.request.queries), self.params
        work_ns = sum(one.index.work_ns(queries, params, one.mask) for one in candidates)
        return work_ns >= plan.SHARE_MIN_NS

    def _search(self, one: _Candidate, k: int, queries: Queries) -> Hits:
        if TRUTH in self.request.params:
            column = one.block.vectors[self.request.field_id]
            return true_hits(column, queries, k, self.params, one.mask)
        if not (self.deadline.may_come and self.spec.metric_type.takes_queries_singly):
            return one.index.search(queries, k, self.params, one.mask, self.threads)
        return self._search_singly(one, k, queries)

    def _search_singly(self, one: _Candidate, k: int, queries: Queries) -> Hits:
        """Search with one query after the other, or with as many as cores share, as long as the client
        waits."""
        count = len(queries)
        at_once = PARALLEL_QUERIES_MIN if count >= PARALLEL_QUERIES_MIN else 1
        parts = []
        for start in range(0, count, at_once):
            self.deadline.check_part()
            some = queries if at_once >= count else queries[np.arange(start, min(start + at_once, count))]
            parts.append(one.index.search(some, k, self.params, one.mask, self.threads))
        return stacked(parts)


def _needs_no_reduce(hits: _BlockHits) -> bool:
    """True for one block with unique keys and no equal adjacent scores (the key decides their order)."""
    if len(hits.blocks) > 1 or not hits.blocks[0].keys.unique:
        return False
    ties = hits.scores[:, 1:] == hits.scores[:, :-1]
    return not (ties.any() and (ties & (hits.rows[:, 1:] >= 0)).any())


def _as_they_are(hits: _BlockHits) -> Found:
    queries, width = hits.rows.shape
    valid = hits.rows >= 0
    if valid.all():
        offsets = np.arange(0, queries * width + 1, width)
        rows, scores = hits.rows.reshape(-1), hits.scores.reshape(-1)
    else:
        offsets = np.zeros(queries + 1, dtype=np.int64)
        np.cumsum(valid.sum(axis=1), out=offsets[1:])
        rows, scores = hits.rows[valid], hits.scores[valid]
    numbers = hits.blocks[0].keys.numbers
    return Found(
        offsets,
        scores,
        FoundRows(hits.blocks, np.zeros(len(rows), np.int64), rows),
        None if numbers is None else numbers[rows],
        None if hits.elements is None else hits.elements[valid],
    )


def _winners(hits: _BlockHits, merged: Merged, numbers: Keys | None) -> Found:
    """Return the hits that the reduce selected. ``numbers``: the keys of all hits, if they are numbers."""
    query_of = np.repeat(np.arange(len(hits.rows)), np.diff(merged.offsets))
    won = (query_of, merged.positions)
    return Found(
        merged.offsets,
        hits.scores[won],
        FoundRows(hits.blocks, merged.positions // hits.k, hits.rows[won]),
        None if numbers is None else numbers[won],
        None if hits.elements is None else hits.elements[won],
    )
