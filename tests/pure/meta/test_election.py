"""One coordinator at a time, the next one soon, and nothing from a former one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from session_bench import TTL_S, Bench, now_s

from elanus.core.errors import LeaseLost
from elanus.meta.election import FencedMeta
from elanus.meta.port import Compare, CompareFailed, OutcomeUnknown, Put


async def test_one_is_elected_and_the_next_when_it_leaves() -> None:
    bench = Bench()
    first = await bench.elect()
    standby = [asyncio.ensure_future(bench.elect()) for _ in range(3)]
    await asyncio.sleep(10 * TTL_S)
    assert not any(s.done() for s in standby)
    await first.close()
    done, waiting = await asyncio.wait(standby, timeout=1)
    assert len(done) == 1, "exactly one follows"
    second = done.pop().result()
    assert second.node_id > first.node_id
    assert not second.lost.is_set()
    for s in waiting:
        s.cancel()
    await asyncio.wait(waiting)
    await second.close()


async def test_when_the_active_one_dies_the_next_takes_over_in_time() -> None:
    bench = Bench()
    cable = bench.cable()
    first = await bench.elect(meta=cable)
    standby = asyncio.ensure_future(bench.elect())
    await asyncio.sleep(7)
    cable.pull()
    began_s = now_s()
    second = await standby
    assert now_s() - began_s < TTL_S + 1
    assert not first.is_valid()
    await second.close()
    await first.close()


async def test_standing_by_outlasts_a_store_that_is_away() -> None:
    bench = Bench()
    cable = bench.cable()
    cable.pull()
    standing = asyncio.ensure_future(bench.elect(meta=cable))
    await asyncio.sleep(30)
    assert not standing.done()
    cable.plug()
    session = await asyncio.wait_for(standing, 1)
    await session.close()


async def test_what_the_former_one_writes_is_refused_and_it_learns_of_it() -> None:
    bench = Bench()
    cable = bench.cable()
    first = await bench.elect(meta=cable)
    former = FencedMeta(cable, first)  # type: ignore[arg-type]
    await former.txn([Put("catalog", b"1")])
    cable.pull()
    second = await bench.elect()
    successor = FencedMeta(bench.store, second)
    await successor.txn([Put("catalog", b"2")])
    cable.plug()
    for operations in ([Put("catalog", b"zombie")], []):
        with pytest.raises(LeaseLost, match="no longer the active"):
            await former.txn(operations)
    assert first.lost.is_set()
    found = await former.get("catalog")
    assert found is not None
    assert found.value == b"2"
    await first.close()
    assert await bench.keys() == ["session/rootcoord"], "its end does not touch the successor's place"
    await second.close()


async def test_a_comparison_of_its_own_fails_as_ever() -> None:
    bench = Bench()
    session = await bench.elect()
    fenced = FencedMeta(bench.store, session)
    revision = await fenced.txn([Put("a", b"1")])
    with pytest.raises(CompareFailed) as failed:
        await fenced.txn([Put("a", b"2")], [Compare("a", revision - 1)])
    assert failed.value.keys == ("a",)
    assert not session.lost.is_set()
    await session.close()


async def test_who_does_not_know_what_is_stored_steps_down() -> None:
    bench = Bench()
    session = await bench.elect()
    store: Any = bench.store

    async def lost(*_: Any) -> int:
        raise OutcomeUnknown("the answer was lost")

    store.txn = lost
    with pytest.raises(OutcomeUnknown):
        await FencedMeta(store, session).txn([Put("a", b"1")])
    assert session.lost.is_set()
    await session.close()
