"""The work of datacoord for one collection is the same with ten collections and with a thousand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from counting import steps_of
from data_bench import COMPACTION, Bench
from fakes import CID, collection, settle

from elanus.core.catalog import Collection
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.time_to_live import TTL_PROPERTY
from elanus.datacoord.compaction_facts import CompactionFacts
from elanus.datacoord.vchannel_table import Vchannel

FEW, MANY = 10, 1000
Work = Callable[[Bench], Awaitable[object]]


def collections(count: int) -> list[Collection]:
    """On one pchannel, as most of ten thousand collections are."""
    return [collection(collection_id=CollectionID(CID + 10 * n)) for n in range(count)]


async def with_growing(directory: Path, count: int) -> Bench:
    """Each collection has a growing segment with rows, and has been reported once."""
    bench = Bench(directory, *collections(count))
    await bench.watched()
    for known in bench.collections:
        (vchannel, *_) = known.vchannels
        (default, *_) = known.partitions
        segment_id = await bench.write(
            10, default.partition_id, vchannel=vchannel, collection_id=known.collection_id
        )
        await bench.report({segment_id: 10}, vchannel=vchannel)
    await settle()
    return bench


async def report(bench: Bench) -> None:
    await bench.report({SegmentID(1001): 10})


async def flush(bench: Bench) -> None:
    outcome = await bench.coord.flush(bench.collections[0].collection_id)
    await bench.report(dict.fromkeys(outcome.sealed, 10))
    assert bench.node.calls.of("flush_segments")
    await bench.commit(dict.fromkeys(outcome.sealed, 10), flushed=outcome.sealed)
    assert await bench.coord.flush_finished(CID, outcome.sealed, outcome.flush_ts)


async def create(bench: Bench) -> None:
    """A collection is created, and its data node is ordered to watch its vchannels."""
    new = collection(collection_id=CollectionID(CID + 5))
    bench.root.collections[new.collection_id] = new
    await bench.coord.watch_channels(new)
    await settle()
    assert bench.node.calls.of("watch_channels") == [new.vchannels]


async def drop(bench: Bench) -> None:
    await bench.coord.drop_collection(CID)
    for vchannel in bench.collections[0].vchannels:
        await bench.coord.channel_dropped(bench.epoch, vchannel)
    await settle()


@pytest.mark.parametrize("work", [report, flush, create, drop])
async def test_the_cost_of_one_is_the_same_among_many(tmp_path: Path, work: Work) -> None:
    costs = []
    for count in (FEW, MANY):
        bench = await with_growing(tmp_path / str(count), count)
        costs.append(await steps_of(lambda bench=bench: work(bench)))  # type: ignore[misc]
        await bench.coord.stop()
    assert costs[1] < 1.2 * costs[0] + 200, costs


async def test_notes_about_segments_that_have_ended_are_forgotten_in_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    flushing = bench.coord.role._datanodes._flushing
    noted = []
    for _ in range(100):
        segment_id = await bench.write()
        await bench.report({segment_id: 10})
        outcome = await bench.coord.flush(CID)
        await bench.report(dict.fromkeys(outcome.sealed, 10))
        await bench.commit(dict.fromkeys(outcome.sealed, 10), flushed=outcome.sealed)
        noted.append(len(flushing._causes) + len(flushing._ordered))
    assert len(bench.node.calls.of("flush_segments")) == 100
    assert max(noted) < 100 < sum(noted)
    await bench.coord.stop()


async def test_figures_for_metrics_are_counted_as_things_change(tmp_path: Path) -> None:
    bench = await with_growing(tmp_path, FEW)
    await flush(bench)
    assert await bench.coord.segment_states() == {"growing": FEW - 1, "flushed": 1}
    assert await bench.coord.owned_vchannels() == {9: FEW}
    await drop(bench)
    assert await bench.coord.segment_states() == {"growing": FEW - 1, "dropped": 1}
    assert await bench.coord.owned_vchannels() == {9: FEW - 1}
    bench.data_nodes.leave(NodeID(9))
    await settle()
    await bench.restart()
    assert await bench.coord.owned_vchannels() == {9: FEW - 1}, "nobody else can own them"
    await bench.coord.stop()


async def test_what_cannot_have_become_worth_compacting_is_not_examined_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, *collections(FEW))
    bench.compaction = replace(COMPACTION, automatic=True, interval_s=60)
    await bench.watched()
    gatherer = bench.coord.role._compactor._planner._gatherer
    gather, examined = gatherer.gather, list[str]()

    async def noted(vchannel: Vchannel, *args: object, **options: object) -> CompactionFacts:
        examined.append(vchannel.vchannel)
        return await gather(vchannel, *args, **options)  # type: ignore[arg-type]

    gatherer.gather = noted  # type: ignore[method-assign]
    await asyncio.sleep(600)
    assert sorted(examined) == sorted(v for c in bench.collections for v in c.vchannels), "each of them once"
    examined.clear()
    segment_id = await bench.write(10)
    await bench.coord.flush(CID)
    await bench.report({segment_id: 10})
    await bench.commit({segment_id: 10}, [segment_id])
    await asyncio.sleep(600)
    assert set(examined) == {bench.vchannel}
    assert len(examined) <= 3, "at the flush, and once more"
    first = bench.collections[0]
    bench.root.collections[CID] = replace(first, properties={TTL_PROPERTY: "3600"})
    examined.clear()
    await asyncio.sleep(601)
    assert set(examined) == {bench.vchannel}
    assert len(examined) >= 10, "its rows expire some day"
    await bench.coord.stop()
