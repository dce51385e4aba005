"""A lease that a thread renews: it outlives a loop that is slow, and not one that is dead."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from session_bench import TTL_S, Bench

from elanus.core.lease import SILENCE_TERMS, HeldLease, Pulse
from elanus.meta.keeper import keep
from elanus.meta.port import LeaseID, Put


class Kept:
    """A key under a lease that is kept; its holder's loop beats when the test says so."""

    def __init__(self, bench: Bench, meta: Any = None) -> None:
        self._bench = bench
        self._meta = meta or bench.store
        self.held = HeldLease(TTL_S, bench.now_s())
        self.pulse = Pulse(TTL_S, bench.now_s())
        self.keeping: asyncio.Task[None]

    async def begin(self) -> Kept:
        lease: LeaseID = await self._bench.store.grant_lease(TTL_S)
        await self._bench.store.txn([Put("session/querynode-1", b"", lease)])
        self.keeping = asyncio.create_task(keep(self._meta, lease, self.held, self.pulse, self._bench.now_s))
        return self

    async def is_there(self) -> bool:
        return await self._bench.keys() != []


async def test_it_outlives_a_loop_that_is_slow() -> None:
    bench = Bench()
    kept = await Kept(bench).begin()
    for _ in range(5):
        await asyncio.sleep(TTL_S * (SILENCE_TERMS - 0.5))
        assert await kept.is_there()
        assert kept.held.is_valid(bench.now_s())
        kept.pulse.beat(bench.now_s())
    kept.keeping.cancel()


async def test_a_loop_without_a_sign_of_life_is_given_up() -> None:
    bench = Bench()
    kept = await Kept(bench).begin()
    await asyncio.sleep(TTL_S * SILENCE_TERMS)
    assert await kept.is_there()
    await asyncio.sleep(TTL_S * 1.5)
    assert not await kept.is_there()
    assert not kept.held.is_valid(bench.now_s()), "it acknowledges nothing any more"
    kept.pulse.beat(bench.now_s())
    await asyncio.wait_for(kept.keeping, TTL_S)  # what is over does not come back
    assert not kept.held.is_valid(bench.now_s())


async def test_cut_off_from_the_store_it_stops_believing() -> None:
    bench = Bench()
    cable = bench.cable()
    kept = await Kept(bench, cable).begin()
    cable.pull()
    for _ in range(3):
        await asyncio.sleep(TTL_S / 2)
        kept.pulse.beat(bench.now_s())
    assert not kept.held.is_valid(bench.now_s())
    cable.plug()
    await asyncio.wait_for(kept.keeping, TTL_S)


async def test_its_term_begins_when_a_renewal_was_sent_not_when_the_answer_came() -> None:
    """The store may have received it at once, and counts from then."""
    bench = Bench()

    async def renew_lease(lease: LeaseID) -> None:
        await bench.store.renew_lease(lease)
        await asyncio.sleep(0.8 * TTL_S)

    kept = await Kept(bench, SimpleNamespace(renew_lease=renew_lease)).begin()
    await asyncio.sleep(kept.held.renew_every_s + 0.9 * TTL_S)
    assert kept.held.is_valid(bench.now_s()), "the answer has come"
    await asyncio.sleep(0.1 * TTL_S)
    assert not kept.held.is_valid(bench.now_s())
    kept.keeping.cancel()
