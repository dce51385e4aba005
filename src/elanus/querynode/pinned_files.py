"""Which sealed segments' files a query node may still read: garbage collection must not delete them.

Large, rarely used columns stay on the object store, so a segment in memory still needs its files. Python's
reference counts keep the segment in memory (see `elanus.querynode.snapshot`): a read that began under an
older version holds its blocks, and with them this entry.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence

from elanus.core.ids import SegmentID
from elanus.querynode.block import Block


class PinnedSegments:
    def __init__(self) -> None:
        self._loading: Counter[SegmentID] = Counter()
        self._blocks: dict[weakref.ref[Block], SegmentID] = {}

    def __call__(self) -> tuple[SegmentID, ...]:
        """Return the segments being loaded, and those of which a block is in memory."""
        # Blocks are freed in any thread: one step copies them all.
        return tuple({*self._loading, *tuple(self._blocks.values())})

    @contextlib.contextmanager
    def loading(self, segment_id: SegmentID) -> Iterator[None]:
        self._loading[segment_id] += 1
        try:
            yield
        finally:
            self._loading -= Counter([segment_id])

    def keep(self, segment_id: SegmentID, blocks: Sequence[Block]) -> None:
        """Keep the segment listed until the last of its blocks is freed."""
        for block in blocks:
            # A plain reference: a finalizer takes four objects, and there are many segments.
            self._blocks[weakref.ref(block, self._blocks.pop)] = segment_id
