"""A finished range of a pchannel read in packs: at tick boundaries, in time order (`elanus.core.packs`).

Returns log entries, not messages: decoding (`elanus.log.codec`) is left to consumers that need the rows. To
follow a pchannel, use `elanus.log.dispatcher`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elanus.core.catalog import Checkpoint
from elanus.core.packs import Pack, PackAssembler
from elanus.log.port import LogEntry, Position, RangeReader

EntryPack = Pack[LogEntry]


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
    for entry in read_range(pchannel, Position(start.position), stop):
        pack = assembler.feed(entry.header, entry.position, entry.next, entry)
        if pack is not None:
            yield pack
