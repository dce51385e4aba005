"""How far a data node has read a vchannel, and what of it is not in binlogs yet."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elanus.api.datacoord import ChannelAssignment, DataNodeTick
from elanus.core.catalog import Checkpoint
from elanus.core.ids import SegmentID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp, physical_ms
from elanus.log.port import EntryHeader

_ROWS = (MsgKind.INSERT, MsgKind.UPSERT)
_WRITES = (*_ROWS, MsgKind.DELETE)


@dataclass(slots=True)
class _Span:
    """The writes between two ticks, the first at ``first_ts``."""

    first_ts: Timestamp
    size_bytes: int = 0
    rows: Counter[SegmentID] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Range:
    """The range that one task writes to binlogs: a vchannel from its checkpoint to a tick.

    ``stop``: a position after that tick. ``is_whole``: nothing beyond it has been read.
    """

    start: Checkpoint
    end: Checkpoint
    stop: int
    has_rows: bool
    is_whole: bool


class ChannelProgress:
    """The progress in one vchannel. Counts what is beyond its checkpoint, from the entries' headers alone.

    It keeps one number per segment and tick, however many writes there were: a backlog of
    hours is a few megabytes. ``ended``: its collection's drop has been read.
    """

    def __init__(self, assignment: ChannelAssignment) -> None:
        self.assignment = assignment
        self._arriving: _Span | None = None
        self._spans: deque[tuple[Checkpoint, int, _Span]] = deque()
        """The part that each tick completed: its seek point, the position after it, and the writes."""
        self._rows: Counter[SegmentID] = Counter()
        self._bytes = 0
        self.held_bytes = 0
        """How many bytes of its pchannel's log, of all vchannels, have been read since the last commit: at
        most what its checkpoint keeps from being trimmed."""
        self.ended = False
        self.seek = assignment.checkpoint
        self.stop = assignment.checkpoint.position

    @property
    def vchannel(self) -> str:
        return self.assignment.vchannel

    @property
    def epoch(self) -> int:
        """The epoch under which its data node owns it."""
        return self.assignment.epoch

    @property
    def checkpoint(self) -> Checkpoint:
        return self.assignment.checkpoint

    def has_pending(self) -> bool:
        return bool(self._spans)

    def waiting_ms(self) -> int:
        """How long the oldest write beyond the checkpoint has been waiting, in the ticks' time."""
        if not self._spans:
            return 0
        return physical_ms(self.seek.ts) - physical_ms(self._spans[0][2].first_ts)

    def take(self, header: EntryHeader, size_bytes: int) -> None:
        """Take a message of a pack, in order of time; `reach` brings the tick that ends the pack."""
        if header.kind not in _WRITES or header.ts <= self.checkpoint.ts:
            return
        if self._arriving is None:
            self._arriving = _Span(header.ts)
        self._arriving.size_bytes += size_bytes
        if header.kind in _ROWS:
            self._arriving.rows[header.segment_id] += header.rows

    def reach(self, seek: Checkpoint, stop: int, pack_bytes: int) -> None:
        """Take a tick: everything up to ``seek.ts`` has been taken. ``stop`` is the position after it.

        ``pack_bytes``: the size of everything in its pack, including other vchannels.
        """
        self.seek, self.stop = seek, stop
        self.held_bytes += pack_bytes
        if self._arriving is not None:
            self._spans.append((seek, stop, self._arriving))
            self._bytes += self._arriving.size_bytes
            self._rows += self._arriving.rows
            self._arriving = None

    def next_range(self, size_max_bytes: int) -> Range:
        """Everything that has been read, or as much of it as fits in about ``size_max_bytes`` of log."""
        whole = Range(self.checkpoint, self.seek, self.stop, bool(self._spans), is_whole=True)
        if self.seek.ts < self.checkpoint.ts:  # read again, and not yet back at the checkpoint
            return replace(whole, end=self.checkpoint, has_rows=False)
        if self._bytes <= size_max_bytes:
            return whole
        size_bytes = 0
        for seek, stop, span in self._spans:
            size_bytes += span.size_bytes
            if size_bytes >= size_max_bytes and seek.ts < self.seek.ts:
                return replace(whole, end=seek, stop=stop, is_whole=False)
        return whole

    def committed(self, checkpoint: Checkpoint) -> None:
        """Everything up to the checkpoint is in binlogs now."""
        self.assignment = replace(self.assignment, checkpoint=checkpoint)
        self.held_bytes = 0
        while self._spans and self._spans[0][0].ts <= checkpoint.ts:
            _, _, span = self._spans.popleft()
            self._bytes -= span.size_bytes
            self._rows -= span.rows

    def tick(self) -> DataNodeTick:
        return DataNodeTick(
            self.vchannel, self.seek.ts, self.checkpoint.ts, self._segment_rows(), self._bytes
        )

    def _segment_rows(self) -> Mapping[SegmentID, int]:
        return dict(self._rows)
