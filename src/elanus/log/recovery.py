"""Recovery of a pchannel's last file, after its writer may have been killed: where the valid part ends.

Only the last file is examined: a file with a successor was complete and durable before the successor was
created, and a log that was closed properly ends in an empty file. In the last file, headers are followed
from the start; payloads are checked from the last position that the file itself records as synced. The
first frame that is damaged or incomplete ends the file, and the rest is a *torn tail*: it was being written,
it was never acknowledged, and it is cut off.

It is a torn tail only if the crash can have left it. Pages of one unfinished write may reach the disk in
any order, so intact frames may follow a hole. But an intact frame whose synced position is after the damage
proves that the damaged place had once been on stable storage. Then the file was damaged later and
acknowledged entries may be lost: this raises `CorruptLog`, and nothing is cut off. Damage to the very last
commit of a file that was not closed cannot be distinguished from a crash.
"""

from __future__ import annotations

from dataclasses import dataclass

from elanus.log.disk import Disk
from elanus.log.frames import (
    ALIGNMENT_BYTES,
    FILE_HEADER_BYTES,
    FRAME_MAGIC,
    FRAME_MAGIC_OFFSET,
    Frame,
    file_header_intact,
    parse_frame,
)
from elanus.log.layout import FileSpan
from elanus.log.port import Position
from elanus.log.reading import OpenFile, walk_headers


@dataclass(frozen=True, slots=True)
class Tail:
    """The valid part of the last file (``None``: not even its header was complete), and what was cut off."""

    span: FileSpan | None
    cut_bytes: int


def recover_tail(disk: Disk, last: FileSpan) -> Tail:
    """Find the end of the last file, cut off a torn tail, and make the rest durable.

    Raises `CorruptLog` when the damaged part is not a torn tail.
    """
    size_bytes = last.end - last.base
    with last.path.open("rb") as head:
        begun = file_header_intact(head.read(FILE_HEADER_BYTES), last.base)
    if not begun and size_bytes <= FILE_HEADER_BYTES:
        disk.unlink(last.path)
        return Tail(None, size_bytes)
    file = OpenFile(last)
    end = _valid_end(file, last)
    if end < last.end:
        _refuse_later_damage(file, end, last.end)
    with last.path.open("rb+") as writable:
        if end < last.end:
            disk.truncate(writable.fileno(), end - last.base)
        disk.sync(writable.fileno())
    return Tail(FileSpan(last.path, last.base, end), last.end - end)


def _valid_end(file: OpenFile, span: FileSpan) -> Position:
    unsynced: list[Frame] = []
    synced, end = span.first, span.first
    for frame in walk_headers(file, span.first, span.end):
        end = frame.end
        if frame.synced > synced:
            synced = frame.synced
            unsynced = [earlier for earlier in unsynced if earlier.position >= synced]
        unsynced.append(frame)
    for frame in unsynced:
        payload = file.pread(Position(frame.position + frame.header_bytes), frame.payload_bytes)
        if not frame.payload_intact(payload):
            return frame.position
    return end


def _refuse_later_damage(file: OpenFile, damaged: Position, end: Position) -> None:
    """Raise `CorruptLog` if an intact frame after the damage records the damaged place as synced."""
    raw = file.pread(damaged, end - damaged)
    data = memoryview(raw)
    found = raw.find(FRAME_MAGIC)
    while found >= 0:
        offset = found - FRAME_MAGIC_OFFSET
        if offset >= 0 and offset % ALIGNMENT_BYTES == 0:
            frame = parse_frame(data, offset, Position(damaged + offset))
            if frame is not None and frame.synced > damaged:
                raise file.corrupt(damaged, f"damage before the intact frame at {frame.position}")
        found = raw.find(FRAME_MAGIC, found + 1)
