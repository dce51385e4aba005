"""Reading frames from files, strictly: every frame in the span is intact, or `CorruptLog` is raised.

All readers share this module: readers in the writer's process, followers in other processes and Spark tasks
that read a finished range. They differ only in how they get the list of files and their ends (`FileSpan`);
up to the end a damaged frame is never "not yet written".

A batch of entries is read in one piece, and the payloads are views of that piece. Keeping a payload keeps
the whole piece in memory.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from elanus.log.frames import (
    FILE_HEADER_BYTES,
    FRAME_HEADER_MAX_BYTES,
    Frame,
    begins_log,
    file_header_intact,
    parse_frame,
    previous_end_in,
)
from elanus.log.layout import FileSpan, end_of, list_files, missing_from, pchannel_directory
from elanus.log.port import (
    START,
    CorruptLog,
    LogEntry,
    LogUnreadable,
    Position,
    RewoundLog,
    TrimmedLog,
    rewound_text,
)

READ_BYTES_MAX = 32 * 1024 * 1024
INLINE_READ_BYTES_MAX = 128 * 1024
"""Larger reads run in a thread, so that a reader that is catching up does not block its event loop."""
_HEADERS_WINDOW_BYTES = 8 * 1024
_HEADERS_PER_READ_MAX = 4096
_SCAN_BYTES = 1024 * 1024


@contextlib.contextmanager
def read_errors(what: Path | str) -> Iterator[None]:
    """Turn the operating system's errors into `LogUnreadable`."""
    try:
        yield
    except OSError as error:
        raise LogUnreadable(f"{what} cannot be read: {error}") from error


class OpenFile:
    """A log file opened for reading.

    Closed when the last user releases it: a read that was abandoned may still be running in a thread.
    """

    def __init__(self, span: FileSpan) -> None:
        self.path = span.path
        self.base = span.base
        self._fd = os.open(span.path, os.O_RDONLY | os.O_CLOEXEC)
        header = self.pread(span.base, FILE_HEADER_BYTES)
        if not file_header_intact(header, span.base):
            raise CorruptLog(f"{span.path} has a damaged file header")
        self.begins_log = begins_log(header)
        self.previous_end = previous_end_in(header)
        """Where the file before ended when this one was begun; None if that is not known."""

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def pread(self, position: Position, size_bytes: int) -> bytes:
        return os.pread(self._fd, size_bytes, position - self.base)

    def corrupt(self, position: Position, why: str) -> CorruptLog:
        return CorruptLog(f"{self.path}: {why} at position {position} (byte {position - self.base})")


class Cursor:
    """A position in a pchannel that moves along its files. Synchronous; not for concurrent use."""

    def __init__(self, position: Position, *, headers_only: bool = False) -> None:
        self.position = position
        self._headers_only = headers_only
        self._file: OpenFile | None = None
        self._at_boundary = False

    def read(self, spans: Sequence[FileSpan], stop: Position, bytes_max: int) -> list[LogEntry]:
        """Entries from here on with a position below ``stop``; at least one if there is any.

        ``spans`` are the pchannel's files in order. If nothing is left in them, the result is an empty list,
        and the cursor is at the last file's end (or at its earlier position, if that is later). Raises
        `CorruptLog`, `TrimmedLog`, `RewoundLog` and `LogUnreadable`.
        """
        with read_errors(spans[-1].path.parent if spans else "the log"):
            return self._read(spans, stop, bytes_max)

    def _read(self, spans: Sequence[FileSpan], stop: Position, bytes_max: int) -> list[LogEntry]:
        while True:
            index = self._locate(spans)
            if index is None:
                return []
            span = spans[index]
            if self.position < min(span.end, stop):
                entries = self._read_file(span, stop, bytes_max)
                if entries:
                    self.position = entries[-1].next
                    return entries
            if self.position >= stop or index + 1 == len(spans):
                return []
            if self.position > span.end:  # no entry was ever between two files
                end = end_of(spans[: index + 1])
                raise RewoundLog(rewound_text(span.path.parent.name, self.position, end))
            self._check_complete(span, spans[index + 1])
            self.position = spans[index + 1].base
            self._at_boundary = True

    def _check_complete(self, span: FileSpan, following: FileSpan) -> None:
        """Raise `CorruptLog` if the end of a file is missing, or a file after it."""
        end = self._open(following).previous_end
        if end is not None and span.end < end:
            raise CorruptLog(
                f"{span.path} ends at position {span.end}, but {following.path.name} follows position {end}: "
                "what is between them is missing"
            )

    def _locate(self, spans: Sequence[FileSpan]) -> int | None:
        """Return the index of the file that contains the position, or of the last file before it."""
        if not spans:
            return None
        index = bisect_right(spans, self.position, key=lambda span: span.base) - 1
        if index < 0 and self.position == START and self._open(spans[0]).begins_log:
            index = 0
        if index < 0:
            raise TrimmedLog(
                f"{spans[0].path.parent.name}: position {self.position} is trimmed; the log begins at "
                f"{spans[0].base}"
            )
        self.position = max(self.position, min(spans[index].first, spans[index].end))
        return index

    def _read_file(self, span: FileSpan, stop: Position, bytes_max: int) -> list[LogEntry]:
        file = self._open(span)
        if not self._at_boundary:
            self.position = _next_boundary(file, self.position, span)
            self._at_boundary = True
            if self.position >= min(span.end, stop):
                return []
        if self._headers_only:
            return _read_headers(file, self.position, span.end, stop)
        return _read_frames(file, self.position, span.end, stop, bytes_max)

    def _open(self, span: FileSpan) -> OpenFile:
        if self._file is None or self._file.base != span.base:
            try:
                self._file = OpenFile(span)
            except FileNotFoundError:
                raise TrimmedLog(
                    f"{span.path.parent.name}: position {self.position} was trimmed while it was being read"
                ) from None
        return self._file


def read_range(directory: Path, pchannel: str, start: Position, stop: Position) -> Iterator[LogEntry]:
    """Entries with start ≤ position < stop, in any process: an `elanus.log.port.RangeReader` when bound.

    Raises `CorruptLog` for a damaged frame and for a log that ends before ``stop``, `TrimmedLog` when
    ``start`` is no longer kept, `RewoundLog` when the log ends before it.
    """
    pchannel_dir = pchannel_directory(directory, pchannel)
    with read_errors(pchannel_dir):
        spans = list_files(pchannel_dir)
    missing = missing_from(spans, start)
    if missing is not None and start < stop:
        raise RewoundLog(rewound_text(pchannel, start, missing))
    cursor = Cursor(start)
    while cursor.position < stop:
        entries = cursor.read(spans, stop, READ_BYTES_MAX)
        if not entries:
            break
        yield from entries
    if stop > start and (not spans or spans[-1].end < stop):
        raise CorruptLog(f"{directory / pchannel} ends before position {stop}, up to which it was to be read")


def walk_headers(file: OpenFile, position: Position, end: Position) -> Iterator[Frame]:
    """Frame headers from a frame boundary on, until one is damaged, incomplete or extends past ``end``."""
    window, at = memoryview(b""), position
    while position < end:
        frame = parse_frame(window, position - at, position)
        if frame is None and at + len(window) - position < FRAME_HEADER_MAX_BYTES:
            window, at = memoryview(file.pread(position, min(_SCAN_BYTES, end - position))), position
            frame = parse_frame(window, 0, position)
        if frame is None or frame.end > end:
            return
        yield frame
        position = frame.end


def _next_boundary(file: OpenFile, position: Position, span: FileSpan) -> Position:
    """Return the first frame boundary at or after a position that may be inside a frame."""
    if parse_frame(memoryview(file.pread(position, FRAME_HEADER_MAX_BYTES)), 0, position) is not None:
        return position
    boundary = span.first
    for frame in walk_headers(file, span.first, span.end):
        if boundary >= position:
            break
        boundary = frame.end
    if boundary < position:
        raise file.corrupt(boundary, "damaged frame")
    return boundary


def _read_frames(
    file: OpenFile, position: Position, end: Position, stop: Position, bytes_max: int
) -> list[LogEntry]:
    room = max(min(bytes_max, stop - position), FRAME_HEADER_MAX_BYTES)
    data = memoryview(file.pread(position, min(room, end - position)))
    first = parse_frame(data, 0, position)
    if first is None or first.end > end:
        raise file.corrupt(position, "damaged frame")
    if first.end > position + len(data):
        data = memoryview(file.pread(position, first.end - position))
    entries: list[LogEntry] = []
    frame: Frame | None = first
    at, data_end = position, position + len(data)
    while frame is not None and frame.end <= data_end:
        payload_at = frame.position - at + frame.header_bytes
        payload = data[payload_at : payload_at + frame.payload_bytes]
        if not frame.payload_intact(payload):
            raise file.corrupt(frame.position, "damaged payload")
        entries.append(_entry(frame, payload))
        position = frame.end
        if position >= min(data_end, stop):
            break
        frame = parse_frame(data, position - at, position)
        if frame is None and data_end - position >= min(FRAME_HEADER_MAX_BYTES, end - position):
            raise file.corrupt(position, "damaged frame")
    return entries


def _read_headers(file: OpenFile, position: Position, end: Position, stop: Position) -> list[LogEntry]:
    entries: list[LogEntry] = []
    window, at = memoryview(b""), position
    while position < min(end, stop) and len(entries) < _HEADERS_PER_READ_MAX:
        frame = parse_frame(window, position - at, position) if position < at + len(window) else None
        if frame is None:
            window, at = (
                memoryview(file.pread(position, min(_HEADERS_WINDOW_BYTES, end - position))),
                position,
            )
            frame = parse_frame(window, 0, position)
        if frame is None or frame.end > end:
            raise file.corrupt(position, "damaged frame")
        entries.append(_entry(frame, None))
        position = frame.end
    return entries


def _entry(frame: Frame, payload: memoryview | None) -> LogEntry:
    return LogEntry(frame.position, frame.end, frame.header, payload, frame.payload_bytes)
