"""A finished range of a log in packs: what a reader that followed its pchannel got, read once more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elanus.core.catalog import Checkpoint
from elanus.core.packs import PackAssembler
from elanus.log.port import LogEntry, Position, RangeReader
from elanus.log.shared_reader import EntryPack


def read_packs(
    read_range: RangeReader,
    pchannel: str,
    start: Checkpoint,
    stop: Position,
    vchannels: Iterable[str] | None = None,
) -> Iterator[EntryPack]:
    """Yield the packs from a checkpoint up to a position.

    If ``stop`` is the ``next_position`` of a pack, that pack is the last.
    """
    assembler: PackAssembler[LogEntry] = PackAssembler(start, vchannels)
    for entry in read_range(pchannel, Position(start.position), stop):
        pack = assembler.feed(entry.header, entry.position, entry.next, entry)
        if pack is not None:
            yield pack
