"""The sealed segments of a collection on a query node: served, loaded for a later version, or about to be.

The code ranges of their keys are kept per vchannel, so that a delete finds the segments that it may concern
(`elanus.querynode.key_ranges`). A segment is among them from the moment its deletes are being applied: no
delete that is read meanwhile is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from elanus.core.ids import SegmentID
from elanus.querynode.block import Block
from elanus.querynode.deletes import DeleteBatch
from elanus.querynode.key_ranges import KeyRanges, Visits
from elanus.querynode.sealed import SealedSegment


class HeldSegments:
    """For the loop thread. ``serving``: of the version in force. ``staged``: for versions to come.

    Methods that let go of segments return them.
    """

    def __init__(self) -> None:
        self.serving: dict[SegmentID, SealedSegment] = {}
        self.staged: dict[SegmentID, SealedSegment] = {}
        self._ranges: dict[str, KeyRanges] = {}

    def newest(self, segment_id: SegmentID) -> SealedSegment | None:
        """Return the newest copy of a segment, served or not."""
        return self.staged.get(segment_id) or self.serving.get(segment_id)

    def of_vchannel(self, vchannel: str) -> list[SegmentID]:
        held = (*self.serving.values(), *self.staged.values())
        return [segment.segment_id for segment in held if segment.vchannel == vchannel]

    def concerned(self, vchannel: str, deletes: Sequence[DeleteBatch]) -> list[Visits]:
        """Return the visits by which deletes that were read in a vchannel reach its segments."""
        ranges = self._ranges.get(vchannel)
        return [] if ranges is None else [ranges.visits(batch) for batch in deletes]

    def join(self, segment: SealedSegment) -> None:
        """Let deletes reach a segment that is not staged yet."""
        ranges = self._ranges.setdefault(segment.vchannel, KeyRanges())
        for block in segment.blocks:
            ranges.add(block, segment.partition_id, block.take_key_filter())

    def leave(self, segments: Iterable[SealedSegment]) -> None:
        """Deletes no longer reach these segments."""
        blocks: dict[str, list[Block]] = {}
        for segment in segments:
            blocks.setdefault(segment.vchannel, []).extend(segment.blocks)
        for vchannel, gone in blocks.items():
            ranges = self._ranges.get(vchannel)
            if ranges is None:
                continue  # only segments without rows are left
            ranges.remove(gone)
            if not len(ranges):
                del self._ranges[vchannel]

    def stage(self, segment: SealedSegment) -> list[SealedSegment]:
        """Keep a segment that has joined for a version to come."""
        replaced = self.unstage((segment.segment_id,))
        self.staged[segment.segment_id] = segment
        return replaced

    def unstage(self, segment_ids: Iterable[SegmentID]) -> list[SealedSegment]:
        return self._popped(self.staged, segment_ids)

    def put_online(self, segment_ids: Iterable[SegmentID]) -> list[SealedSegment]:
        """Serve the staged copy of each segment, if there is one."""
        coming = {s: self.staged.pop(s) for s in segment_ids if s in self.staged}
        replaced = self._popped(self.serving, coming)
        self.serving.update(coming)
        return replaced

    def withdraw(self) -> list[SealedSegment]:
        """Serve nothing; what is served stays staged, unless a newer copy is."""
        gone = self._popped(self.serving, [s for s in self.serving if s in self.staged])
        self.staged.update(self.serving)
        self.serving.clear()
        return gone

    def release(self, segment_ids: Sequence[SegmentID]) -> list[SealedSegment]:
        return self._popped(self.serving, segment_ids) + self._popped(self.staged, segment_ids)

    def drop(self, goes: Callable[[SealedSegment], bool]) -> list[SealedSegment]:
        """Release the segments for which ``goes`` is true."""
        gone: list[SealedSegment] = []
        for held in (self.serving, self.staged):
            gone += self._popped(held, [s for s, segment in held.items() if goes(segment)])
        return gone

    def drop_all(self) -> list[SealedSegment]:
        """Release everything, at a small cost for each segment."""
        gone = [*self.serving.values(), *self.staged.values()]
        self.serving.clear()
        self.staged.clear()
        self._ranges.clear()
        return gone

    def _popped(
        self, held: dict[SegmentID, SealedSegment], segment_ids: Iterable[SegmentID]
    ) -> list[SealedSegment]:
        gone = [segment for s in segment_ids if (segment := held.pop(s, None)) is not None]
        self.leave(gone)
        return gone
