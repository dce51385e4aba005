"""Range commits: the one place where the files that a job wrote become part of a collection.

A commit names the checkpoint it started from. It is refused when that is no longer the vchannel's checkpoint,
so a job that ran twice, or resumed after it was given up, changes nothing; its files belong to no manifest.
It is also refused when a segment that it touches takes no more rows: readers may already hold that segment.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import structlog

from elanus.api.datacoord import RangeCommit
from elanus.core.attempts import stamped
from elanus.core.channels import pchannel_of
from elanus.core.errors import CommitRefused
from elanus.core.ids import SegmentID
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import Timestamp
from elanus.datacoord.attempts import Attempts
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.segment_allocator import SegmentAllocator
from elanus.datacoord.state import DataState, Vchannel
from elanus.log.port import Log

_log = structlog.get_logger("datacoord")
_TAKES_ROWS = (SegmentState.GROWING, SegmentState.SEALED, SegmentState.FLUSHING)


class Commits:
    """Checks and applies range commits. Called under the role's lock."""

    def __init__(
        self,
        state: DataState,
        manifests: Manifests,
        log: Log,
        allocator: SegmentAllocator,
        attempts: Attempts,
    ) -> None:
        self._state = state
        self._manifests = manifests
        self._log = log
        self._allocator = allocator
        self._attempts = attempts
        self._count = 0

    async def commit(self, commit: RangeCommit) -> None:
        """Commit all of the range or nothing. Raises `CommitRefused`, and whatever storing raises."""
        vchannel = self._checked(commit)
        if commit.segments or commit.delta is not None:
            self._attempts.check(commit.attempt)
        self._count += 1
        name = stamped(commit.attempt, f"{commit.checkpoint.ts}-{self._count}")
        segments = await self._segments(commit, name)
        moved = replace(
            vchannel,
            checkpoint=commit.checkpoint,
            quarantined=vchannel.quarantined + len(commit.quarantined),
        )
        if commit.delta is not None:
            moved = await self._manifests.add_delta(moved, commit.delta, name)
        # A checkpoint must never be beyond what the log has durably stored.
        await self._log.sync(pchannel_of(commit.vchannel))
        await self._state.put(segments, [moved])
        self._allocator.committed(commit.vchannel, _rows_read(commit))
        for segment_id in commit.flushed:
            self._allocator.forget(segment_id)
        for entry in commit.quarantined:
            _log.error(
                "log entry quarantined",
                vchannel=entry.vchannel,
                position=entry.position,
                collection=entry.collection_id,
                segment=entry.segment_id,
                ts=entry.ts,
                rows=entry.rows,
                reason=entry.reason,
            )

    async def _segments(self, commit: RangeCommit, name: str) -> list[SegmentInfo]:
        """Return the segment records that change. The range's rows for dropped segments are left out."""
        known = [(self._segment(output.segment_id), output) for output in commit.segments]
        live = [(info, output) for info, output in known if info.state is not SegmentState.DROPPED]
        written = await asyncio.gather(*(self._manifests.add_output(i, output, name) for i, output in live))
        changed = {info.segment_id: info for info in written}
        for segment_id in commit.flushed:
            info = changed.get(segment_id) or self._segment(segment_id)
            if info.state is not SegmentState.DROPPED:
                changed[segment_id] = _completed(info, commit.checkpoint.ts)
        return list(changed.values())

    def _checked(self, commit: RangeCommit) -> Vchannel:
        vchannel = self._state.vchannel(commit.vchannel)
        if vchannel is None or vchannel.dropped:
            raise CommitRefused(f"vchannel {commit.vchannel} is dropped")
        if vchannel.checkpoint != commit.expected:
            raise CommitRefused(
                f"the checkpoint of {commit.vchannel} is at {vchannel.checkpoint.ts}, "
                f"the range began at {commit.expected.ts}"
            )
        if commit.checkpoint.ts < commit.expected.ts:
            raise CommitRefused(f"the range of {commit.vchannel} ends before it begins")
        for segment_id in commit.flushed:
            info = self._check_state(segment_id, commit.vchannel, (SegmentState.FLUSHING,))
            if info.sealed_at > commit.checkpoint.ts:
                raise CommitRefused(
                    f"segment {segment_id} is complete at {info.sealed_at}, "
                    f"the range ends at {commit.checkpoint.ts}"
                )
        for output in commit.segments:
            self._check_state(output.segment_id, commit.vchannel, _TAKES_ROWS)
        return vchannel

    def _check_state(
        self, segment_id: SegmentID, vchannel: str, allowed: tuple[SegmentState, ...]
    ) -> SegmentInfo:
        """Refuse a segment of another vchannel or state. A dropped segment passes: its part of the commit is
        ignored."""
        info = self._segment(segment_id)
        if info.vchannel != vchannel:
            raise CommitRefused(f"segment {segment_id} belongs to {info.vchannel}, not to {vchannel}")
        if info.state not in (*allowed, SegmentState.DROPPED):
            names = " or ".join(state.name for state in allowed)
            raise CommitRefused(f"segment {segment_id} is {info.state.name}, not {names}")
        return info

    def _segment(self, segment_id: SegmentID) -> SegmentInfo:
        info = self._state.find_segment(segment_id)
        if info is None:
            raise CommitRefused(f"segment {segment_id} is not known")
        return info


def _completed(info: SegmentInfo, now: Timestamp) -> SegmentInfo:
    """Return the record of a segment that takes no more rows: flushed, or dropped when it is empty because
    all its rows are in quarantine."""
    if info.rows == 0:
        return replace(info, state=SegmentState.DROPPED, dropped=now)
    return replace(info, state=SegmentState.FLUSHED)


def _rows_read(commit: RangeCommit) -> Counter[SegmentID]:
    """Count the range's rows by segment, in files or in quarantine, as the headers of its log entries do."""
    rows = Counter({o.segment_id: sum(file.rows for file in o.insert_logs) for o in commit.segments})
    for entry in commit.quarantined:
        rows[entry.segment_id] += entry.rows
    return rows
