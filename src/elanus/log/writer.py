"""Writes one pchannel's files. Used only by the writer thread.

Four marks move along the stream: ``synced`` ≤ ``visible`` ≤ ``written`` ≤ ``highest``. Entries between
*visible* and *written* have been written but must not be seen yet: durable entries before their fsync.
*Highest* is the highest position ever written, including failed writes; a new file begins there or above.

After a failed write or fsync the file is cut back to its visible part and never appended to again: the
next write begins a new file; one that is left empty is removed. After a failed fsync the system may have
dropped pages it could not write, so entries that were visible but not yet synced (ticks) are written again
before the cut is made durable. While the disk refuses even that, every further append fails as well; only if
the machine stops in exactly this state can an entry whose append had failed reappear.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import structlog

from elanus.log.disk import Disk
from elanus.log.frames import FILE_HEADER_BYTES, Part, aligned, pack_file_header, pack_frame
from elanus.log.layout import FileSpan, end_of, file_path, list_files, open_end, write_end
from elanus.log.port import START, NewEntry, Position
from elanus.log.recovery import recover_tail

_logger = structlog.get_logger(__name__)

RESTART_GAP_BYTES = 1 << 20
"""The least that is skipped when a log is reopened. Entries that were visible without being durable may be
lost in a crash of the machine; they span less than this (`UNSYNCED_MAX_BYTES`): no position is reused."""
UNSYNCED_MAX_BYTES = RESTART_GAP_BYTES // 2
TRIM_CLOSES_BYTES = 64 * 1024
"""A file is closed before it is full when this much at its beginning may be removed."""


class PchannelWriter:
    """Opening recovers the files of an earlier process. Raises `CorruptLog`, `UnknownLogFormat`."""

    def __init__(self, disk: Disk, directory: Path, file_bytes_max: int) -> None:
        self._disk = disk
        self._directory = directory
        self._file_bytes_max = file_bytes_max
        spans = list_files(directory)
        self._finished: list[FileSpan] = list(spans)
        self._active: _ActiveFile | None = None
        self._damaged = False
        highest = spans[-1].end if spans else START
        if spans:
            self._finished[-1:] = self._recover(spans[-1])
        self.visible = self.written = self.synced = end_of(self._finished)
        gap_bytes = RESTART_GAP_BYTES if spans else 0
        self._highest = Position(max(aligned(highest) + gap_bytes, aligned(_clock())))
        self._end_fd: int | None = None
        if spans:
            self.announce_end()

    def _recover(self, last: FileSpan) -> Sequence[FileSpan]:
        tail = recover_tail(self._disk, last)
        if tail.cut_bytes:
            _logger.warning(
                "torn tail of the log cut off",
                file=str(last.path),
                position=tail.span.end if tail.span else last.base,
                cut_bytes=tail.cut_bytes,
            )
        return [tail.span] if tail.span else []

    def spans(self) -> Sequence[FileSpan]:
        """Return the files for readers, the active one up to ``visible``."""
        if self._active is None:
            return tuple(self._finished)
        self._active.is_shown = True
        return (*self._finished, FileSpan(self._active.path, self._active.base, self.visible))

    def write(self, batches: Sequence[Sequence[NewEntry]]) -> list[list[Position] | ValueError]:
        """Append the batches after what is written. They are not visible yet.

        Returns, per batch, its entries' positions, or the error of a batch that cannot be framed and was
        skipped. Raises `OSError`; then the caller must `retract`.
        """
        if not any(batches):
            if self._damaged:
                self._repair()
            return [[] for _ in batches]
        active = self._ready()
        outcomes: list[list[Position] | ValueError] = []
        parts: list[Part] = []
        end = self.written
        for entries in batches:
            try:
                positions, frames, end = self._frame(entries, end)
            except ValueError as error:
                outcomes.append(error)
            else:
                outcomes.append(positions)
                parts += frames
        self._highest = max(self._highest, end)
        self._disk.write(active.fd, parts, self.written - active.base)
        self.written = end
        return outcomes

    def _frame(
        self, entries: Sequence[NewEntry], position: Position
    ) -> tuple[list[Position], list[Part], Position]:
        positions: list[Position] = []
        parts: list[Part] = []
        for entry in entries:
            positions.append(position)
            frame, position = pack_frame(entry, position, self.synced)
            parts += frame
        return positions, parts, position

    def sync(self) -> None:
        """Bring everything written to stable storage. Raises `OSError`; then the caller must `retract`."""
        if self.synced == self.written:
            return
        assert self._active is not None
        self._disk.sync(self._active.fd)
        self.synced = self.written

    def show(self) -> None:
        """Make everything written visible."""
        self.visible = self.written

    @property
    def unsynced_bytes(self) -> int:
        return self.written - self.synced

    def retract(self) -> None:
        """After a failure, remove everything beyond ``visible``, and finish the file."""
        self._damaged = True
        self.written = self.visible
        try:
            self._repair()
        except OSError as error:
            _logger.error(
                "log not repaired",
                directory=str(self._directory),
                error=str(error),
            )

    def finish(self) -> None:
        """Make everything durable and leave an empty file at the end, so that reopening need check nothing.

        Raises `OSError` when something may not be durable.
        """
        if self._damaged:
            self._repair()
        if self._active is not None:
            self.sync()
            self._finish_active(self._active)
        if self._end_fd is not None:
            os.close(self._end_fd)
            self._end_fd = None

    def _finish_active(self, active: _ActiveFile) -> None:
        try:
            if self.visible > active.base + FILE_HEADER_BYTES:
                active = self._roll()
        except OSError as error:
            _logger.warning("log file not finished", file=str(active.path), error=str(error))
        self._close_active()

    def trim(self, before: Position) -> None:
        """Remove the files whose successor begins at or before the position, oldest first.

        The file being written is closed for this when much of it may be removed: a quiet pchannel would
        never fill a file, and would keep its entries forever.
        """
        if self._may_close(before):
            try:
                self.sync()
                self._roll()
            except OSError:
                self.retract()
                raise
        while len(spans := self.spans()) > 1 and spans[1].base <= before:
            self._disk.unlink(spans[0].path)
            del self._finished[0]

    def _may_close(self, before: Position) -> bool:
        if self._active is None or self._damaged:
            return False
        return min(before, self.visible) - self._active.base >= TRIM_CLOSES_BYTES

    def announce_end(self) -> None:
        """Announce the end to readers in other processes. If it fails they lag until the next time."""
        try:
            if self._end_fd is None:
                self._end_fd = open_end(self._directory)
            write_end(self._end_fd, self.visible)
        except OSError as error:
            _logger.warning("end of the log not announced", directory=str(self._directory), error=str(error))

    def _ready(self) -> _ActiveFile:
        """Return the file to write to: repaired after a failure, a new one when there is none or it is
        full."""
        if self._damaged:
            self._repair()
        active = self._active
        if active is None or self.written - active.base >= self._file_bytes_max:
            self.sync()
            active = self._roll()
        return active

    def _repair(self) -> None:
        active = self._active
        if active is not None:
            self._disk.truncate(active.fd, self.visible - active.base)
            if self.synced < self.visible:
                offset = self.synced - active.base
                lost = os.pread(active.fd, self.visible - self.synced, offset)
                self._disk.write(active.fd, [lost], offset)
            self._disk.sync(active.fd)
            self.synced = self.visible
            if self.visible > active.base + FILE_HEADER_BYTES or active.is_shown:
                self._close_active()
            else:
                self._discard(active)
        self._damaged = False

    def _discard(self, active: _ActiveFile) -> None:
        """Remove a file without entries that no reader knows: with one for each failed append, an almost full
        disk would get fuller."""
        self._disk.unlink(active.path)
        os.close(active.fd)
        self._active = None
        self.written = self.visible = self.synced = end_of(self._finished)

    def _roll(self) -> _ActiveFile:
        """Begin a new file. Everything written so far is durable."""
        base = Position(aligned(max(self._highest, self.written)))
        path = file_path(self._directory, base)
        if not self._directory.exists():
            self._directory.mkdir()
            self._disk.sync_directory(self._directory.parent)
        fd = self._disk.create(path)
        try:
            self._disk.write(fd, [pack_file_header(base, self._last_end())], 0)
            self._disk.sync(fd)
            self._disk.sync_directory(self._directory)
        except OSError:
            os.close(fd)
            self._disk.unlink(path)
            raise
        if self._active is not None:
            self._close_active()
        self._active = _ActiveFile(fd, path, base)
        start = Position(base + FILE_HEADER_BYTES)
        self.written = self.visible = self.synced = self._highest = start
        return self._active

    def _last_end(self) -> Position:
        """Return the end of the last file; `START` if there is no file."""
        if self._active is not None:
            return self.visible
        return self._finished[-1].end if self._finished else START

    def _close_active(self) -> None:
        assert self._active is not None
        self._finished.append(FileSpan(self._active.path, self._active.base, self.visible))
        os.close(self._active.fd)
        self._active = None


def _clock() -> int:
    """Return a position beyond all that were given before. A log whose files were lost, or replaced by an
    older copy, goes on there, so that nobody who knew the log takes other entries for those that are missing.
    It grows by 62 MB a second, which no log does for long."""
    return time.time_ns() >> 4


class _ActiveFile:
    """The file being written. ``is_shown``: whether readers may know of it."""

    def __init__(self, fd: int, path: Path, base: Position) -> None:
        self.fd = fd
        self.path = path
        self.base = base
        self.is_shown = False
