"""A search of many vectors, in slices: their number does not decide how much memory a search takes.

Every block answers with its k best rows for each vector, before the best of all blocks are chosen. So a
request of 16,384 vectors, ten hits each, would hold 160 million hits of a thousand segments at a time. Its
vectors are searched a slice after the other instead. Between two slices the search ends if nobody waits for
its answer any longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from elanus.core.errors import DeadlineExceeded
from elanus.core.ids import FieldID
from elanus.core.reduce import Keys
from elanus.core.vector_lists import Queries, vectors_in
from elanus.index import SearchParams
from elanus.index.plan import BATCH_QUERIES_MIN
from elanus.querynode.block import Block
from elanus.querynode.found import Found
from elanus.querynode.gather import FoundRows

HITS_MAX = 1 << 22
"""Hits of all blocks that are held at a time: about 160 MB."""
SLICE_NS = 1e9
"""About how long a slice takes on one core."""
TIMED_QUERIES_MIN = 32
"""Fewer vectors are not worth estimating their time."""


class SearchDeadline:
    """Until when the client waits for a search.

    ``timeout_s``: from now on; None: as long as it takes. ``is_gone`` says that the client has given up
    meanwhile; None: it cannot be known.
    """

    def __init__(self, timeout_s: float | None, is_gone: Callable[[], bool] | None = None) -> None:
        self._timeout_s = timeout_s
        self._until_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._is_gone = is_gone

    @property
    def may_come(self) -> bool:
        return self._until_s is not None or self._is_gone is not None

    def check(self, done: int, queries: int) -> None:
        """Raise `DeadlineExceeded` if nobody waits any longer; ``done`` of the ``queries`` were searched."""
        self._check(f"{done} of the {queries} vectors were searched")

    def check_part(self) -> None:
        """Raise `DeadlineExceeded` if nobody waits any longer, and some segments are left to search."""
        self._check("not all segments were searched")

    def _check(self, progress: str) -> None:
        if self._is_gone is not None and self._is_gone():
            raise DeadlineExceeded(f"the client has given up, when {progress}")
        if self._until_s is not None and time.monotonic() > self._until_s:
            raise DeadlineExceeded(
                f"the client waits for {self._timeout_s:.3g} s, in which {progress}: "
                "send fewer vectors in one request, or wait longer"
            )


NO_DEADLINE = SearchDeadline(None)


class QuerySlices:
    """The vectors of one search."""

    def __init__(self, queries: Queries, deadline: SearchDeadline) -> None:
        self._queries = queries
        self._deadline = deadline

    def search(
        self,
        blocks: Sequence[Block],
        field_id: FieldID,
        k: int,
        params: SearchParams,
        rank: Callable[[Queries], Found],
    ) -> Found:
        """Return what ``rank`` returns for all vectors, called for one slice after the other.

        Raises `DeadlineExceeded` when the client does not wait any longer.
        """
        count = len(self._queries)
        at_once = self._at_once(blocks, field_id, k, params)
        if at_once >= count:
            return rank(self._queries)
        parts = []
        for start in range(0, count, at_once):
            self._deadline.check(start, count)
            parts.append(rank(self._queries[np.arange(start, min(start + at_once, count))]))
        return joined(parts)

    def _at_once(self, blocks: Sequence[Block], field_id: FieldID, k: int, params: SearchParams) -> int:
        count = len(self._queries)
        at_once = max(BATCH_QUERIES_MIN, HITS_MAX // max(1, k * len(blocks)))
        if count >= TIMED_QUERIES_MIN:
            indexes = (block.vectors[field_id].index for block in blocks)
            vectors = vectors_in(self._queries)
            work_ns = sum(index.work_ns(vectors, params, None) for index in indexes if index is not None)
            at_once = min(at_once, max(TIMED_QUERIES_MIN, int(count * SLICE_NS / max(1.0, work_ns))))
        return at_once


def joined(parts: Sequence[Found]) -> Found:
    """Return the hits of all slices, in their order."""
    hits = np.concatenate([np.diff(found.offsets) for found in parts])
    offsets = np.zeros(len(hits) + 1, dtype=np.int64)
    np.cumsum(hits, out=offsets[1:])
    parts = [found for found in parts if len(found.scores)] or parts[:1]
    places: dict[int, int] = {}
    blocks: list[Block] = []
    block_of = []
    for found in parts:
        for block in found.rows.blocks:
            if places.setdefault(id(block), len(blocks)) == len(blocks):
                blocks.append(block)
        place_of = np.array([places[id(block)] for block in found.rows.blocks], dtype=np.int64)
        block_of.append(place_of[found.rows.block_of])
    numbers: list[Keys] = [found.numbers for found in parts if found.numbers is not None]
    elements = [found.elements for found in parts if found.elements is not None]
    return Found(
        offsets,
        np.concatenate([found.scores for found in parts]),
        FoundRows(blocks, np.concatenate(block_of), np.concatenate([found.rows.rows for found in parts])),
        np.concatenate(numbers) if len(numbers) == len(parts) else None,
        np.concatenate(elements) if len(elements) == len(parts) else None,
    )
