"""The limit that a collection sets to the memory of its own load: larger loads do not begin."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import CID, DEFAULT, OTHER, collection, manifest, recovery, settle
from query_bench import Bench

from elanus.core.errors import InsufficientMemory
from elanus.core.rate_limits import LOAD_MEMORY
from elanus.core.segments import SegmentManifest

MB = 1024 * 1024


def of_size(segment: SegmentManifest, size_mb: int) -> SegmentManifest:
    logs = tuple(replace(log, rows=1, size_bytes=size_mb * MB) for log in segment.insert_logs)
    return replace(segment, insert_logs=logs)


def bench(limit: str) -> Bench:
    """Two partitions with a segment of 30 MB each."""
    limited = replace(collection(partitions=(DEFAULT, OTHER)), properties={LOAD_MEMORY: limit})
    made = Bench(limited)
    segments = (manifest(1, partition_id=DEFAULT), manifest(2, partition_id=OTHER))
    made.set_data(recovery(limited, *(of_size(segment, 30) for segment in segments)))
    return made


async def test_a_load_above_the_limit_is_refused_and_leaves_nothing() -> None:
    one = bench("50")
    await one.start()
    with pytest.raises(
        InsufficientMemory, match=rf"needs 60.0 MB in 2 segments, and its property {LOAD_MEMORY} allows"
    ):
        await one.coord.load(CID, (), 1)
    assert await one.coord.loads() == ()
    assert one.node.calls.of("load_collection") == []
    await one.coord.stop()


async def test_partitions_within_the_limit_are_loaded_and_no_more_of_them() -> None:
    one = bench("50")
    await one.start()
    await one.coord.load(CID, (DEFAULT,), 1)
    await settle()
    assert one.node.served() == {1}
    with pytest.raises(InsufficientMemory):
        await one.coord.load(CID, (DEFAULT, OTHER), 1)
    assert one.node.served() == {1}
    await one.coord.stop()


@pytest.mark.parametrize("limit", ["60.1", "-1", ""])
async def test_a_larger_limit_or_none_admits_the_load(limit: str) -> None:
    one = bench(limit)
    await one.start()
    await one.coord.load(CID, (), 1)
    await settle()
    assert one.node.served() == {1, 2}
    await one.coord.stop()
