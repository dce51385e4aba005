"""The bytes of frames: what is packed is parsed back, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.log.frames import (
    FRAME_HEADER_MAX_BYTES,
    VCHANNEL_MAX_BYTES,
    file_header_intact,
    pack_file_header,
    pack_frame,
    parse_frame,
    previous_end_in,
)
from elanus.log.port import START, EntryHeader, NewEntry, Position

INT64 = st.integers(-(2**63), 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)
HEADERS = st.builds(
    EntryHeader,
    st.sampled_from(MsgKind),
    UINT64.map(Timestamp),
    st.text(max_size=VCHANNEL_MAX_BYTES // 4),
    INT64.map(CollectionID),
    INT64.map(PartitionID),
    INT64.map(SegmentID),
    st.integers(0, 2**32 - 1),
    INT64,
    INT64,
)
POSITIONS = st.integers(0, 2**60).map(lambda n: Position(n * 8))


def packed(entry: NewEntry, position: Position, synced: Position = START) -> bytes:
    parts, end = pack_frame(entry, position, synced)
    data = b"".join(parts)
    assert len(data) == end - position
    return data


@given(HEADERS, st.lists(st.binary(max_size=40), max_size=4), POSITIONS, POSITIONS)
def test_a_frame_is_parsed_as_it_was_packed(
    header: EntryHeader, payload: list[bytes], position: Position, synced: Position
) -> None:
    data = packed(NewEntry(header, payload), position, synced)
    frame = parse_frame(memoryview(b"before " + data), 7, position)
    assert frame is not None
    assert frame.header == header
    assert (frame.position, frame.end, frame.synced) == (position, position + len(data), synced)
    assert frame.header_bytes <= FRAME_HEADER_MAX_BYTES
    found = data[frame.header_bytes :][: frame.payload_bytes]
    assert found == b"".join(payload)
    assert frame.payload_intact(found)


@given(HEADERS, POSITIONS, st.data())
def test_a_frame_is_bound_to_its_position_and_to_every_byte(
    header: EntryHeader, position: Position, data: st.DataObject
) -> None:
    content = packed(NewEntry(header, [b"payload"]), position)
    assert parse_frame(memoryview(content), 0, Position(position + 8)) is None
    frame = parse_frame(memoryview(content), 0, position)
    assert frame is not None
    at = data.draw(st.integers(0, frame.header_bytes - 1))
    wrong = bytearray(content)
    wrong[at] ^= data.draw(st.integers(1, 255))
    assert parse_frame(memoryview(bytes(wrong)), 0, position) is None
    assert (
        parse_frame(memoryview(content)[: data.draw(st.integers(0, frame.header_bytes - 1))], 0, position)
        is None
    )
    assert not frame.payload_intact(b"Payload")


def test_the_layout_of_a_frame_is_fixed() -> None:
    """Files outlive releases: a change of these bytes is a change of the format version."""
    header = EntryHeader(MsgKind.INSERT, Timestamp(1), "dml_0_7v0", CollectionID(7), rows=2)
    assert packed(NewEntry(header, [b"abc"]), Position(32), Position(24)).hex() == (
        "dfe62d244ed4fd954546524d70009001030000000000000020ded568a56db0d618000000000000000100000000000000"
        "070000000000000000000000000000000000000000000000000000000000000000000000000000000200000009000000"
        "646d6c5f305f377630000000000000006162630000000000"
    )
    assert (
        pack_file_header(Position(4096)).hex()
        == "37c2151c8248bd20454c414e4c4f470001000000000000000010000000000000"
    )


def test_a_file_header_notes_where_the_file_before_ended() -> None:
    for base, end in ((4096, 4096), (4096, 4088), (1 << 50, 1 << 40), (4096, None)):
        header = pack_file_header(Position(base), None if end is None else Position(end))
        assert file_header_intact(header, Position(base))
        assert previous_end_in(header) == (None if base == 1 << 50 else end), "not noted if it is too far"
    assert pack_file_header(Position(4096), Position(4000)).hex() == (
        "5e5026a32c235ed9454c414e4c4f4700010000000d0000000010000000000000"
    )


def test_a_file_header_belongs_to_its_base() -> None:
    data = pack_file_header(Position(64))
    assert file_header_intact(data, Position(64))
    assert not file_header_intact(data, Position(128))
    assert not file_header_intact(data[:-1], Position(64))
    assert not any(file_header_intact(data[:i] + b"\xff" + data[i + 1 :], Position(64)) for i in range(32))


@pytest.mark.parametrize(
    "header",
    [
        EntryHeader(MsgKind.INSERT, Timestamp(1), rows=-1),
        EntryHeader(MsgKind.INSERT, Timestamp(-1)),
        EntryHeader(MsgKind.INSERT, Timestamp(1), epoch=2**63),
        EntryHeader(MsgKind.INSERT, Timestamp(1), "v" * (VCHANNEL_MAX_BYTES + 1)),
    ],
)
def test_what_does_not_fit_a_header_is_refused(header: EntryHeader) -> None:
    with pytest.raises(ValueError, match=r"range|bytes"):
        pack_frame(NewEntry(header), Position(0), Position(0))
