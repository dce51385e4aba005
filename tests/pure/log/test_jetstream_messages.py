"""Entries as messages of a stream and back, whole or in pieces, and what a crash leaves of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import InvalidParameter
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.log.jetstream.messages import (
    BATCH_MESSAGES_MAX,
    Assembler,
    OutgoingMessage,
    Place,
    batch_of,
    messages_of,
    parse_headers,
    place_of,
)
from elanus.log.port import CorruptLog, EntryHeader, LogEntry, NewEntry
from elanus.nats.messages import HEADERS_MAX_BYTES, IncomingMessage

PIECE = 10
PAYLOAD_MAX = HEADERS_MAX_BYTES + PIECE

int64 = st.integers(-(2**63), 2**63 - 1)
headers = st.builds(
    EntryHeader,
    st.sampled_from(MsgKind),
    int64.map(Timestamp),
    st.text(max_size=60),
    int64.map(CollectionID),
    int64.map(PartitionID),
    int64.map(SegmentID),
    int64,
    int64,
    int64,
)


def stored(
    messages: Sequence[OutgoingMessage], first: int = 1, *, data: bool = True
) -> list[IncomingMessage]:
    return [
        IncomingMessage(first + n, dict([m.header]), m.payload if data else None)
        for n, m in enumerate(messages)
    ]


def assembled(messages: Sequence[IncomingMessage]) -> list[LogEntry]:
    assembler = Assembler()
    return [entry for message in messages if (entry := assembler.feed(message))]


def entry(ts: int, size_bytes: int = 0) -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.INSERT, Timestamp(ts)), [bytes([ts]) * size_bytes])


def test_batches_are_of_whole_entries() -> None:
    messages = messages_of([entry(n % 256, 3 * PIECE) for n in range(700)], 1, 0, PAYLOAD_MAX)
    batches, at = list[int](), 0
    while at < len(messages):
        batches.append(len(batch_of(messages, at)))
        at += batches[-1]
    assert batches == [999, 999, 102]


def test_an_entry_that_no_batch_can_hold_is_refused() -> None:
    messages_of([entry(1, BATCH_MESSAGES_MAX * PIECE)] * 2, 1, 0, PAYLOAD_MAX)
    with pytest.raises(InvalidParameter, match=r"10001 bytes would be 1001 messages.* raise max_payload"):
        messages_of([entry(1), entry(1, BATCH_MESSAGES_MAX * PIECE + 1)], 1, 0, PAYLOAD_MAX)


@given(st.lists(st.tuples(headers, st.lists(st.binary(max_size=30), max_size=3)), max_size=5))
def test_entries_come_back(written: list[tuple[EntryHeader, list[bytes]]]) -> None:
    entries = [NewEntry(header, parts) for header, parts in written]
    messages = messages_of(entries, 7, 0, PAYLOAD_MAX)
    found = assembled(stored(messages, 100))
    assert [e.header for e in found] == [header for header, _ in written]
    assert [bytes(e.payload or b"") for e in found] == [b"".join(parts) for _, parts in written]
    begins = [100 + n for n, message in enumerate(messages) if message.begins_entry]
    assert [e.position for e in found] == begins
    assert [e.next for e in found] == [*begins[1:], 100 + len(messages)][: len(begins)]
    bare = assembled(stored(messages, 100, data=False))
    assert [(e.position, e.next, e.header, e.payload_bytes) for e in bare] == [
        (e.position, e.next, e.header, e.payload_bytes) for e in found
    ]
    assert all(e.payload is None for e in bare)


@given(headers, st.binary(max_size=40))
def test_a_message_is_never_larger_than_the_server_takes(header: EntryHeader, payload: bytes) -> None:
    for message in messages_of([NewEntry(header, [payload])], 2**62, 999, PAYLOAD_MAX):
        assert len(message.payload) + sum(map(len, message.header)) + 600 <= PAYLOAD_MAX


def test_every_message_names_its_position() -> None:
    messages = messages_of([entry(1), entry(2, 25)], 7, 3, PAYLOAD_MAX)
    assert [place_of(m) for m in stored(messages)] == [Place(7, 3), Place(7, 4), Place(7, 5), Place(7, 6)]


def test_reading_may_begin_inside_an_entry() -> None:
    messages = stored(messages_of([entry(1, 25), entry(2)], 1, 0, PAYLOAD_MAX))
    assert [e.header.ts for e in assembled(messages[1:])] == [2]


@pytest.mark.parametrize("kept", [1, 2])
def test_the_beginning_of_an_entry_without_its_end_is_left_out(kept: int) -> None:
    """The server died while it stored the entry; the writer has written it again, others came between."""
    first = messages_of([entry(1), entry(2, 25)], 4, 0, PAYLOAD_MAX)
    other = messages_of([entry(9)], 4, 0, PAYLOAD_MAX)
    for between in ([], other):
        log = [*first[: 1 + kept], *between, *first[1:], *other]
        found = assembled(stored(log))
        assert [e.header.ts for e in found] == [1, *([9] if between else []), 2, 9]
        assert found[-2].payload_bytes == 25


def test_pieces_of_different_groups_are_not_joined() -> None:
    one, other = (messages_of([entry(1, 25)], group, 0, PAYLOAD_MAX) for group in (1, 2))
    assert assembled(stored([one[0], other[1], other[2]])) == []


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"Elanus-Entry": "hello"},
        {"Elanus-Entry": "2,1,0,1,0,400,1,0,0,0,0,0,0,"},
        {"Elanus-Entry": "1,1,0,1,0,77,1,0,0,0,0,0,0,"},
        {"Elanus-Entry": "1,1,0,1,x,400,1,0,0,0,0,0,0,"},
    ],
    ids=["none", "other", "format", "kind", "number"],
)
def test_what_no_writer_of_ours_wrote_is_corrupt(found: dict[str, str]) -> None:
    with pytest.raises(CorruptLog, match="message 5 was not written"):
        Assembler().feed(IncomingMessage(5, found, b""))


def test_a_payload_that_is_not_as_long_as_its_header_says_is_corrupt() -> None:
    (message,) = stored(messages_of([entry(1, 5)], 1, 0, PAYLOAD_MAX))
    with pytest.raises(CorruptLog, match="3 bytes, its header says 5"):
        Assembler().feed(IncomingMessage(1, message.headers, b"abc"))


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (EntryHeader(MsgKind.INSERT, Timestamp(1), "v" * 513), "513 bytes"),
        (EntryHeader(MsgKind.INSERT, Timestamp(2**63)), "out of its range"),
        (EntryHeader(MsgKind.INSERT, Timestamp(1), rows=-(2**63) - 1), "out of its range"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(header: EntryHeader, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        messages_of([NewEntry(header)], 1, 0, PAYLOAD_MAX)


def test_headers_are_parsed_as_the_server_keeps_them() -> None:
    block = b"NATS/1.0\r\nElanus-Part: 1,2,3\r\nNats-Batch-Id: a:b\r\n\r\n"
    assert parse_headers(block) == {"Elanus-Part": "1,2,3", "Nats-Batch-Id": "a:b"}
