"""A process that appends to an embedded log until it is killed, and prints what was acknowledged.

Started by the crash tests as ``python log_child.py DIRECTORY SEED``. Each line on its standard output is
one acknowledged append: pchannel, number, and the positions of its entries.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.log.files import FileLog, FileLogOptions
from elanus.log.port import EntryHeader, NewEntry
from elanus.server.logs import configure_logging
from elanus.server.settings import LoggingSettings

PCHANNELS = 3
WRITERS = 4
FILE_BYTES_MAX = 256 * 1024


def entry(writer: int, number: int, part: int, size_bytes: int) -> NewEntry:
    header = EntryHeader(MsgKind.INSERT, Timestamp(number), f"w{writer}", rows=part, row_id_start=size_bytes)
    return NewEntry(header, [payload(number, size_bytes)])


def payload(number: int, size_bytes: int) -> bytes:
    return random.Random(number).randbytes(size_bytes)


async def write(log: FileLog, writer: int, seed: int) -> None:
    chance = random.Random(seed * 100 + writer)
    number = seed * 1_000_000
    while True:
        number += 1
        pchannel = f"dml_{chance.randrange(PCHANNELS)}"
        sizes = [chance.choice((0, 10, 700, 9000)) for _ in range(chance.randint(1, 3))]
        durable = chance.random() < 0.8
        entries = [entry(writer, number, part, size) for part, size in enumerate(sizes)]
        positions = await log.append(pchannel, entries, durable=durable)
        line = " ".join(map(str, [pchannel, writer, number, *positions]))
        os.write(sys.stdout.fileno(), f"{line}\n".encode())


async def main() -> None:
    configure_logging(LoggingSettings(), "writer")  # warnings go to stderr
    log = FileLog(Path(sys.argv[1]), FileLogOptions(file_bytes_max=FILE_BYTES_MAX, sync_delay_ms=20))
    await asyncio.gather(*(write(log, writer, int(sys.argv[2])) for writer in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main())
