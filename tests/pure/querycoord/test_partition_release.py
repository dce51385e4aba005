"""Partitions that stay loaded while others are released, and those that are dropped at the same time."""

from __future__ import annotations

import pytest
from fakes import CID, DEFAULT, OTHER, collection, manifest, recovery, settle
from query_bench import Bench

from elanus.core.errors import PartitionNotFound

TWO_PARTITIONS = collection(partitions=(DEFAULT, OTHER))
IN_DEFAULT, IN_OTHER = manifest(1, partition_id=DEFAULT), manifest(2, partition_id=OTHER)


async def test_what_stays_loaded_when_a_partition_is_released_is_loaded_throughout() -> None:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovery(TWO_PARTITIONS, IN_DEFAULT, IN_OTHER))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await settle()
    (asked,) = bench.root.calls.of("tick_now")
    bench.node.tick = asked[1]  # no later tick comes
    await bench.coord.release(CID, (OTHER,))
    assert await bench.percentages() == {DEFAULT: 100}
    await settle()
    assert await bench.percentages() == {DEFAULT: 100}
    assert bench.node.served() == {1}
    await bench.coord.stop()


async def test_a_partition_that_was_dropped_is_not_loaded() -> None:
    bench = Bench()
    bench.set_data(recovery(collection(), IN_DEFAULT))
    await bench.start()
    with pytest.raises(PartitionNotFound, match=f"partition={OTHER}"):
        await bench.coord.load(CID, (OTHER,), 1)
    assert await bench.coord.loads() == (), "a load of nothing would never be complete"
    await bench.coord.load(CID, (DEFAULT,), 1)
    with pytest.raises(PartitionNotFound):
        await bench.coord.load(CID, (DEFAULT, OTHER), 1)
    await settle()
    assert await bench.percentages() == {DEFAULT: 100}
    await bench.coord.stop()


async def test_nothing_stays_loaded_when_the_only_loaded_partition_is_dropped_during_its_load() -> None:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovery(TWO_PARTITIONS, IN_DEFAULT, IN_OTHER))
    await bench.start()
    await bench.coord.load(CID, (OTHER,), 1)
    bench.root.collections[CID] = collection(partitions=(DEFAULT,))
    await bench.coord.release(CID, (OTHER,))
    assert await bench.coord.loads() == ()
    assert bench.node.held == {}
    await bench.coord.stop()


async def test_what_else_is_loaded_stays_when_a_partition_is_dropped_during_its_load() -> None:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovery(TWO_PARTITIONS, IN_DEFAULT))
    await bench.start()
    await bench.coord.load(CID, (DEFAULT, OTHER), 1)
    bench.root.collections[CID] = collection(partitions=(DEFAULT,))
    await bench.coord.release(CID, (OTHER,))
    await settle()
    assert await bench.percentages() == {DEFAULT: 100}
    await bench.coord.stop()
