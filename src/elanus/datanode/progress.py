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
from elanus.log.shared_reader import EntryPack, Subscription

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
        self._spans: deque[tuple[Checkpoint, int, _Span]] = deque()
        """The part that each tick completed: its seek point, the position after it, and the writes."""
        self._rows: Counter[SegmentID] = Counter()
        self._bytes = 0
        self.ended = False
        self._resume = assignment.checkpoint
        """Where to begin to follow."""
        self._subscription: Subscription | None = None
        self._read_before_bytes = 0
        """Bytes that earlier subscriptions have passed."""
        self._held_from_bytes = 0

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

    @property
    def seek(self) -> Checkpoint:
        """How far it has been read: everything up to its ``ts`` has been taken."""
        return self._kept(self._resume if self._subscription is None else self._subscription.seek)

    @property
    def stop(self) -> int:
        """A position after the last tick."""
        return self._resume.position if self._subscription is None else self._subscription.stop

    @property
    def held_bytes(self) -> int:
        """How many bytes of its pchannel's log, of all vchannels, have been read since the last commit: at
        most what its checkpoint keeps from being trimmed."""
        return self._read_bytes() - self._held_from_bytes

    def follow(self, subscription: Subscription) -> None:
        """Be followed by this subscription, which begins at ``seek``, from now on."""
        self._resume, self._read_before_bytes = self.seek, self._read_bytes()
        self._subscription = subscription

    def leave(self) -> None:
        """Be followed no more."""
        if self._subscription is not None:
            self._subscription.close()

    def has_pending(self) -> bool:
        return bool(self._spans)

    def waiting_ms(self) -> int:
        """Return how long the oldest write beyond the checkpoint has been waiting, in the ticks' time."""
        if not self._spans:
            return 0
        return physical_ms(self.seek.ts) - physical_ms(self._spans[0][2].first_ts)

    def take(self, pack: EntryPack) -> bool:
        """Take a pack that holds messages of this vchannel. Returns whether there are writes among them."""
        span: _Span | None = None
        for entry in pack.entries:
            header = entry.header
            self.ended |= header.kind is MsgKind.DROP_COLLECTION
            if header.kind not in _WRITES:
                continue
            span = span or _Span(header.ts)
            span.size_bytes += entry.payload_bytes
            if header.kind in _ROWS:
                span.rows[header.segment_id] += header.rows
        if span is not None:
            self._spans.append((pack.seek, pack.next_position, span))
            self._bytes += span.size_bytes
            self._rows += span.rows
        return span is not None

    def next_range(self, size_max_bytes: int) -> Range:
        """Everything that has been read, or as much of it as fits in about ``size_max_bytes`` of log."""
        whole = Range(self.checkpoint, self.seek, self.stop, bool(self._spans), is_whole=True)
        if self._bytes <= size_max_bytes:
            return whole
        size_bytes = 0
        for seek, stop, span in self._spans:
            size_bytes += span.size_bytes
            if size_bytes >= size_max_bytes and seek.ts < self.seek.ts:
                return replace(whole, end=self._kept(seek), stop=stop, is_whole=False)
        return whole

    def committed(self, checkpoint: Checkpoint) -> None:
        """Everything up to the checkpoint is in binlogs now."""
        self.assignment = replace(self.assignment, checkpoint=checkpoint)
        self._held_from_bytes = self._read_bytes()
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

    def _kept(self, seek: Checkpoint) -> Checkpoint:
        """Return the seek point, at a position that the log keeps for this vchannel.

        A message of another vchannel that waits for its tick may hold the seek point back, to before the
        checkpoint if that vchannel is followed since later. Nothing there is of this one.
        """
        if seek.position >= self.checkpoint.position:
            return seek
        return replace(self.checkpoint, ts=seek.ts)

    def _read_bytes(self) -> int:
        passed = 0 if self._subscription is None else self._subscription.read_bytes
        return self._read_before_bytes + passed
