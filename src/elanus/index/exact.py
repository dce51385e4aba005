"""Exact search: every visible row is compared. The common part of brute force over float and binary rows.

Growing chunks, FLAT indexes, the rows of a graph index that pass a filter, and range searches are all
answered here. There are two strategies, depending on the number of queries:

* a few queries: one kernel call per query over all rows, or over the visible ones by their numbers, in
  place. If that takes milliseconds and cores are spare, each thread compares a range of the rows;
* a batch: the rows are processed in blocks that fit the processor's cache, all queries against each block,
  and the best hits of the blocks are merged. Visible rows are gathered into the block, so a block is small.
  Several threads divide the blocks among themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.core.trail import current
from elanus.index import plan
from elanus.index.hits import Hits, RowIds, Scores, best_of, merge, no_hits, only_found
from elanus.index.masks import RowMask
from elanus.index.parallel import fan_out, workers
from elanus.index.plan import BATCH_QUERIES_MIN
from elanus.index.search_params import Window

BLOCK_BYTES = 4 * 1024 * 1024
"""Size of a block's rows: a share of the cache that all cores use together."""
BLOCK_ROWS_PER_K = 4
"""A block has at least this many rows per requested hit, else merging costs more than comparing."""
SPARSE_SHARE = 0.4
"""Below this share of visible rows, rows are compared by number; above it, the scan tests bits. At a share of
0.5 both take the same time, at 0.2 numbers take half, with 32 to 784 dimensions."""
KEPT_SHARE = 1 / 8
"""Below this share the numbers are kept with the mask. Above it they take more than eight times the memory of
the bits, and finding them a small part of the scan."""


Block = slice | RowIds
"""Consecutive rows, or row numbers."""


class ExactRows(ABC):
    """Rows that can be compared with queries. ``row_bytes``: of one row in the form it is kept in."""

    def __init__(self, count: int, row_bytes: int, metric: Metric) -> None:
        self.count = count
        self.metric = metric
        self._row_bytes = row_bytes

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Bytes held in memory, or mapped."""

    def nearest(self, queries: npt.NDArray[Any], k: int, mask: RowMask | None, threads: int) -> Hits:
        """Return the k best visible rows of each query; k is at most the number of visible rows."""
        self._note(len(queries), mask)
        shares = workers(threads, len(queries))
        if shares == 1:
            shares = plan.shares_for(self.work_ns(len(queries), mask), threads)
        if len(queries) >= BATCH_QUERIES_MIN:
            return self._nearest_by_blocks(queries, k, mask, shares, threads)
        if shares > 1:
            return self._nearest_divided(queries, k, mask, shares, threads)
        return fan_out(lambda few: self._nearest_few(few, k, mask), [queries])[0]

    def work_ns(self, queries: int, mask: RowMask | None) -> float:
        """Return about how long one core compares the visible rows with so many queries, or a little less."""
        visible = self.count if mask is None else mask.count
        return queries * plan.exact_cost_ns(visible, self._row_bytes // 4, 1, self.count)

    def nearest_of(self, queries: npt.NDArray[Any], k: int, rows: RowIds) -> Hits:
        """Return the k best among these rows, for each query; k is at most their number."""
        best = [best_of(self.scores(query, rows), k, self.metric) for query in queries]
        return Hits(
            np.array([scores for scores, _ in best], dtype=np.float32).reshape(-1, k),
            np.array([rows[order] for _, order in best], dtype=np.int64).reshape(-1, k),
        )

    def within(self, queries: npt.NDArray[Any], k: int, window: Window, mask: RowMask | None) -> Hits:
        """Return the k best visible rows of each query whose score is in the window, padded.

        Rows are compared by number, with a mask or without: the kernel for all rows rounds differently for
        few dimensions, and pages of an iterator, some with a mask and some without, would disagree.
        """
        self._note(len(queries), mask)
        hits = no_hits(len(queries), k, self.metric)
        rows = np.arange(self.count) if mask is None else mask.row_ids
        for i, query in enumerate(queries):
            scores = self.scores(query, rows)
            inside = np.flatnonzero(window.holds(scores))
            best, order = best_of(scores[inside], min(k, len(inside)), self.metric)
            found = inside[order]
            hits.distances[i, : len(best)] = best
            hits.rows[i, : len(best)] = rows[found]
        return hits

    def _note(self, queries: int, mask: RowMask | None) -> None:
        trail = current()
        if trail is not None:
            trail.method("exact", queries * (self.count if mask is None else mask.count))

    @abstractmethod
    def taken(self, rows: RowIds) -> npt.NDArray[Any]:
        """These rows as they are kept: (m, width), in the stored form or in the form for comparison."""

    @abstractmethod
    def scores(self, query: npt.NDArray[Any], rows: RowIds | None) -> Scores:
        """Return one query's score with every row, or with these. (width,) → float32 (n,) or (len(rows),)."""

    def _nearest_by_blocks(
        self, queries: npt.NDArray[Any], k: int, mask: RowMask | None, shares: int, threads: int
    ) -> Hits:
        blocks = list(self._blocks(k, len(queries), mask))
        count = min(shares, len(blocks))
        parts = fan_out(
            lambda share: self._best_of_blocks(queries, k, share),
            [blocks[i::count] for i in range(count)],
            threads,
        )
        return parts[0] if count == 1 else merge(parts, len(queries), k, self.metric)

    def _nearest_divided(
        self, queries: npt.NDArray[Any], k: int, mask: RowMask | None, shares: int, threads: int
    ) -> Hits:
        """As `_nearest_few`, in several shares."""
        return self._nearest_by_blocks(queries, k, mask, shares, threads)

    @abstractmethod
    def _nearest_few(self, queries: npt.NDArray[Any], k: int, mask: RowMask | None) -> Hits: ...

    @abstractmethod
    def _nearest_in_block(self, queries: npt.NDArray[Any], k: int, block: Block) -> Hits:
        """Return the k best of a block's rows, numbered within the block."""

    def _best_of_blocks(self, queries: npt.NDArray[Any], k: int, blocks: Sequence[Block]) -> Hits:
        parts = (self._of_block(queries, k, block) for block in blocks)
        return merge(parts, len(queries), k, self.metric)

    def _of_block(self, queries: npt.NDArray[Any], k: int, block: Block) -> Hits:
        rows = block.stop - block.start if isinstance(block, slice) else len(block)
        hits = self._nearest_in_block(queries, min(k, rows), block)
        numbers = hits.rows + block.start if isinstance(block, slice) else block[hits.rows]
        return only_found(Hits(hits.distances, numbers), hits.rows, self.metric)

    def _blocks(self, k: int, queries: int, mask: RowMask | None) -> Iterator[Block]:
        """Yield the visible rows in blocks: row ranges where all are visible, row numbers under a mask."""
        size = max(BLOCK_BYTES // self._block_row_bytes(queries), BLOCK_ROWS_PER_K * k, 8)
        total = self.count
        if mask is None:
            yield from (slice(start, min(start + size, total)) for start in range(0, total, size))
            return
        if mask.selectivity < KEPT_SHARE:
            yield from (mask.row_ids[start : start + size] for start in range(0, mask.count, size))
            return
        step = size // 8 * 8
        for start in range(0, total, step):
            rows = mask.between(start, min(start + step, total))
            if len(rows):
                yield rows

    def _block_row_bytes(self, queries: int) -> int:
        """Bytes of work space per row of a block."""
        return self._row_bytes
