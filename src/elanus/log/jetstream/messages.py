"""Conversion between a log entry and messages of a stream.

An entry is one message if it fits, or else as many consecutive messages as needed, with the payload in
pieces. The entry's header is in the message's header, so that a consumer that asks the server for headers
only gets everything its decisions depend on. Header of the first message::

    Elanus-Entry: 1,<group>,<index>,<messages>,<payload bytes>,<kind>,<ts>,<collection>,<partition>,
                  <segment>,<rows>,<first row id>,<epoch>,<vchannel, percent-encoded>

and of the messages that continue it::

    Elanus-Part: <group>,<index>,<number in the entry, from 1>

*Group* numbers the groups that one writer has published, *index* the messages within one. With them
a writer determines whether a group without an answer was stored (`elanus.log.jetstream.writer`).

A *fence* is an entry of group 0 (`fence_headers`), and so is an *opening* (`opening_headers`), which a writer
puts before its first group. To readers both are marks of epoch 0, which they pass over.

A crash of the server while it stores a group may leave the beginning of an entry without its end. The
writer then writes the whole entry again, and the `Assembler` skips the incomplete beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from elanus.core.errors import InvalidParameter
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.log.port import CorruptLog, EntryHeader, LogEntry, NewEntry, Position
from elanus.nats.messages import HEADERS_MAX_BYTES, IncomingMessage

ENTRY_HEADER = "Elanus-Entry"
PART_HEADER = "Elanus-Part"
BATCH_MESSAGES_MAX = 1000
"""The most messages that servers accept in one atomic batch."""
_FORMAT = "1"
_FIELDS = 14
_NO_GROUP = 0
"""The group of fences and openings. Writers number their groups from 1."""
_FENCE, _OPENING = 0, 1
_VCHANNEL_MAX_BYTES = 512
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """``begins_entry`` and ``ends_entry``: whether it is the first or the last of its entry's messages."""

    header: tuple[str, str]
    payload: bytes
    begins_entry: bool
    ends_entry: bool


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a message among those of its writer."""

    group: int
    index: int


def messages_of(
    entries: Sequence[NewEntry], group: int, index: int, payload_max_bytes: int
) -> list[OutgoingMessage]:
    """Return the messages of entries in a group, the first of them numbered ``index``.

    ``payload_max_bytes``: the limit of the server, headers included. Raises `ValueError` for a header value
    that cannot be stored, and `InvalidParameter` for an entry that no batch can hold.
    """
    piece_max_bytes = payload_max_bytes - HEADERS_MAX_BYTES
    found: list[OutgoingMessage] = []
    for entry in entries:
        pieces = list(_pieces(entry.payload, piece_max_bytes))
        if len(pieces) > BATCH_MESSAGES_MAX:
            raise _too_large(sum(map(len, pieces)), len(pieces))
        at = index + len(found)
        head = _head(entry.header, group, at, len(pieces), sum(map(len, pieces)))
        for part, piece in enumerate(pieces):
            header = (PART_HEADER, f"{group},{at + part},{part}") if part else (ENTRY_HEADER, head)
            found.append(OutgoingMessage(header, piece, part == 0, part + 1 == len(pieces)))
    return found


def batch_of(messages: Sequence[OutgoingMessage], start: int) -> Sequence[OutgoingMessage]:
    """Return the messages from ``start`` on that go into one batch: whole entries, as many as it holds.

    ``start``: where an entry begins.
    """
    end = min(start + BATCH_MESSAGES_MAX, len(messages))
    while not messages[end - 1].ends_entry:
        end -= 1
    return messages[start:end]


def place_of(message: IncomingMessage) -> Place:
    """Return the message's place. Raises `CorruptLog` for a message that was not made by an Elanus writer."""
    head, part = message.headers.get(ENTRY_HEADER), message.headers.get(PART_HEADER)
    try:
        group, index = head.split(",", 3)[1:3] if head else (part or "").split(",", 2)[:2]
        return Place(int(group), int(index))
    except ValueError:
        raise _foreign(message) from None


def fence_headers() -> dict[str, str]:
    """Return the headers of a message that ends what its subject's writer may publish."""
    return _mark_headers(_FENCE)


def opening_headers() -> dict[str, str]:
    """Return the headers of a message that only gives its subject a last message."""
    return _mark_headers(_OPENING)


def is_fence(headers: Mapping[str, str]) -> bool:
    return headers.get(ENTRY_HEADER, "").startswith(f"{_FORMAT},{_NO_GROUP},{_FENCE},")


def timestamp_in(headers: Mapping[str, str]) -> Timestamp:
    """Return the timestamp of the entry that a message begins; `NO_TIMESTAMP` if it is a fence or an
    opening, continues an entry, or was not made by an Elanus writer."""
    fields = headers.get(ENTRY_HEADER, "").split(",")
    if len(fields) != _FIELDS or not fields[6].isdecimal():
        return NO_TIMESTAMP
    return Timestamp(int(fields[6]))


def parse_headers(block: bytes) -> dict[str, str]:
    """Return the headers of a stored message as returned by JetStream's API: lines after ``NATS/1.0``."""
    lines = block.decode().split("\r\n")[1:]
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines) if value}


class Assembler:
    """Assembles entries from messages in order. One stream, from one position on."""

    def __init__(self) -> None:
        self._header: EntryHeader | None = None
        self._first = 0
        self._group = ""
        self._messages = 0
        self._payload_bytes = 0
        self._pieces: list[bytes | None] = []

    @property
    def inside(self) -> bool:
        """Whether an entry has begun and not ended."""
        return self._header is not None

    def feed(self, message: IncomingMessage) -> LogEntry | None:
        """Return the entry that this message completes, if it does. Raises `CorruptLog`."""
        head = message.headers.get(ENTRY_HEADER)
        if head is not None:
            self._begin(message, head)
        elif not self._continues(message):
            # the reader began inside an entry, or a crash left this part of one
            self._header = None
            return None
        self._pieces.append(message.data)
        if self._header is None or len(self._pieces) < self._messages:
            return None
        header, self._header = self._header, None
        return LogEntry(
            Position(self._first),
            Position(message.sequence + 1),
            header,
            self._payload(message),
            self._payload_bytes,
        )

    def _begin(self, message: IncomingMessage, head: str) -> None:
        fields = head.split(",")
        if len(fields) != _FIELDS or fields[0] != _FORMAT:
            raise _foreign(message)
        try:
            self._header = EntryHeader(
                MsgKind(int(fields[5])),
                Timestamp(int(fields[6])),
                unquote(fields[13]),
                CollectionID(int(fields[7])),
                PartitionID(int(fields[8])),
                SegmentID(int(fields[9])),
                int(fields[10]),
                int(fields[11]),
                int(fields[12]),
            )
            self._messages, self._payload_bytes = int(fields[3]), int(fields[4])
        except ValueError:
            raise _foreign(message) from None
        self._first, self._group, self._pieces = message.sequence, fields[1], []

    def _continues(self, message: IncomingMessage) -> bool:
        part = message.headers.get(PART_HEADER)
        if part is None:
            raise _foreign(message)
        group, _, rest = part.partition(",")
        due = len(self._pieces)
        return (
            self._header is not None
            and message.sequence == self._first + due
            and group == self._group
            and rest.endswith(f",{due}")
        )

    def _payload(self, message: IncomingMessage) -> memoryview | None:
        pieces = [piece for piece in self._pieces if piece is not None]
        if len(pieces) < len(self._pieces):
            return None
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if len(data) != self._payload_bytes:
            raise CorruptLog(
                f"the entry at position {self._first} has {len(data)} bytes, its header says "
                f"{self._payload_bytes} (message {message.sequence})"
            )
        return memoryview(data)


def _mark_headers(index: int) -> dict[str, str]:
    return {ENTRY_HEADER: _head(EntryHeader(MsgKind.EPOCH, NO_TIMESTAMP), _NO_GROUP, index, 1, 0)}


def _head(header: EntryHeader, group: int, index: int, messages: int, payload_bytes: int) -> str:
    vchannel = header.vchannel.encode()
    numbers = (
        header.ts,
        header.collection_id,
        header.partition_id,
        header.segment_id,
        header.rows,
        header.row_id_start,
        header.epoch,
    )
    if len(vchannel) > _VCHANNEL_MAX_BYTES:
        raise ValueError(f"the vchannel name has {len(vchannel)} bytes, at most {_VCHANNEL_MAX_BYTES} fit")
    if any(number not in _INT64 for number in numbers):
        raise ValueError(f"a header value is out of its range: {header}")
    fields = (_FORMAT, group, index, messages, payload_bytes, int(header.kind), *numbers)
    return f"{','.join(map(str, fields))},{quote(vchannel, safe='')}"


def _pieces(parts: Sequence[bytes | memoryview], piece_max_bytes: int) -> Iterator[bytes]:
    """Yield the parts joined and cut; at least one piece."""
    views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
    whole = b"".join(views)
    if len(whole) <= piece_max_bytes:
        yield whole
        return
    for start in range(0, len(whole), piece_max_bytes):
        yield whole[start : start + piece_max_bytes]


def _too_large(size_bytes: int, messages: int) -> InvalidParameter:
    return InvalidParameter(
        f"an entry of {size_bytes} bytes would be {messages} messages, NATS takes at most "
        f"{BATCH_MESSAGES_MAX} at once; write smaller rows, or raise max_payload of the NATS server"
    )


def _foreign(message: IncomingMessage) -> CorruptLog:
    return CorruptLog(f"message {message.sequence} was not written by a log of this release")
