"""The file layout of the embedded log.

::

    <log directory>/
      LOCK                          held by the one writer process
      <pchannel>/
        00112242789032616208.log    named by its base position, 20 digits
        00112242789099725104.log
        END                         the end of what readers may see

The base of the first file, and of each that is begun by another process than the file before, is a reading of
the clock: positions are not used again when a log is lost, or replaced by an older copy. The last file is the
one being written. A file with a successor is finished: complete and on stable
storage. ``END`` is a message to readers in other processes, not a record: the writer resets it whenever it
opens the log, and nothing is recovered from it.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elanus.log.frames import FILE_HEADER_BYTES
from elanus.log.port import START, Position

_PCHANNEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_FILE_NAME = re.compile(r"(\d{20})\.log")
_LOCK_NAME = "LOCK"
_END_NAME = "END"
_END_BYTES = 16
_END_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class FileSpan:
    """One file of a pchannel: the positions [base, end) that may be read from it."""

    path: Path
    base: Position
    end: Position

    @property
    def first(self) -> Position:
        """The position of its first frame."""
        return Position(self.base + FILE_HEADER_BYTES)


def end_of(spans: Sequence[FileSpan]) -> Position:
    """Return the position after the last entry in these files; the last file's beginning if it has no
    entries."""
    for span in reversed(spans):
        if span.end > span.first:
            return span.end
    return spans[-1].end if spans else START


def missing_from(spans: Sequence[FileSpan], position: Position) -> Position | None:
    """Return where the log ended before it came to this position, None if it has given it: no entry was ever
    beyond the last file, or between two of them."""
    index = bisect_right(spans, position, key=lambda span: span.base) - 1
    if index < 0 or position <= spans[index].end:
        return None
    return end_of(spans[: index + 1])


def lock_path(directory: Path) -> Path:
    return directory / _LOCK_NAME


def pchannel_directory(directory: Path, pchannel: str) -> Path:
    """Return the directory of a pchannel. Raises `ValueError` for a name that is not valid for a
    directory."""
    if _PCHANNEL.fullmatch(pchannel) is None:
        raise ValueError(
            f"{pchannel!r} cannot name a pchannel: letters, digits, '_', '-' and '.', at most 200 characters"
        )
    return directory / pchannel


def pchannel_names(directory: Path) -> list[str]:
    return sorted(d.name for d in directory.iterdir() if d.is_dir() and _PCHANNEL.fullmatch(d.name))


def file_path(pchannel_dir: Path, base: Position) -> Path:
    return pchannel_dir / f"{base:020d}.log"


def list_files(pchannel_dir: Path) -> Sequence[FileSpan]:
    """Return the pchannel's files, in order of their positions; each span ends where the file does.

    A pchannel without a directory has no files. A file that disappears meanwhile was trimmed.
    """
    spans = []
    try:
        with os.scandir(pchannel_dir) as listing:
            for item in listing:
                name = _FILE_NAME.fullmatch(item.name)
                if name is None:
                    continue
                try:
                    size_bytes = item.stat().st_size
                except FileNotFoundError:
                    continue
                base = Position(int(name[1]))
                spans.append(FileSpan(Path(item.path), base, Position(base + size_bytes)))
    except FileNotFoundError:
        return ()
    return sorted(spans, key=lambda span: span.base)


def open_end(pchannel_dir: Path) -> int:
    """Open ``END`` for writing, creating it."""
    return os.open(pchannel_dir / _END_NAME, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)


def write_end(fd: int, end: Position) -> None:
    """Write the position and its complement, so that a reader notices if it read during a write."""
    os.pwrite(fd, end.to_bytes(8, "little") + (end ^ _END_MASK).to_bytes(8, "little"), 0)


class AnnouncedEnd:
    """The content of a pchannel's ``END``, for readers that ask often: the file is opened once."""

    def __init__(self, pchannel_dir: Path) -> None:
        self._path = pchannel_dir / _END_NAME
        self._fd = -1

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def read(self) -> Position:
        """Return the announced end; `START` when there is none yet, or when it is read during a write."""
        if self._fd < 0:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return START
        data = os.pread(self._fd, _END_BYTES, 0)
        end, complement = int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")
        return Position(end) if end ^ _END_MASK == complement else START
