"""Partitions that stay loaded while others are released."""

from __future__ import annotations

from fakes import CID, DEFAULT, OTHER, collection, manifest, recovery, settle
from query_bench import Bench

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
