"""Joining growing blocks into larger ones whose vectors have an interim index.

Comparing a search with every growing row takes 10 ms for 60,000 rows of 784 floats. So once the last blocks
of a growing segment together pass a size, a thread joins them into one block and encodes its vectors
(`elanus.index.interim`), and the loop exchanges the blocks. Only the rows after them are compared one by one.
Joined blocks that are not much larger than what follows them are joined with it, without encoding anything
again: a segment has few blocks, and each row is copied a few times. Nothing has to be discarded at handoff:
the index goes with the segment.

A follower exchanges blocks between packs (`elanus.querynode.follower`): no deletes are applied and no rows
added meanwhile. Deletes that came while the block was made are taken from the blocks it replaces.

Only collections that were searched lately get such blocks: the first search after a long time is answered
without, and has them made (`elanus.querynode.search_interest`).

Segments with vectors that functions compute from texts are left as they are. Joining would compute them
again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from elanus.core.ids import SegmentID
from elanus.core.offload import Offload
from elanus.querynode.growing import GrowingBlock, GrowingSegment
from elanus.querynode.growing_segments import GrowingSegments
from elanus.rpc.tracing import untraced

BYTES_MIN = 8 * 1024 * 1024
LATER_SHARE = 1 / 4
"""Once a segment has a joined block, further rows are joined from this share of the size on: comparing them
one by one would take a large part of a search."""
BYTES_MAX = 512 * 1024 * 1024
RATIO = 4
"""A joined block is at least so many times larger than those after it together, up to the largest size."""
_log = structlog.get_logger("querynode")

Blocks = tuple[GrowingBlock, ...]


@dataclass(frozen=True, slots=True)
class InterimRules:
    """Which blocks are joined. ``bytes_min``: of the first rows of a segment that are joined; 0: none are.

    ``bytes_max``: larger blocks are not made of joined ones. ``without_codes``: join also where no field can
    have an interim index, which exercises the exchange where vectors are short.
    """

    bytes_min: int = BYTES_MIN
    bytes_max: int = BYTES_MAX
    without_codes: bool = False


def due(blocks: Sequence[GrowingBlock], rules: InterimRules) -> slice | None:
    """Return which blocks of a segment are to be joined now; joined ones precede the others."""
    first = sum(block.is_joined for block in blocks)
    size_bytes = sum(block.batch_bytes for block in blocks[first:])
    if first == len(blocks) or size_bytes < rules.bytes_min * (LATER_SHARE if first else 1):
        return None
    while first:
        earlier_bytes = blocks[first - 1].batch_bytes
        if earlier_bytes >= RATIO * size_bytes or earlier_bytes + size_bytes > rules.bytes_max:
            break
        first -= 1
        size_bytes += earlier_bytes
    return slice(first, len(blocks))


@dataclass(frozen=True, slots=True)
class _Made:
    """``block`` takes the place of ``parts``."""

    segment: GrowingSegment
    parts: Blocks
    block: GrowingBlock


class Interim:
    """The joining of one follower's blocks, one run of blocks at a time. For the loop thread.

    ``offload``: where blocks are made. ``made``: called when `exchange` has something to do. ``is_wanted``:
    whether anybody would search the codes. `consider` all segments once it is True again.
    """

    def __init__(
        self,
        rules: InterimRules,
        offload: Offload,
        made: Callable[[], None],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.making_bytes = 0
        """Bytes of the rows that are being copied."""
        self._rules = rules
        self._offload = offload
        self._notify = made
        self._is_wanted = is_wanted
        self._due: dict[SegmentID, GrowingSegment] = {}
        self._made: deque[_Made] = deque()
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    @property
    def is_ready(self) -> bool:
        """Whether `exchange` has something to do."""
        return bool(self._made)

    def consider(self, segments: Iterable[GrowingSegment]) -> None:
        """These segments have got rows: join their blocks when it is their turn."""
        if not self._rules.bytes_min or self._has_failed:
            return
        due = {s.segment_id: s for s in segments if self._wants(s)}
        if due and (self._rules.without_codes or self._is_wanted()):
            self._due.update(due)
            self._begin()

    def retire(self) -> None:
        """Begin nothing any more."""
        self._due.clear()
        self._made.clear()
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """As `retire`, and wait until nothing runs any more."""
        self.retire()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def exchange(self, growing: GrowingSegments) -> Blocks:
        """Put a block in the place of its parts; return the parts, or nothing if the segment has gone."""
        made = self._made.popleft()
        if any(part.deleted_ts is not None for part in made.parts):
            await self._offload(made.block.take_deletes, made.parts)
        self.making_bytes = 0
        segment = made.segment
        gone: Blocks = ()
        if growing.get(segment.segment_id) is segment:
            first = segment.blocks.index(made.parts[0])
            last = first + len(made.parts)
            growing.put(segment, (*segment.blocks[:first], made.block, *segment.blocks[last:]))
            gone = made.parts
            self.consider([segment])
        self._begin()
        return gone

    def _wants(self, segment: GrowingSegment) -> bool:
        return self._rules.without_codes or segment.takes_codes

    def _begin(self) -> None:
        if self._has_failed or self._made or (self._task is not None and not self._task.done()):
            return
        while self._due:
            segment = self._due.pop(next(iter(self._due)))
            run = due(segment.blocks, self._rules)
            if run is not None:
                parts = segment.blocks[run]
                for part in parts:
                    part.is_complete = True
                self.making_bytes = sum(part.batch_bytes for part in parts)
                self._task = untraced(self._make(segment, parts), f"interim index of {segment.segment_id}")
                return

    async def _make(self, segment: GrowingSegment, parts: Blocks) -> None:
        try:
            block = await self._offload(segment.joined, parts)
        except Exception as error:  # noqa: BLE001 - the rows are searched without it, as before
            _log.error("interim index not built", segment=segment.segment_id, exc_info=error)
            self.making_bytes = 0
            self._has_failed = True
            return
        self._made.append(_Made(segment, parts, block))
        self._notify()
