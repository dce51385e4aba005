"""How far a data node has come in a vchannel, and what of it is not in binlogs yet."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from elanus.core.catalog import Checkpoint
from elanus.core.ids import SegmentID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp, physical_ms
from elanus.log.port import EntryHeader
from elanus.rpc.datacoord import ChannelAssignment, DataNodeTick

_ROWS = (MsgKind.INSERT, MsgKind.UPSERT)
_WRITES = (*_ROWS, MsgKind.DELETE)


@dataclass(frozen=True, slots=True)
class _Write:
    ts: Timestamp
    segment_id: SegmentID
    rows: int
    size_bytes: int


class ChannelProgress:
    """One vchannel. Counts what lies beyond its checkpoint, from the entries' headers alone.

    ``ended``: its collection's drop has been read.
    """

    def __init__(self, assignment: ChannelAssignment) -> None:
        self.assignment = assignment
        self._pending: deque[_Write] = deque()
        self._rows: Counter[SegmentID] = Counter()
        self._bytes = 0
        self.ended = False
        self.seek = assignment.checkpoint
        self.stop = assignment.checkpoint.position

    @property
    def vchannel(self) -> str:
        return self.assignment.vchannel

    @property
    def checkpoint(self) -> Checkpoint:
        return self.assignment.checkpoint

    def has_pending(self) -> bool:
        return bool(self._pending)

    def waiting_ms(self) -> int:
        """How long the oldest write beyond the checkpoint has been waiting, by the ticks' own time."""
        if not self._pending:
            return 0
        return physical_ms(self.seek.ts) - physical_ms(self._pending[0].ts)

    def take(self, header: EntryHeader, size_bytes: int) -> None:
        """A message of a pack, in order of time."""
        if header.kind not in _WRITES or header.ts <= self.checkpoint.ts:
            return
        segment_id = header.segment_id if header.kind in _ROWS else SegmentID(0)
        self._pending.append(_Write(header.ts, segment_id, header.rows, size_bytes))
        self._bytes += size_bytes
        if segment_id:
            self._rows[segment_id] += header.rows

    def reach(self, seek: Checkpoint, stop: int) -> None:
        """A tick: everything up to ``seek.ts`` has been taken. ``stop`` is the position after it."""
        self.seek, self.stop = seek, stop

    def committed(self, checkpoint: Checkpoint) -> None:
        """Everything up to the checkpoint is in binlogs now."""
        self.assignment = replace(self.assignment, checkpoint=checkpoint)
        while self._pending and self._pending[0].ts <= checkpoint.ts:
            write = self._pending.popleft()
            self._bytes -= write.size_bytes
            if write.segment_id:
                self._rows[write.segment_id] -= write.rows
                if not self._rows[write.segment_id]:
                    del self._rows[write.segment_id]

    def tick(self) -> DataNodeTick:
        return DataNodeTick(
            self.vchannel, self.seek.ts, self.checkpoint.ts, self._segment_rows(), self._bytes
        )

    def _segment_rows(self) -> Mapping[SegmentID, int]:
        return dict(self._rows)
