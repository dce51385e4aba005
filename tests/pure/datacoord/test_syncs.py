"""Rows that only the log has are written to binlogs when a flush or a compaction is requested, once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from data_bench import COMPACTION, Bench
from fakes import CID, binlog, settle

from elanus.core.errors import CollectionNotFound
from elanus.core.ids import CollectionID

DELETES_BYTES = 500


async def test_a_flush_that_finds_only_deletes_moves_the_checkpoint_past_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    await bench.report(size_bytes=DELETES_BYTES)
    assert bench.node.calls.of("sync") == [], "nobody asked"
    outcome = await coord.flush(CID)
    assert bench.node.calls.of("sync") == []
    await bench.report(size_bytes=DELETES_BYTES)
    assert bench.node.calls.of("sync") == [(bench.vchannel, ())]
    assert bench.node.reasons[-1].cause == "flush call"
    await bench.report(size_bytes=DELETES_BYTES)
    assert len(bench.node.calls.of("sync")) == 1, "it has been ordered"
    await bench.commit(delta=binlog("delta_log/1", 3))
    assert (await bench.recovery()).ts >= outcome.flush_ts
    await bench.report(size_bytes=DELETES_BYTES)
    assert len(bench.node.calls.of("sync")) == 1, "later deletes wait for a flush of their own"
    await coord.stop()


async def test_a_tick_below_the_flush_orders_nothing(tmp_path: Path) -> None:
    """A delete may still stand between that tick and the flush."""
    bench = Bench(tmp_path)
    coord = await bench.watched()
    early = bench.root.stamp()
    await coord.flush(CID)
    await bench.report(size_bytes=DELETES_BYTES, ts=early)
    assert bench.node.calls.of("sync") == []
    await bench.report(size_bytes=DELETES_BYTES)
    assert len(bench.node.calls.of("sync")) == 1
    await coord.stop()


async def test_a_flush_with_nothing_in_the_log_orders_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    await coord.flush(CID)
    await bench.report()
    await bench.report(size_bytes=DELETES_BYTES)
    assert bench.node.calls.of("sync") == [], "what came after the flush is no matter of it"
    await coord.stop()


async def test_many_flushes_are_one_order_and_a_later_one_another(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    for _ in range(100):
        await coord.flush(CID)
    await bench.report(size_bytes=DELETES_BYTES)
    assert len(bench.node.calls.of("sync")) == 1
    await coord.flush(CID)
    await bench.report(size_bytes=DELETES_BYTES)
    assert len(bench.node.calls.of("sync")) == 2, "the first covers what had been seen when it was given"
    await coord.stop()


async def test_rows_and_deletes_are_one_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(100)
    flush_ts = (await coord.flush(CID)).flush_ts
    await bench.report({segment: 100}, size_bytes=DELETES_BYTES, ts=flush_ts)
    assert bench.node.calls.of("sync") == [], "the range that completes the segment comes right behind"
    await bench.report({segment: 100}, size_bytes=DELETES_BYTES)
    assert bench.node.calls.of("flush_segments") == [(bench.vchannel, (segment,))]
    assert bench.node.calls.of("sync") == []
    await coord.stop()


async def test_another_data_node_gets_the_order_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    await coord.flush(CID)
    await bench.report(size_bytes=DELETES_BYTES)
    await bench.register()
    await bench.report(size_bytes=DELETES_BYTES)
    assert bench.node.calls.of("sync") == [(bench.vchannel, ())]
    await coord.stop()


async def test_a_restart_forgets_deletes_but_no_flush_that_is_waited_for(tmp_path: Path) -> None:
    """A seal is recorded, and its client is notified when the segment is flushed. Nobody waits for
    deletes alone: they stay in the log until the next flush, or until the data node finds them old."""
    bench = Bench(tmp_path)
    coord = await bench.watched()
    segment = await bench.write(100)
    flush_ts = (await coord.flush(CID)).flush_ts
    coord = await bench.restart()
    assert not await coord.flush_finished(CID, (segment,), flush_ts)
    await bench.register()
    await bench.report({segment: 100}, size_bytes=DELETES_BYTES)
    assert bench.node.calls.of("flush_segments") == [(bench.vchannel, (segment,))]
    assert not await coord.flush_finished(CID, (segment,), flush_ts)
    await bench.commit({segment: 100}, [segment])
    assert await coord.flush_finished(CID, (segment,), flush_ts)

    flush_ts = (await coord.flush(CID)).flush_ts
    coord = await bench.restart()
    assert await coord.flush_finished(CID, (), flush_ts), "as without the restart: all segments are flushed"
    await bench.register()
    await bench.report(size_bytes=DELETES_BYTES)
    assert bench.node.calls.of("sync") == []
    await coord.flush(CID)
    await bench.report(size_bytes=DELETES_BYTES)
    assert bench.node.calls.of("sync") == [(bench.vchannel, ())]
    await coord.stop()


async def test_a_dropped_collection_is_waited_for_no_longer(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    asked = asyncio.create_task(coord.compact(CID))
    await settle()
    await coord.drop_collection(CID)
    await bench.report(size_bytes=DELETES_BYTES)
    assert bench.node.calls.of("sync") == []
    async with asyncio.timeout(1):
        await asked
    await coord.stop()


# before a compaction


async def test_a_compaction_waits_for_the_deletes_that_it_may_fold_in(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    asked = asyncio.create_task(coord.compact(CID))
    await settle()
    await bench.report(size_bytes=DELETES_BYTES)
    assert bench.node.reasons[-1].cause == "compaction call"
    await asyncio.sleep(1)
    assert not asked.done()
    await bench.commit(delta=binlog("delta_log/1", 3))
    async with asyncio.timeout(1):
        await asked
    await coord.stop()


@pytest.mark.parametrize("silent", [True, False])
async def test_a_compaction_waits_no_longer_than_it_makes_sense(tmp_path: Path, silent: bool) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    began = asyncio.get_running_loop().time()
    asked = asyncio.create_task(coord.compact(CID))
    await settle()
    if not silent:
        await bench.report()
    await asked
    waited_s = asyncio.get_running_loop().time() - began
    assert 9 < waited_s < 11 if silent else waited_s < 1
    await coord.stop()


async def test_what_retention_keeps_from_being_folded_in_is_not_waited_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.compaction = replace(COMPACTION, plan=replace(COMPACTION.plan, retention_s=3600))
    coord = await bench.watched()
    began = asyncio.get_running_loop().time()
    await coord.compact(CID)
    assert asyncio.get_running_loop().time() == began
    with pytest.raises(CollectionNotFound):
        await coord.compact(CollectionID(77))
    await coord.stop()
