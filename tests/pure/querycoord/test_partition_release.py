"""Partitions that stay loaded while others are released, and those that are dropped at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import CID, DEFAULT, OTHER, collection, manifest, recovery, settle
from query_bench import Bench

from elanus.api.recovery import RecoveryInfo
from elanus.core.errors import PartitionNotFound, Unavailable

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


async def loaded_whole() -> Bench:
    bench = Bench(TWO_PARTITIONS)
    bench.set_data(recovery(TWO_PARTITIONS, IN_DEFAULT, IN_OTHER))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await settle()
    return bench


async def failing_release(bench: Bench) -> None:
    """A release that datacoord does not answer."""

    async def away(*_: object) -> RecoveryInfo:
        raise Unavailable("datacoord is away")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.data, "recovery_info", away)
        with pytest.raises(Unavailable):
            await bench.coord.release(CID, (OTHER,))


async def test_a_release_that_is_repeated_is_applied_before_it_returns() -> None:
    bench = await loaded_whole()
    await failing_release(bench)
    assert bench.node.held[CID].partitions == (DEFAULT, OTHER)
    await bench.coord.release(CID, (OTHER,))
    assert bench.node.held[CID].partitions == (DEFAULT,)
    await bench.coord.stop()


async def test_a_successor_applies_a_release_that_is_repeated() -> None:
    bench = await loaded_whole()
    await failing_release(bench)
    await bench.restart()
    await bench.coord.release(CID, (OTHER,))
    assert bench.node.held[CID].partitions == (DEFAULT,)
    await bench.coord.stop()


async def test_a_round_that_began_before_a_release_has_nothing_served_again() -> None:
    bench = await loaded_whole()
    released, asked, recovery_info = asyncio.Event(), asyncio.Event(), bench.data.recovery_info

    async def slow(*args: Any) -> RecoveryInfo:
        found = await recovery_info(*args)
        if not asked.is_set():
            asked.set()
            await released.wait()
        return found

    bench.data.recovery_info = slow  # type: ignore[method-assign]
    bench.data.changes.happened()
    await asked.wait()
    await bench.coord.release(CID, (OTHER,))
    before = len(bench.node.calls.of("load_collection"))
    released.set()
    await asyncio.sleep(1)
    later = bench.node.calls.of("load_collection")[before:]
    assert later
    assert {request.partition_ids for request in later} == {(DEFAULT,)}
    assert bench.node.served() == {1}
    await bench.coord.stop()
