"""A pchannel read in packs: at tick boundaries, in time order (the rules: `elanus.core.packs`).

`TickReader` follows a log indefinitely; `read_packs` reads a finished range again, in any process. Both
return log entries, not messages: decoding (`elanus.log.codec`) is left to consumers that need the rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from elanus.core.catalog import Checkpoint
from elanus.core.packs import Pack, PackAssembler
from elanus.log.port import LogEntry, LogReader, Position, RangeReader
from elanus.log.reading import READ_BYTES_MAX

EntryPack = Pack[LogEntry]


class TickReader:
    """Packs of one vchannel, of several, or of the whole pchannel. Not for concurrent use.

    ``reader`` must have been opened at ``start.position``; the tick reader owns it from then on. The
    entries between two ticks are held in memory: headers only if the reader was opened with
    ``headers_only``.
    """

    def __init__(self, reader: LogReader, start: Checkpoint, vchannels: Iterable[str] | None = None) -> None:
        self._reader = reader
        self._assembler: PackAssembler[LogEntry] = PackAssembler(start, vchannels)
        self._ready: deque[EntryPack] = deque()

    async def next_pack(self) -> EntryPack:
        """The next pack; waits for its tick. Raises what `LogReader.read` raises."""
        while not self._ready:
            await self._read(READ_BYTES_MAX)
        return self._ready.popleft()

    async def next_packs(self, bytes_max: int = READ_BYTES_MAX) -> Sequence[EntryPack]:
        """All packs that the next read completes, at least one. For consumers that are catching up."""
        while not self._ready:
            await self._read(bytes_max)
        packs = tuple(self._ready)
        self._ready.clear()
        return packs

    @property
    def late_messages(self) -> int:
        """The number of messages ignored because they came after their tick."""
        return self._assembler.late_messages

    @property
    def late_rows(self) -> int:
        return self._assembler.late_rows

    def close(self) -> None:
        self._reader.close()

    async def _read(self, bytes_max: int) -> None:
        self._ready.extend(_packs(self._assembler, await self._reader.read(bytes_max)))


def read_packs(
    read_range: RangeReader,
    pchannel: str,
    start: Checkpoint,
    stop: Position,
    vchannels: Iterable[str] | None = None,
) -> Iterator[EntryPack]:
    """The packs from a checkpoint up to a position: a pipeline range, read again as it was followed.

    If ``stop`` is the ``next_position`` of a pack, that pack is the last. Raises what the range reader
    raises.
    """
    assembler: PackAssembler[LogEntry] = PackAssembler(start, vchannels)
    return _packs(assembler, read_range(pchannel, Position(start.position), stop))


def _packs(assembler: PackAssembler[LogEntry], entries: Iterable[LogEntry]) -> Iterator[EntryPack]:
    for entry in entries:
        pack = assembler.feed(entry.header, entry.position, entry.next, entry)
        if pack is not None:
            yield pack
