"""The rows of the smallest primary keys that match: what a query with a limit returns.

The cost follows the number of rows returned, not the number that exist. Each block is read in the order of
its keys, in chunks. The block whose next key is the smallest is read next, until it is beyond the last key
wanted; a block that begins behind that key is never read. The filter is evaluated for the rows of a chunk
only, and chunks of a block grow: where few rows match, there are few of them. If scalar indexes find few
rows, those are all found at once. Once so many rows of a block have been examined that evaluating the filter
for all of them costs little in comparison, that is done, and the result serves later reads.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elanus.core.reduce import PrimaryKeys, comparable_keys, joined
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.trail import current
from elanus.expr import BoundFilter, KeyBound
from elanus.querynode.block import Block
from elanus.querynode.gather import FoundRows, no_rows
from elanus.querynode.key_order import KeyOrder

Rows = npt.NDArray[np.int64]
Key = int | str

CHUNK_MIN_ROWS = 64
"""Below this, a chunk costs the same however few rows it has."""
EVALUATE_ALL_SHARE = 1 / 4
"""Before a read examines more than this share of a block, in several chunks, the filter is evaluated for all
of it."""
SMALL_BLOCK_ROWS = 1 << 14
"""A filter is evaluated for all of so few rows almost as fast as for one."""
FEW_PAGES = 4
"""If all rows that match in a block are known, and not more than this many limits, they are taken at once."""


def rows_of_smallest_keys(
    blocks: Sequence[Block],
    read_ts: Timestamp,
    row_filter: BoundFilter,
    limit: int,
    expired_until: Timestamp = NO_TIMESTAMP,
) -> FoundRows:
    """Return the newest matching row of each of the ``limit`` smallest keys, in the order of keys.

    ``expired_until``: rows up to this timestamp have expired (0: none).
    """
    if limit < 1:
        return no_rows()
    bounds, rest = row_filter.split_by_key()
    runs = [_Run(n, b, bounds) for n, b in enumerate(blocks) if b.rows and b.may_match(row_filter)]
    waiting = [(run.next_key, run.number, run) for run in runs if run.has_more]
    heapq.heapify(waiting)
    smallest = _Smallest(limit)
    chunk_rows = max(CHUNK_MIN_ROWS, 2 * limit // max(1, len(waiting)))
    limits = _ReadLimits(chunk_rows, FEW_PAGES * limit, expired_until)
    while waiting and not smallest.ends_before(waiting[0][0]):
        run = waiting[0][2]
        smallest.add(run, run.read(read_ts, rest, limits, smallest.last))
        if run.has_more:
            heapq.heapreplace(waiting, (run.next_key, run.number, run))
        else:
            heapq.heappop(waiting)
    trail = current()
    if trail is not None:
        for run in runs:
            trail.visit(run.block)
            trail.method("first keys", run.examined)
        trail.leave()
    return smallest.found(blocks)


@dataclass(frozen=True, slots=True)
class _ReadLimits:
    """``chunk_rows``: the length of a block's first chunk. ``few_rows``: see `FEW_PAGES`.

    ``after``: only rows later than this are wanted; 0: all.
    """

    chunk_rows: int
    few_rows: int
    after: Timestamp


class _Run:
    """A block that is read by ascending key, within the bounds."""

    def __init__(self, number: int, block: Block, bounds: Sequence[KeyBound]) -> None:
        self.number = number
        self.block = block
        self.order = block.key_order
        self._began, self._stop = _places(self.order, bounds)
        self._at = self._began
        self._chunk_rows = 0
        self._has_looked = False
        self.examined = 0
        """How many rows have been looked at."""
        self._find_next_key()

    @property
    def has_more(self) -> bool:
        """Whether there are more rows, the first of them with ``next_key``."""
        return self._at < self._stop

    def read(self, read_ts: Timestamp, rest: BoundFilter, limits: _ReadLimits, last: Key | None) -> Rows:
        """Examine a chunk, up to the key ``last``; return the rows that match."""
        if last is not None:
            self._stop = min(self._stop, self.order.place(last, "right"))
        start = self._at
        self._chunk_rows = 2 * self._chunk_rows or limits.chunk_rows
        self._at = min(start + self._chunk_rows, self._stop)
        passed = self._at - self._began
        much = 0 if self.block.rows <= SMALL_BLOCK_ROWS else EVALUATE_ALL_SHARE * self.block.rows
        if (start > self._began and passed > much and not rest.matches_all) or (
            start == self._began and self._finds_few(rest, limits.few_rows)
        ):
            self.block.evaluate(rest)
        few = self._all_matching(start, rest, limits.few_rows)
        rows = self.order.rows(start, self._at) if few is None else few
        self.examined += len(rows)
        self._find_next_key()
        return self.block.narrow(read_ts, rows, rest, limits.after)

    def _finds_few(self, rest: BoundFilter, few_rows: int) -> bool:
        """Whether indexes find all matching rows of the block, and few of them."""
        if rest.matches_all or self.block.matching(rest) is not None:
            return False
        rows_max = self.block.indexed_rows_max(rest)
        return rows_max is not None and rows_max <= few_rows

    def _all_matching(self, start: int, rest: BoundFilter, few_rows: int) -> Rows | None:
        """Return all rows from the place ``start`` on that match, if known and few: the last chunk."""
        matching = None if self._has_looked else self.block.matching(rest)
        if matching is None or start >= self._stop:
            return None
        self._has_looked = True
        if matching.count > few_rows:
            return None
        rows = matching.listed()
        self._at = self._stop
        return rows[self.order.between(rows, start, self._stop)]

    def _find_next_key(self) -> None:
        self.next_key: Key = self.order.key(self._at) if self.has_more else ""


def _places(order: KeyOrder, bounds: Sequence[KeyBound]) -> tuple[int, int]:
    """Return the first place within the bounds, and the place behind the last one."""
    start, stop = 0, len(order)
    for bound in bounds:
        match bound.comparator:
            case ">" | ">=" | "==":
                start = max(start, order.place(bound.value, "right" if bound.comparator == ">" else "left"))
        match bound.comparator:
            case "<" | "<=" | "==":
                stop = min(stop, order.place(bound.value, "left" if bound.comparator == "<" else "right"))
    return start, stop


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Rows by ascending key, each key once; ``block_of``: the numbers of their blocks."""

    keys: PrimaryKeys
    stamps: Rows
    block_of: Rows
    rows: Rows


class _Smallest:
    """The rows of the ``limit`` smallest keys among those added so far.

    ``last``: the largest of these keys, once there are that many: no larger key can be wanted.
    """

    def __init__(self, limit: int) -> None:
        self.last: Key | None = None
        self._limit = limit
        self._kept: list[_Candidates] = []
        self._added: list[_Candidates] = []
        self._added_rows = 0

    def add(self, run: _Run, rows: Rows) -> None:
        if not len(rows):
            return
        stamps = run.block.row_ts[rows]
        block_of = np.full(len(rows), run.number)
        self._added.append(_Candidates(run.order.keys_of(rows), stamps, block_of, rows))
        self._added_rows += len(rows)
        kept_rows = len(self._kept[0].rows) if self._kept and self.last is None else 0
        if kept_rows + self._added_rows >= self._limit:  # so that each row is sorted a few times at most
            self._settle()

    def ends_before(self, key: Key) -> bool:
        """Whether rows of ``key`` and of larger keys are not wanted."""
        return self.last is not None and key > self.last  # type: ignore[operator]

    def found(self, blocks: Sequence[Block]) -> FoundRows:
        self._settle()
        if not self._kept:
            return no_rows()
        (kept,) = self._kept
        return FoundRows(blocks, kept.block_of, kept.rows)

    def _settle(self) -> None:
        """Reduce everything added to the smallest keys, and to the newest row of each."""
        if not self._added:
            return
        parts = [*self._kept, *self._added]
        keys = joined([part.keys for part in parts])
        stamps, block_of, rows = (
            np.concatenate(arrays)
            for arrays in zip(*((part.stamps, part.block_of, part.rows) for part in parts), strict=True)
        )
        comparable = comparable_keys(keys)
        order = np.lexsort((rows, block_of, -stamps, comparable))
        ordered = comparable[order]
        first = np.ones(len(ordered), dtype=np.bool_)
        first[1:] = ordered[1:] != ordered[:-1]
        places = order[first][: self._limit]
        self._kept = [_Candidates(keys.take(places), stamps[places], block_of[places], rows[places])]
        self._added, self._added_rows = [], 0
        if len(places) == self._limit:
            (self.last,) = keys.take(places[-1:]).tolist()
