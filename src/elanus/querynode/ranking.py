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
from elanus.core.vector_lists import Queries
from elanus.index import ElementIndex, Hits, IndexSpec, RowMask, SearchParams, VectorIndex
from elanus.index.parallel import fan_out
from elanus.index.plan import shares_for
from elanus.querynode.block import Block
from elanus.querynode.boosting import boosted_scores, chained_scores
from elanus.querynode.cluster_pruning import ClusterPruning, pruning_of
from elanus.querynode.found import Found
from elanus.querynode.gather import FoundRows
from elanus.querynode.query_slices import AS_LONG_AS_IT_TAKES, QuerySlices, Wanted
from elanus.querynode.truth import true_hits

RowIds = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Answers:
    """The hits of each answering block. ``scores``, ``rows``: (nq, blocks · k), block after block.

    ``elements``: of a search of elements, their places in the rows. (nq, blocks · k)
    """

    blocks: list[Block]
    k: int
    scores: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int64]
    elements: RowIds | None = None

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
class _Asked:
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
    wanted: Wanted = AS_LONG_AS_IT_TAKES

    def over(self, blocks: list[Block]) -> Found:
        """Return the k best rows of each query. Raises `DeadlineExceeded`."""
        request = self.request
        slices = QuerySlices(request.queries, self.wanted)
        return slices.search(blocks, request.field_id, request.k, self.params, partial(self._slice, blocks))

    def _slice(self, blocks: list[Block], queries: Queries) -> Found:
        if queries is self.request.queries:
            return self._over(blocks)
        return replace(self, request=structs.replace(self.request, queries=queries))._over(blocks)

    def _over(self, blocks: list[Block]) -> Found:
        k = self.request.k
        prunes = True
        while True:
            pruning = pruning_of(blocks, self.request, self.spec, self.params) if prunes else None
            answers = self._ask(blocks, k, pruning)
            if answers is None:
                empty = np.zeros(len(self.request.queries) + 1, dtype=np.int64)
                no_rows = np.empty(0, dtype=np.int64)
                return Found(empty, np.empty(0, dtype=np.float32), FoundRows((), no_rows, no_rows), None)
            if self.request.keeps_scores and _needs_no_reduce(answers):
                return _as_they_are(answers)
            numbers, valid = answers.numbers(), answers.rows >= 0
            keys = answers.ranks() if numbers is None else numbers
            if answers.elements is not None:
                keys = keys_of_elements(keys, answers.elements)
            bigger = self.spec.metric_type.bigger_is_better
            merged = merge(answers.scores, keys, self.request.k, larger_is_better=bigger, valid=valid)
            if pruning is not None and not pruning.is_sound(answers.scores, merged, self.request.k):
                prunes = False
                continue
            if not may_hide(answers.scores, answers.k, merged, self.request.k, larger_is_better=bigger):
                return _winners(answers, merged, numbers)
            k *= 2

    def _rescored(self, block: Block, hits: Hits) -> Hits:
        boosts, chains = self.request.boosts, self.request.chains
        if boosts is not None:
            hits = boosted_scores(block, hits, boosts)
        if chains is not None and chains.segment is not None:
            hits = chained_scores(block, hits, chains.segment, self.spec.metric_type)
        return hits

    def _ask(self, blocks: list[Block], k: int, pruning: ClusterPruning | None) -> _Answers | None:
        """Search the blocks that have rows that may answer. None: there are none."""
        trail = current()
        in_turn = trail is not None or pruning is not None
        asked: list[_Asked] = []
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
            asked.append(one)
            if in_turn:  # what the index notes belongs to this visit, and its hits may spare the next
                queries = self.request.queries if wanted is None else self.request.queries[wanted]
                found = self._search(one, k, queries)
                found_in_turn.append(found if pruning is None else pruning.noted(one.index, found, wanted))
        if trail is not None:
            trail.leave()
        if not asked:
            return None
        return self._answers(asked, found_in_turn or self._search_all(asked, k), k)

    def _select(self, block: Block, trail: Trail | None) -> _Asked | None:
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
        return _Asked(block, index, mask)

    def _answers(self, asked: list[_Asked], found: list[Hits], k: int) -> _Answers:
        """Return the hits of the blocks side by side, with their final scores."""
        hits: list[Hits] = []
        elements: list[RowIds] = []
        for one, of_block in zip(asked, found, strict=True):
            if isinstance(one.index, ElementIndex):
                rows, places = one.index.places(of_block.rows)
                of_block = Hits(of_block.distances, rows)
                elements.append(places)
            hits.append(self._rescored(one.block, of_block))
        blocks = [one.block for one in asked]
        joined = np.concatenate(elements, axis=1) if elements else None
        if len(hits) == 1:
            return _Answers(blocks, k, hits[0].distances, hits[0].rows, joined)
        scores = np.concatenate([h.distances for h in hits], axis=1)
        return _Answers(blocks, k, scores, np.concatenate([h.rows for h in hits], axis=1), joined)

    def _search_all(self, asked: list[_Asked], k: int) -> list[Hits]:
        """Search each block: side by side where cores are spare, and where it takes long enough."""
        if len(asked) > 1 and self.threads > 1 and self._is_long(asked):
            return fan_out(lambda one: self._search(one, k, self.request.queries), asked, self.threads)
        return [self._search(one, k, self.request.queries) for one in asked]

    def _is_long(self, asked: list[_Asked]) -> bool:
        queries, params = len(self.request.queries), self.params
        return shares_for(sum(one.index.work_ns(queries, params, one.mask) for one in asked), 2) > 1

    def _search(self, one: _Asked, k: int, queries: Queries) -> Hits:
        if TRUTH in self.request.params:
            column = one.block.vectors[self.request.field_id]
            return true_hits(column, queries, k, self.params, one.mask)
        return one.index.search(queries, k, self.params, one.mask, self.threads)


def _needs_no_reduce(answers: _Answers) -> bool:
    """True for one block with unique keys and no equal adjacent scores (the key decides their order)."""
    if len(answers.blocks) > 1 or not answers.blocks[0].keys.unique:
        return False
    ties = answers.scores[:, 1:] == answers.scores[:, :-1]
    return not (ties.any() and (ties & (answers.rows[:, 1:] >= 0)).any())


def _as_they_are(answers: _Answers) -> Found:
    queries, width = answers.rows.shape
    valid = answers.rows >= 0
    if valid.all():
        offsets = np.arange(0, queries * width + 1, width)
        rows, scores = answers.rows.reshape(-1), answers.scores.reshape(-1)
    else:
        offsets = np.zeros(queries + 1, dtype=np.int64)
        np.cumsum(valid.sum(axis=1), out=offsets[1:])
        rows, scores = answers.rows[valid], answers.scores[valid]
    numbers = answers.blocks[0].keys.numbers
    return Found(
        offsets,
        scores,
        FoundRows(answers.blocks, np.zeros(len(rows), np.int64), rows),
        None if numbers is None else numbers[rows],
        None if answers.elements is None else answers.elements[valid],
    )


def _winners(answers: _Answers, merged: Merged, numbers: Keys | None) -> Found:
    """Return the hits that the reduce selected. ``numbers``: the keys of all hits, if they are numbers."""
    query_of = np.repeat(np.arange(len(answers.rows)), np.diff(merged.offsets))
    won = (query_of, merged.positions)
    return Found(
        merged.offsets,
        answers.scores[won],
        FoundRows(answers.blocks, merged.positions // answers.k, answers.rows[won]),
        None if numbers is None else numbers[won],
        None if answers.elements is None else answers.elements[won],
    )
