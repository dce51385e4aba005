"""The log's adapters side by side: files and NATS JetStream, both with every append on stable storage.

``python -m benchmarks.logs [DIRECTORY]`` prints one line per adapter. Entries are 64 KB, as those of a
busy proxy; the server, the writer and the reader share the machine.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.devcluster.nats import Nats
from elanus.log.files import FileLog
from elanus.log.jetstream.log import NatsLog
from elanus.log.port import START, EntryHeader, Log, LogReader, NewEntry
from elanus.nats.source import NatsSource

ENTRY_BYTES = 64 * 1024
ALONE = 300
TOGETHER = 2000
WRITERS = 32
TICKS = 5000
_MB = 1_000_000


def entry(number: int, size_bytes: int) -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.INSERT, Timestamp(number), "dml_0_1v0", rows=1), [bytes(size_bytes)])


async def measure(name: str, log: Log) -> None:
    delays = await latencies_ms(log)
    writing_s = await write(log, TOGETHER, ENTRY_BYTES)
    ticking_s = await write(log, TICKS, 0)
    count = ALONE + TOGETHER + TICKS
    reading_s = await read(log.open_reader("dml_0", START), count)
    headers_s = await read(log.open_reader("dml_0", START, headers_only=True), count)
    append_ms, seen_ms = (statistics.median(measured) for measured in delays)
    written_mb, read_mb = (n * ENTRY_BYTES / _MB for n in (TOGETHER, ALONE + TOGETHER))
    print(
        f"{name:<10} append p50 {append_ms:.2f} ms, seen by a reader {seen_ms:.2f} ms; "
        f"{WRITERS} writers {written_mb / writing_s:.0f} MB/s, {TICKS / ticking_s:,.0f} small/s; "
        f"read {read_mb / reading_s:.0f} MB/s, headers {count / headers_s:,.0f}/s"
    )


async def latencies_ms(log: Log) -> tuple[list[float], list[float]]:
    """From the append to its answer, and to its arrival at a reader that waits."""
    reader = log.open_reader("dml_0", START)
    appended: list[float] = []
    seen: list[float] = []
    for number in range(ALONE):
        reading = asyncio.ensure_future(reader.read())
        await asyncio.sleep(0)
        began_s = time.perf_counter()
        await log.append("dml_0", [entry(number, ENTRY_BYTES)])
        appended.append((time.perf_counter() - began_s) * 1000)
        await reading
        seen.append((time.perf_counter() - began_s) * 1000)
    reader.close()
    return appended, seen


async def write(log: Log, count: int, size_bytes: int) -> float:
    async def writer(numbers: range) -> None:
        for number in numbers:
            await log.append("dml_0", [entry(number, size_bytes)])

    began_s = time.perf_counter()
    await asyncio.gather(*(writer(range(first, count, WRITERS)) for first in range(WRITERS)))
    return time.perf_counter() - began_s


async def read(reader: LogReader, count: int) -> float:
    began_s = time.perf_counter()
    while count > 0:
        count -= len(await reader.read())
    reader.close()
    return time.perf_counter() - began_s


async def main(directory: Path) -> None:
    files = FileLog(directory / "files")
    await measure("files", files)
    await files.close()
    server = Nats(directory / "nats")
    server.start()
    try:
        jetstream = await NatsLog.open(NatsSource((server.url,)))
        await measure("jetstream", jetstream)
        await jetstream.close()
    finally:
        server.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch:
        asyncio.run(main(Path(scratch)))
