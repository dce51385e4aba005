"""The log's port: the interface of all adapters (files, NATS JetStream, memory), checked by a contract suite.

A log holds *pchannels*, named append-only streams of entries. A `Position` is an ``int`` that orders
the entries of one pchannel: it grows along the stream, is never used twice, and may have gaps. Reading
from position p yields the first entry at or after p. Position 0 is before everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol, runtime_checkable

from elanus.core.backends import Backend
from elanus.core.errors import ChannelRewound
from elanus.core.faults import LogFault
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp

Position = NewType("Position", int)
START = Position(0)


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The part of an entry that can be read without its payload.

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
    """An entry read back. ``next`` is the position at which to continue reading after it.

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
        """Return the next entries, at least one; waits if there is none yet.

        Raises `LogClosed` once the log is closed and everything appended has been read,
        `CorruptLog` when a frame inside the log is damaged, `TrimmedLog` when the position
        is before what is still kept, and `RewoundLog` when it is one that the log has not given.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class PatientReader(LogReader, Protocol):
    """A reader that need not be woken for each write: it can wait for the tick that makes them complete."""

    async def read_to_tick(self, bytes_max: int) -> Sequence[LogEntry]:
        """As `read`, but it may return writes later: when a tick follows them, or many are unread.

        Anything else than a write is returned at once, with all that is before it.
        """
        ...


class Log(Protocol):
    """Append and follow. Any number of readers; one writing process in files, any number in JetStream."""

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        """Append the entries in order, without any other entry of this process between them.

        Nor one of another process, unless the append has more entries than the adapter can write at once.
        ``durable``: returns after they are on stable storage. Without it (ticks of an idle channel)
        it returns when readers can see them; the next durable append, or a bounded delay, makes them
        durable. Raises `DiskFull`, after which nothing of this call is in the log; `ChannelRewound` if
        the entries would get positions that others had before; and `PartlyWritten` when it failed after some
        of many entries had been stored.
        """
        ...

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader: ...

    def end(self, pchannel: str) -> Position:
        """Return the position after the last entry that readers can see.

        If other processes write too, the value may be slightly out of date, though never before an append
        of this process that has returned; `sync` asks for the current one.
        """
        ...

    def missing_from(self, pchannel: str, position: Position) -> Position | None:
        """Return where the log ended before it came to this position, if a reader there gets `RewoundLog`.

        None: it has given the position, or has no entry at all.
        """
        ...

    async def sync(self, pchannel: str) -> Position:
        """Make everything appended so far durable; returns `end` as of that moment."""
        ...

    async def trim(self, pchannel: str, before: Position) -> None:
        """Allow everything before the position to be removed (whole files, if the adapter has files)."""
        ...

    def pchannels(self) -> Sequence[str]:
        """Return the pchannels that have any entries."""
        ...

    def size_bytes(self, pchannel: str = "") -> int:
        """Return the size of a pchannel's entries, or of all pchannels together."""
        ...

    async def close(self) -> None: ...


class Appender(Protocol):
    """The appends of one writer."""

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        """As `Log.append`. Also raises `elanus.core.errors.NoSession` for a writer that was fenced."""
        ...


@runtime_checkable
class FencingLog(Log, Protocol):
    """A log with several writing processes. It refuses the appends of a writer that others no longer count.

    No clock has a part in this: an append that the log takes is before the fence in the log, whatever the
    writer believed about its lease, and however long it was suspended.
    """

    def appender(self, writer: NodeID, confirm: Callable[[], Awaitable[None]]) -> Appender:
        """Return what a node appends with. ``writer``: an id that is never used again.

        ``confirm``: asks the store of the sessions whether the writer still has its own, and raises an
        `elanus.core.errors.ElanusError` if not. It is called before an append that no fence could
        refuse, and if it raises, nothing is stored: before the first one, and the first after a trim.
        """
        ...

    async def fence(self, pchannel: str, is_gone: Callable[[NodeID], bool]) -> None:
        """Return when the pchannel takes no append of the writers that are gone any more.

        Repeatable. ``is_gone``: of writers whose sessions have ended. Raises what `append` raises.
        """
        ...


@runtime_checkable
class DatedLog(Log, Protocol):
    """A log that is kept apart from the metadata, so either may be put back to an older copy alone."""

    async def newest(self, pchannel: str) -> Timestamp:
        """Return the timestamp of the pchannel's last entry; `NO_TIMESTAMP` if it has none. Raises
        `Unavailable`."""
        ...


class RangeReader(Protocol):
    """Reads a finished range of a pchannel, in any process (a Spark task), without following."""

    def __call__(self, pchannel: str, start: Position, stop: Position) -> Iterator[LogEntry]:
        """Entries with start ≤ position < stop. A damaged frame raises `CorruptLog`; it is never cut off.

        Also raises `TrimmedLog` and `RewoundLog`, as `LogReader.read`.
        """
        ...


class LogFollower(Protocol):
    """The read side of a log, for a process that does not write it."""

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader: ...
    def missing_from(self, pchannel: str, position: Position) -> Position | None: ...
    async def sync(self, pchannel: str) -> Position: ...

    async def close(self) -> None: ...


@runtime_checkable
class PollingFollower(LogFollower, Protocol):
    """A follower that looks for new entries from time to time."""

    def poll_now(self) -> None:
        """Look for new entries now: the caller knows that there are some."""
        ...


HeldPositions = Callable[[], Awaitable[Mapping[str, int]]]
"""Returns, by pchannel, the highest position that the metadata holds. May be a few seconds old; raises
`elanus.core.errors.ElanusError`."""


async def nothing_held() -> Mapping[str, int]:
    """The `HeldPositions` of a log that no metadata refers to."""
    return {}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The settings of writing; a backend uses what concerns it.

    ``append_timeout_s``: how long an append waits for servers that do not answer. ``held``: for a log whose
    positions cannot be moved on: nothing is appended where it ends before such a position. The others are for
    files: ``fsync`` off lets acknowledged entries survive a crash of the process, not of the machine;
    ``file_bytes_max`` is the size at which a file is closed and the next begun; ``sync_delay_ms``: how long a
    non-durable entry may stay non-durable.
    """

    append_timeout_s: float = 30.0
    held: HeldPositions = nothing_held
    fsync: bool = True
    file_bytes_max: int = 64 * 1024 * 1024
    sync_delay_ms: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBackend(Backend):
    """How the logs of a scheme are opened. The functions import what they need when they are called.

    ``identity(url)``: the part of the URL that may not change once there is data. ``open(url, options)``
    opens the log for a process that writes, ``follow(url, poll_ms)`` for one that only reads; ``poll_ms``:
    how often a log that cannot notify checks for new entries. ``range_reader(url)`` opens nothing yet. They
    raise `elanus.core.errors.ElanusError` and `LogFault`.
    """

    identity: Callable[[str], str]
    open: Callable[[str, LogOptions], Awaitable[Log]]
    follow: Callable[[str, float], Awaitable[LogFollower]]
    range_reader: Callable[[str], RangeReader]


class LogClosed(LogFault):
    """The log was closed; there is nothing more to read."""

    lasting = True


class CorruptLog(LogFault):
    """A frame that is not part of a torn tail fails its checksum. Names the file and the position."""


class TrimmedLog(LogFault):
    """The position is before what the log still keeps."""


class RewoundLog(LogFault):
    """The log has not given the position, though it was read before: an older copy was put in its place."""


class LogUnreadable(LogFault):
    """The log's files cannot be read at the moment; their content may be intact."""


class LogInUse(LogFault):
    """Another process writes this log. Names the directory and the process."""


class UnknownLogFormat(LogFault):
    """A file of the log was written by another release, in a format that this one does not read."""

    lasting = True


def rewound_text(pchannel: str, position: int, end: int) -> str:
    """Return what is wrong with a log that ends at ``end`` although ``position`` was read or is committed."""
    return (
        f"{pchannel}: position {position} is needed, but the log ends at {end}: an older copy was put in its "
        "place, or acknowledged entries were lost"
    )


REWOUND = "nothing is written to"
"""How the texts of `channel_rewound` begin."""
REWOUND_REMEDY = (
    "restore a copy that reaches this position and start the servers again, or remove what is there of this "
    "channel's log and drop the collections that need it"
)


def channel_rewound(pchannel: str, position: int, end: int) -> ChannelRewound:
    """Return the error for appends to such a log."""
    return ChannelRewound(f"{REWOUND} {rewound_text(pchannel, position, end)}; {REWOUND_REMEDY}")
