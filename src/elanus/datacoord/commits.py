"""Range commits: the one place where the files that a job wrote become part of a collection.

A commit names the checkpoint it started from. It is refused when that is no longer the vchannel's checkpoint,
so a job that ran twice, or resumed after it was given up, changes nothing; its files belong to no manifest.
It is also refused when a segment that it touches takes no more rows: readers may already hold that segment.

The role's lock is not held while manifests are written. The commit is checked, its manifests are written, and
under the lock it is checked again, together with the records that the manifests were made from. If one of
them changed meanwhile, the manifests are written once more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import structlog

from elanus.api.datacoord import RangeCommit, SegmentOutput
from elanus.core.attempts import stamped
from elanus.core.catalog import Checkpoint
from elanus.core.channels import pchannel_of
from elanus.core.errors import CommitRefused
from elanus.core.ids import SegmentID
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import Timestamp
from elanus.datacoord.context import DataContext
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.vchannel_table import Vchannel
from elanus.log.port import Log
from elanus.meta.cancellation import uncancellable

_log = structlog.get_logger("datacoord")
_TAKES_ROWS = (SegmentState.GROWING, SegmentState.SEALED, SegmentState.FLUSHING)
_LATEST_MAX = 4096
_Identity = tuple[int, int, Checkpoint, Checkpoint, tuple[SegmentID, ...]]


@dataclass(frozen=True, slots=True)
class _Written:
    """The objects that a commit has written. ``segments``: records that name the new manifests.
    ``made_from``: the manifests that they replace. ``deltas``: the path of the list of delta logs that
    replaces ``deltas_from``."""

    segments: dict[SegmentID, SegmentInfo]
    made_from: dict[SegmentID, str]
    deltas_from: str
    deltas: str


class Commits:
    """Checks and applies range commits."""

    def __init__(self, context: DataContext, datanodes: DataNodes, log: Log) -> None:
        self._state = context.state
        self._manifests = context.manifests
        self._allocator = context.allocator
        self._attempts = context.attempts
        self._lock = context.lock
        self._datanodes = datanodes
        self._log = log
        self._count = 0
        self._latest: dict[str, _Identity] = {}

    @uncancellable
    async def commit(self, commit: RangeCommit) -> None:
        """Commit all of the range or nothing. Raises `CommitRefused`, and whatever storing raises.

        A caller that did not get the answer may repeat the commit that it made last on the vchannel: if it
        was applied, nothing more is done.
        """
        while not await self._try_to_commit(commit):
            pass  # a record that the manifests were made from has changed meanwhile

    async def _try_to_commit(self, commit: RangeCommit) -> bool:
        if self._is_applied(commit):
            return True
        self._datanodes.check_owner(commit.vchannel, commit.epoch)
        vchannel = self._checked(commit)
        written = await self._write(vchannel, commit)
        # A checkpoint must never be beyond what the log has durably stored.
        await self._log.sync(pchannel_of(commit.vchannel))
        async with self._lock:
            if self._is_applied(commit):
                return True
            self._datanodes.check_owner(commit.vchannel, commit.epoch)
            vchannel = self._checked(commit)
            if not self._is_current(written, vchannel, commit):
                return False
            await self._apply(vchannel, commit, written)
            return True

    def _is_applied(self, commit: RangeCommit) -> bool:
        vchannel = self._state.vchannel(commit.vchannel)
        return (
            vchannel is not None
            and vchannel.checkpoint == commit.checkpoint
            and self._latest.get(commit.vchannel) == _identity(commit)
        )

    async def _write(self, vchannel: Vchannel, commit: RangeCommit) -> _Written:
        """Write the manifests of segments that are not dropped, and the vchannel's list of delta logs."""
        self._count += 1
        name = stamped(commit.attempt, f"{commit.checkpoint.ts}-{self._count}")
        outputs = self._live(commit)
        segments = await self._manifests.add_outputs(outputs, name)
        deltas = vchannel.deltas
        if commit.delta is not None:
            deltas = (await self._manifests.add_delta(vchannel, commit.delta, name)).deltas
        return _Written(
            {info.segment_id: info for info in segments},
            {info.segment_id: info.manifest for info, _ in outputs},
            vchannel.deltas,
            deltas,
        )

    def _live(self, commit: RangeCommit) -> list[tuple[SegmentInfo, SegmentOutput]]:
        """Return the outputs with their segments. The range's rows for dropped segments are left out."""
        known = [(self._segment(output.segment_id), output) for output in commit.segments]
        return [(info, output) for info, output in known if info.state is not SegmentState.DROPPED]

    def _is_current(self, written: _Written, vchannel: Vchannel, commit: RangeCommit) -> bool:
        """Whether the manifests were made from those that are still in force."""
        if commit.delta is not None and vchannel.deltas != written.deltas_from:
            return False
        return all(written.made_from.get(i.segment_id) == i.manifest for i, _ in self._live(commit))

    async def _apply(self, vchannel: Vchannel, commit: RangeCommit, written: _Written) -> None:
        """Persist the records. Called under the lock."""
        moved = replace(
            vchannel,
            checkpoint=commit.checkpoint,
            quarantined=vchannel.quarantined + len(commit.quarantined),
        )
        if commit.delta is not None:
            moved = replace(moved, deltas=written.deltas)
        await self._state.put(self._changed(commit, written), [moved])
        self._latest.pop(commit.vchannel, None)
        self._latest[commit.vchannel] = _identity(commit)
        if len(self._latest) > _LATEST_MAX:
            del self._latest[next(iter(self._latest))]
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

    def _changed(self, commit: RangeCommit, written: _Written) -> list[SegmentInfo]:
        """Return the segment records that change: those of now, with what was written."""
        changed = {
            info.segment_id: _with_files(info, written.segments[info.segment_id])
            for info, _ in self._live(commit)
        }
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
        if commit.segments or commit.delta is not None:
            self._attempts.check(commit.attempt)
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


def _identity(commit: RangeCommit) -> _Identity:
    return (commit.epoch, commit.attempt, commit.expected, commit.checkpoint, commit.flushed)


def _with_files(info: SegmentInfo, written: SegmentInfo) -> SegmentInfo:
    """Return the record as it is now, with the manifest that was written and what describes it."""
    return replace(
        info,
        manifest=written.manifest,
        rows=written.rows,
        size_bytes=written.size_bytes,
        is_sorted=written.is_sorted,
    )


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
