"""The log's port: what every adapter (files, NATS JetStream, memory) offers, and its contract suite checks.

A log holds *pchannels*, named append-only streams of entries. A `Position` is an ``int`` that orders
the entries of one pchannel: it grows along the stream, is never used twice, and may have gaps. Reading
from position p yields the first entry at or after p. Position 0 is before everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp

Position = NewType("Position", int)
START = Position(0)


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """What can be known of an entry without reading its payload.

    ``rows`` counts rows of an insert or upsert and keys of a delete; ``row_id_start`` is the first
    row's id; ``epoch`` is set in ticks and epoch marks.
    """

    kind: MsgKind
    ts: Timestamp
    vchannel: str = ""
    collection_id: CollectionID = CollectionID(0)
    partition_id: PartitionID = PartitionID(0)
    segment_id: SegmentID = SegmentID(0)
    rows: int = 0
    row_id_start: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry to append. ``payload`` is any bytes-like parts, written one after the other."""

    header: EntryHeader
    payload: Sequence[bytes | memoryview] = ()


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry read back. ``next`` is where reading goes on after it.

    ``payload`` is ``None`` when the reader was opened with ``headers_only``.
    """

    position: Position
    next: Position
    header: EntryHeader
    payload: memoryview | None
    payload_bytes: int


class LogReader(Protocol):
    """Follows one pchannel from a position. Not for concurrent use."""

    async def read(self, bytes_max: int = 32 * 1024 * 1024) -> Sequence[LogEntry]:
        """The next entries, at least one: waits when there is none yet.

        Raises `LogClosed` once the log is closed and everything appended has been read,
        `CorruptLog` where a frame inside the log is damaged, and `TrimmedLog` where the position
        lies before what is still kept.
        """
        ...

    def close(self) -> None: ...


class Log(Protocol):
    """Append and follow. Any number of readers; writers one process at a time in files, any in JetStream."""

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        """Append the entries in order, atomically as to order: no other entry comes between them.

        ``durable``: returns after they are on stable storage. Without it (ticks of an idle channel)
        it returns when readers can see them; the next durable append, or a bounded delay, makes them
        durable. Raises `DiskFull`, after which nothing of this call is in the log.
        """
        ...

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader: ...

    def end(self, pchannel: str) -> Position:
        """The position after the last entry that readers can see.

        Where other processes write too, that is as of a moment ago, though never before an append of our
        own that has returned; `sync` asks anew.
        """
        ...

    async def sync(self, pchannel: str) -> Position:
        """Make everything appended so far durable; returns `end` as of that moment."""
        ...

    async def trim(self, pchannel: str, before: Position) -> None:
        """Allow everything before the position to be removed (whole files, when the adapter has files)."""
        ...

    def pchannels(self) -> Sequence[str]:
        """The pchannels that hold anything."""
        ...

    def size_bytes(self, pchannel: str = "") -> int:
        """What a pchannel's entries take, or those of all together."""
        ...

    async def close(self) -> None: ...


class RangeReader(Protocol):
    """Reads a finished stretch of a pchannel, in any process (a Spark task), without following."""

    def __call__(self, pchannel: str, start: Position, stop: Position) -> Iterator[LogEntry]:
        """Entries with start ≤ position < stop. A damaged frame in there is `CorruptLog`, never cut off."""
        ...


class LogClosed(Exception):
    """The log was closed; there is nothing more to read."""


class CorruptLog(Exception):
    """A frame that is not the torn tail fails its checksum. Names the file and the position."""


class TrimmedLog(Exception):
    """The position lies before what the log still keeps."""
