"""The work of querycoord for one collection is the same with ten loaded collections and with hundreds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from counting import steps_of
from fakes import CID, collection, manifest, recovery, settle
from query_bench import Bench

from elanus.core.ids import CollectionID
from elanus.querycoord.fleet import Pulses

FEW, MANY = 10, 200
Work = Callable[[Bench], Awaitable[object]]


async def with_loaded(count: int) -> Bench:
    made = [collection(collection_id=CollectionID(CID + 10 * n)) for n in range(count)]
    bench = Bench(*made)
    await bench.start()
    for number, one in enumerate(made):
        bench.data.recoveries[one.collection_id] = recovery(one, manifest(1000 + number, of=one))
        await bench.coord.load(one.collection_id, (), 1)
        await settle()
    await asyncio.sleep(61)
    await settle()
    assert all(held.version == 1 for held in bench.node.held.values())
    bench.node.calls.asked.clear()
    return bench


async def a_minute(bench: Bench) -> None:
    """Nothing changes: the nodes are looked at every second, and balanced once."""
    await asyncio.sleep(61)
    assert {name for name, _ in bench.node.calls.asked} == {"pulse"}


async def handoff(bench: Bench) -> None:
    first = bench.collections[0]
    bench.data.recoveries[CID] = recovery(first, manifest(1000, of=first), manifest(99, of=first))
    bench.data.changes.happened(CID)
    await asyncio.sleep(2)
    assert bench.node.served() == {99, 1000}
    assert set(bench.node.calls.of("status")) == {CID}, "of this collection only"


async def loss(bench: Bench) -> None:
    """One collection is lost on the node."""
    del bench.node.held[CollectionID(CID)]
    await asyncio.sleep(2)
    assert bench.node.served() == {1000}


async def progress(bench: Bench) -> None:
    (status,) = await bench.coord.loads(CID)
    assert set(status.percentages.values()) == {100}
    assert set(bench.node.calls.of("status")) == {CID}


@pytest.mark.parametrize("work", [a_minute, handoff, loss, progress])
async def test_the_cost_of_one_is_the_same_among_many(work: Work) -> None:
    costs = []
    for count in (FEW, MANY):
        bench = await with_loaded(count)
        costs.append(await steps_of(lambda bench=bench: work(bench)))  # type: ignore[misc]
        await bench.coord.stop()
    assert costs[1] < 1.2 * costs[0] + 200, costs


async def test_a_node_that_was_restarted_is_noticed_for_each_collection() -> None:
    bench = await with_loaded(FEW)
    bench.node.restart()
    await asyncio.sleep(2)
    assert {c: held.version for c, held in bench.node.held.items()} == {
        c.collection_id: 2 for c in bench.collections
    }
    await bench.coord.stop()


async def test_a_vchannel_that_fails_concerns_its_own_collection_only() -> None:
    bench = await with_loaded(FEW)
    woken: list[int] = []
    for collection_id, loader in bench.coord._loaders.items():
        loader.wake = lambda c=collection_id: woken.append(c)  # type: ignore[method-assign,misc]
    asked: list[int] = []
    for collection_id, loader in bench.coord._loaders.items():
        is_served = loader.is_served

        def noted(statuses: Pulses, c: int = collection_id, of: Callable[[Pulses], bool] = is_served) -> bool:
            asked.append(c)
            return of(statuses)

        loader.is_served = noted  # type: ignore[method-assign]
    bench.node.failures[bench.collections[3].vchannels[0]] = "cannot be read"
    await asyncio.sleep(1.5)
    assert woken == [bench.collections[3].collection_id]
    assert set(asked) == set(woken)
    await bench.coord.stop()
