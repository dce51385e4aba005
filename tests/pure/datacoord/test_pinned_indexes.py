"""Garbage collection and the index files that snapshots pin."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from data_bench import GC_SETTLE_S, Bench
from fakes import DEFAULT

from elanus.api.gc import IndexReferences
from elanus.core.ids import BuildID, SegmentID
from elanus.core.path_digests import PathDigests
from elanus.storage.paths import index_file_path


async def test_an_index_file_that_is_pinned_just_before_it_goes_out_of_use_stays(tmp_path: Path) -> None:
    """The pins are read after the references: one of the two names the file."""
    bench = Bench(tmp_path)
    coord = await bench.watched()
    await asyncio.sleep(GC_SETTLE_S)
    pinned, other = (index_file_path(BuildID(b), 1, DEFAULT, SegmentID(7), "a1-x") for b in (5, 6))
    for path in (pinned, other):
        bench.store.put(path, b"index")
        os.utime(bench.store.local_path(path, tmp_path), (0, 0))
    now_pinned: set[str] = set()

    async def index_references() -> IndexReferences:
        now_pinned.add(pinned)  # a snapshot pinned it at the last moment
        return IndexReferences((), {}, 100)

    async def pinned_files() -> PathDigests:
        return PathDigests.of(now_pinned)

    bench.index.index_references = index_references  # type: ignore[method-assign]
    coord.role._collector._pins.pinned_files = pinned_files
    await coord.collect_garbage(True)
    for _ in range(60):
        await asyncio.sleep(0.5)
        if (await coord.gc_status()).rounds:
            break
    assert [info.path for info in bench.store.list("index_files")] == [pinned]
    await coord.stop()
