"""The bytes of a log file: a file header, then frames one after the other.

Everything is little-endian and aligned to 8 bytes from the start of the file, so the columns of a
payload are aligned in memory wherever a reader starts reading. A *position* is the file's base plus the
offset in the file; the base is in the file's name and in its header.

File header (32 bytes)::

    u64  checksum: xxh3-64 of the 24 bytes after it
    8s   magic "ELANLOG" and a zero byte
    u32  format version
    u32  1 + the bytes between the end of the file before and the base position, in units of 8; 0: not known
    u64  base position

Frame::

    u64  header checksum: xxh3-64 of the rest of the header, seeded with the frame's position
    4s   magic "EFRM"
    u16  header size in bytes, vchannel and padding included
    u16  message kind
    u64  payload size in bytes, padding not included
    u64  payload checksum: xxh3-64 of the payload, seeded with the frame's position
    u64  synced position
    u64  timestamp
    i64  collection id
    i64  partition id
    i64  segment id
    i64  row id of the first row
    i64  epoch
    u32  rows
    u16  vchannel size in bytes
    u16  zero
    ...  vchannel, UTF-8, zeros up to a multiple of 8
    ...  payload, zeros up to a multiple of 8

The header has a checksum of its own, so a reader that needs no payloads skips them without reading.
The seed ties a frame to its place: a copy of a frame elsewhere, in a payload for instance, is not a valid
frame. *Synced position*: everything before it was on stable storage when this frame was written. A damaged
frame below the synced position of a later frame was damaged after it had been synced, and is not the result
of a crash (`elanus.log.recovery`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.log.port import START, EntryHeader, NewEntry, Position, UnknownLogFormat

FORMAT_VERSION = 1
ALIGNMENT_BYTES = 8
VCHANNEL_MAX_BYTES = 512
FRAME_MAGIC = b"EFRM"
FRAME_MAGIC_OFFSET = 8

_FILE_MAGIC = b"ELANLOG\0"
_FILE = struct.Struct("<Q8sIIQ")
_FRAME = struct.Struct("<Q4sHHQQQQqqqqqIHH")
_NONE_BEFORE = (1 << 32) - 1
"""In place of the distance to the file before; larger distances are not noted."""
_KINDS = {int(kind): kind for kind in MsgKind}

FILE_HEADER_BYTES = _FILE.size
FRAME_HEADER_MIN_BYTES = _FRAME.size
FRAME_HEADER_MAX_BYTES = FRAME_HEADER_MIN_BYTES + VCHANNEL_MAX_BYTES

Part = bytes | memoryview
"""A part of the bytes to write. Parts are written one after the other without being joined."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame header that was verified, with its position. ``end`` is where the next frame begins."""

    position: Position
    header: EntryHeader
    header_bytes: int
    payload_bytes: int
    payload_checksum: int
    synced: Position

    @property
    def end(self) -> Position:
        return Position(self.position + self.header_bytes + aligned(self.payload_bytes))

    def payload_intact(self, payload: Part) -> bool:
        return xxhash.xxh3_64_intdigest(payload, seed=self.position) == self.payload_checksum


def aligned(size: int) -> int:
    """Return the smallest multiple of the alignment that is not below ``size``."""
    return (size + ALIGNMENT_BYTES - 1) & -ALIGNMENT_BYTES


def pack_file_header(base: Position, previous_end: Position | None = None) -> bytes:
    """``previous_end``: the end of the file before; `START` if the log begins with this one, None if that is
    not known."""
    gap = 0 if previous_end is None else 1 + (base - previous_end) // ALIGNMENT_BYTES
    gap = _NONE_BEFORE if previous_end == START else gap if gap < _NONE_BEFORE else 0
    body = _FILE.pack(0, _FILE_MAGIC, FORMAT_VERSION, gap, base)[8:]
    return xxhash.xxh3_64_intdigest(body).to_bytes(8, "little") + body


def previous_end_in(header: bytes) -> Position | None:
    """Return the end of the file before, from an intact file header; None if it is not known."""
    _, _, _, gap, base = _FILE.unpack_from(header)
    return Position(base - (gap - 1) * ALIGNMENT_BYTES) if 0 < gap < _NONE_BEFORE else None


def begins_log(header: bytes) -> bool:
    """Whether no file was ever before the one with this intact header, as far as is known."""
    return _FILE.unpack_from(header)[3] == _NONE_BEFORE  # type: ignore[no-any-return]


def file_header_intact(data: bytes, base: Position) -> bool:
    """Whether these bytes are the header of the file with that base.

    Raises `UnknownLogFormat` for an intact header of another format version.
    """
    if len(data) < FILE_HEADER_BYTES:
        return False
    checksum, magic, version, _, found = _FILE.unpack_from(data)
    if magic != _FILE_MAGIC or checksum != xxhash.xxh3_64_intdigest(data[8:FILE_HEADER_BYTES]):
        return False
    if version != FORMAT_VERSION:
        raise UnknownLogFormat(f"the log has format {version}, this release reads {FORMAT_VERSION}")
    return bool(found == base)


def pack_frame(entry: NewEntry, position: Position, synced: Position) -> tuple[Sequence[Part], Position]:
    """Return the parts of the entry's frame, and the position after it. Payload parts are not copied.

    Raises `ValueError` when a header value is out of its range.
    """
    payload = xxhash.xxh3_64(seed=position)
    payload_bytes = 0
    for part in entry.payload:
        payload.update(part)
        payload_bytes += memoryview(part).nbytes
    head = _pack_header(entry.header, position, synced, payload_bytes, payload.intdigest())
    padding = aligned(payload_bytes) - payload_bytes
    parts = [head, *entry.payload, bytes(padding)] if padding else [head, *entry.payload]
    return parts, Position(position + len(head) + payload_bytes + padding)


def _pack_header(
    header: EntryHeader, position: Position, synced: Position, payload_bytes: int, payload_checksum: int
) -> bytes:
    vchannel = header.vchannel.encode()
    if len(vchannel) > VCHANNEL_MAX_BYTES:
        raise ValueError(f"the vchannel name has {len(vchannel)} bytes, at most {VCHANNEL_MAX_BYTES} fit")
    size = FRAME_HEADER_MIN_BYTES + aligned(len(vchannel))
    try:
        fixed = _FRAME.pack(
            0,
            FRAME_MAGIC,
            size,
            header.kind,
            payload_bytes,
            payload_checksum,
            synced,
            header.ts,
            header.collection_id,
            header.partition_id,
            header.segment_id,
            header.row_id_start,
            header.epoch,
            header.rows,
            len(vchannel),
            0,
        )
    except struct.error as error:
        raise ValueError(f"a header value is out of its range: {header} ({error})") from error
    rest = (fixed[8:] + vchannel).ljust(size - 8, b"\0")
    return xxhash.xxh3_64_intdigest(rest, seed=position).to_bytes(8, "little") + rest


def parse_frame(data: memoryview, offset: int, position: Position) -> Frame | None:
    """Return the frame header at ``offset`` of ``data``, which is at ``position`` in the log.

    ``None`` when there is no intact header: too few bytes, or a wrong magic, size or checksum. Raises
    `UnknownLogFormat` for an intact header of a kind that this release does not know.
    """
    if len(data) - offset < FRAME_HEADER_MIN_BYTES:
        return None
    (
        checksum,
        magic,
        size,
        kind,
        payload_bytes,
        payload_checksum,
        synced,
        ts,
        collection_id,
        partition_id,
        segment_id,
        row_id_start,
        epoch,
        rows,
        vchannel_bytes,
        _,
    ) = _FRAME.unpack_from(data, offset)
    if magic != FRAME_MAGIC or size > len(data) - offset:
        return None
    if xxhash.xxh3_64_intdigest(data[offset + 8 : offset + size], seed=position) != checksum:
        return None
    if kind not in _KINDS:
        raise UnknownLogFormat(f"the frame at position {position} has kind {kind}, which this release lacks")
    name_at = offset + FRAME_HEADER_MIN_BYTES
    header = EntryHeader(
        _KINDS[kind],
        Timestamp(ts),
        str(data[name_at : name_at + vchannel_bytes], "utf-8"),
        CollectionID(collection_id),
        PartitionID(partition_id),
        SegmentID(segment_id),
        rows,
        row_id_start,
        epoch,
    )
    return Frame(position, header, size, payload_bytes, payload_checksum, Position(synced))
