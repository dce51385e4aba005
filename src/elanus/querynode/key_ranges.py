"""Which sealed segments a delete may concern, decided for all segments of a vchannel at once.

The code ranges of the segments' keys (`elanus.querynode.keys`) are stacked in arrays, maintained as segments
come and go. For a batch of deletes, two binary searches over these arrays give each segment's slice of the
batch. A segment whose slice is empty is never visited. If only few keys are left to look up, the blocks' key
filters are asked too (`elanus.querynode.key_filters`): random keys are in every block's range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from elanus.core.ids import ALL_PARTITIONS, PartitionID
from elanus.querynode.block import Block
from elanus.querynode.deletes import DeleteBatch
from elanus.querynode.key_filters import FilterPages, Words, worth_asking
from elanus.querynode.keys import Codes

Places = npt.NDArray[np.int64]
Blocks = npt.NDArray[np.object_]

VISIT_KEYS = 64
"""The fixed cost of visiting a block, as a number of keys that could be looked up in that time."""
_CAPACITY_MIN = 16
_COLUMNS = ("_low", "_high", "_rows", "_partitions", "_blocks", "_page", "_first", "_words")


@dataclass(frozen=True, slots=True)
class Visits:
    """A batch of deletes, and the blocks that it may concern.

    ``first`` and ``last``: for each block the slice of the batch within its range of codes. ``keys``: about
    how many keys a visit looks up. All are aligned with ``blocks``.
    """

    batch: DeleteBatch
    blocks: Blocks
    first: Places
    last: Places
    keys: Places

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def cost(self) -> Places:
        """The work of each visit, as a number of keys."""
        return VISIT_KEYS + self.keys

    def run(self, begin: int, end: int) -> None:
        """Make the visits from ``begin`` to ``end``. For any thread."""
        pieces = zip(
            self.blocks[begin:end],
            self.first[begin:end].tolist(),
            self.last[begin:end].tolist(),
            strict=True,
        )
        for block, first, last in pieces:
            block.delete(self.batch, first, last)

    def split(self, keys_max: int) -> Visits:
        """Divide the visits that look up more than ``keys_max`` keys."""
        pieces = np.maximum(-(-self.keys // keys_max), 1)
        if (pieces == 1).all():
            return self
        visit = np.repeat(np.arange(len(self)), pieces)
        number = np.arange(len(visit)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        start, length, count = self.first[visit], (self.last - self.first)[visit], pieces[visit]
        return Visits(
            self.batch,
            self.blocks[visit],
            start + length * number // count,
            start + length * (number + 1) // count,
            -(-self.keys[visit] // count),
        )


class _Segment(Protocol):
    @property
    def partition_id(self) -> PartitionID: ...

    @property
    def blocks(self) -> Sequence[Block]: ...


def visits_to(segments: Iterable[_Segment], deletes: Sequence[DeleteBatch]) -> list[Visits]:
    """Return the visits to those blocks of a few segments that the deletes may concern."""
    if not deletes:
        return []
    ranges = KeyRanges()
    for segment in segments:
        for block in segment.blocks:
            ranges.add(block, segment.partition_id)
    return [ranges.visits(batch) for batch in deletes]


class KeyRanges:
    """The code ranges of the keys of blocks. For one thread."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._low: Places = np.empty(_CAPACITY_MIN, dtype=np.int64)
        self._high: Places = np.empty(_CAPACITY_MIN, dtype=np.int64)
        self._rows: Places = np.empty(_CAPACITY_MIN, dtype=np.int64)
        self._partitions: Places = np.empty(_CAPACITY_MIN, dtype=np.int64)
        self._blocks: Blocks = np.empty(_CAPACITY_MIN, dtype=np.object_)
        self._page: Places = np.empty(_CAPACITY_MIN, dtype=np.int64)
        self._first: Places = np.empty(_CAPACITY_MIN, dtype=np.int64)
        self._words: Places = np.empty(_CAPACITY_MIN, dtype=np.int64)
        """Where the filters are: the page, the first word, how many words; 0 words: there is no filter."""
        self._filters = FilterPages()

    def __len__(self) -> int:
        return len(self._places)

    def add(self, block: Block, partition_id: PartitionID, key_filter: Words | None = None) -> None:
        """Add a block, with a copy of its filter. One without rows, or added before, changes nothing."""
        if not block.rows or id(block) in self._places:
            return
        place = len(self._places)
        if place == len(self._low):
            for name in _COLUMNS:
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.empty_like(column)]))
        self._places[id(block)] = place
        self._low[place], self._high[place] = block.keys.codes[0], block.keys.codes[-1]
        self._rows[place], self._partitions[place], self._blocks[place] = block.rows, partition_id, block
        self._page[place] = self._first[place] = self._words[place] = 0
        if key_filter is not None:
            self._page[place], self._first[place] = self._filters.add(key_filter)
            self._words[place] = len(key_filter)

    def remove(self, blocks: Iterable[Block]) -> None:
        """Remove blocks; the last ones take their places. Those that are not here change nothing."""
        gone = [place for block in blocks if (place := self._places.pop(id(block), None)) is not None]
        if not gone:
            return
        places = np.array(gone)
        pages, words = self._page[places], self._words[places]
        count = len(self._places)
        moves = np.ones(len(gone), dtype=np.bool_)  # which of the last blocks stay, and therefore move
        moves[places[places >= count] - count] = False
        moving, free = count + np.flatnonzero(moves), places[places < count]
        for name in _COLUMNS:
            column = getattr(self, name)
            column[free] = column[moving]
        self._places.update(zip(map(id, self._blocks[free]), free.tolist(), strict=True))
        self._blocks[count : count + len(gone)] = None
        for page in np.unique(pages[words > 0]).tolist():
            if self._filters.remove(page, int(words[pages == page].sum())):
                self._move_filters(page)

    def _move_filters(self, page: int) -> None:
        """Give up a page that is mostly unused: copy the filters that are left to another one."""
        self._filters.leave(page)
        here = slice(0, len(self._places))
        places = np.flatnonzero((self._page[here] == page) & (self._words[here] > 0))
        words = self._words[places]
        starts = np.cumsum(words) - words
        total = int(words.sum())
        moved = self._filters.words(page, np.repeat(self._first[places] - starts, words) + np.arange(total))
        self._page[places], first = self._filters.add(moved)
        self._first[places] = first + starts
        self._filters.remove(page, total)

    def visits(self, batch: DeleteBatch) -> Visits:
        """Return the visits to the blocks that the batch may concern."""
        here = slice(0, len(self._places))
        codes = batch.keys.codes
        first = codes.searchsorted(self._low[here], side="left")
        last = codes.searchsorted(self._high[here], side="right")
        concerned = last > first
        if batch.partition_id != ALL_PARTITIONS:
            concerned &= self._partitions[here] == batch.partition_id
        places = np.flatnonzero(concerned)
        if worth_asking(last[places] - first[places]):
            places = self._perhaps_here(codes, places, first, last)
        first, last = first[places], last[places]
        return Visits(batch, self._blocks[places], first, last, np.minimum(last - first, self._rows[places]))

    def _perhaps_here(self, codes: Codes, places: Places, first: Places, last: Places) -> Places:
        """Return those of the places whose filters do not rule out all keys. ``first``, ``last``: of all."""
        kept = [places[self._words[places] == 0]]
        filtered = places[self._words[places] > 0]
        for page in np.unique(self._page[filtered]).tolist():
            on_page = filtered[self._page[filtered] == page]
            may_hold = self._filters.may_hold(
                page, self._first[on_page], self._words[on_page], codes, first[on_page], last[on_page]
            )
            kept.append(on_page[may_hold])
        return np.sort(np.concatenate(kept))
