"""The contract of every metadata store about leases and watches, run against every adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from meta_adapters import WithStore

from elanus.meta.port import (
    NO_LEASE,
    Change,
    Compare,
    CompareFailed,
    Delete,
    LeaseExpired,
    LeaseID,
    MetaStore,
    Put,
    StoreClosed,
    Versioned,
)

TTL_S = 2
"""etcd keeps no shorter lease as it comes."""
LONG_S = 600
"""Leases of that time do not end by themselves while a busy machine stands still."""
NOTHING_S = 0.1


class Seen:
    """A watch that is followed in the background: its changes so far."""

    def __init__(self, store: MetaStore, prefix: str, after: int) -> None:
        self.changes: list[Change] = []
        self._new = asyncio.Event()
        self._task = asyncio.create_task(self._follow(store.watch(prefix, after)))

    async def _follow(self, watch: AsyncIterator[Sequence[Change]]) -> None:
        async for changes in watch:
            self.changes += changes
            self._new.set()

    async def until(self, count: int) -> list[Change]:
        async with asyncio.timeout(10):
            while len(self.changes) < count:
                self._new.clear()
                await self._new.wait()
        return self.changes

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


# leases


def test_the_keys_of_a_lease_go_with_it_and_no_others(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        one, other = await store.grant_lease(LONG_S), await store.grant_lease(LONG_S)
        assert one != other
        assert NO_LEASE not in (one, other)
        await store.txn([Put("a", b"", one), Put("b", b"", one), Put("c", b"", other), Put("d", b"")])
        await store.revoke_lease(one)
        assert [key for key, _ in await store.list("")] == ["c", "d"]
        await store.revoke_lease(one)

    with_store(use)


def test_a_lease_that_is_not_renewed_ends_in_its_time(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        loop = asyncio.get_running_loop()
        kept, left = await store.grant_lease(TTL_S), await store.grant_lease(TTL_S)
        granted_s = loop.time()
        revision = await store.txn([Put("kept", b"", kept), Put("left", b"", left)])
        seen = Seen(store, "", revision)
        gone = asyncio.ensure_future(seen.until(1))
        while not gone.done():
            assert await store.renew_lease(kept) >= TTL_S
            await asyncio.wait([gone], timeout=TTL_S / 4)
        assert loop.time() - granted_s >= TTL_S - 0.1, "never earlier"
        assert [(change.key, change.entry) for change in gone.result()] == [("left", None)]
        with pytest.raises(LeaseExpired):
            await store.renew_lease(left)
        with pytest.raises(LeaseExpired):
            await store.txn([Put("left", b"", left)])
        assert [key for key, _ in await store.list("")] == ["kept"]
        await seen.end()

    with_store(use)


def test_a_put_under_a_lease_that_is_over_applies_nothing(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        lease = await store.grant_lease(LONG_S)
        await store.revoke_lease(lease)
        for over in (lease, LeaseID(4711)):
            with pytest.raises(LeaseExpired):
                await store.txn([Put("a", b""), Put("b", b"", over)])
        assert list(await store.list("")) == []

    with_store(use)


def test_a_later_put_binds_a_key_to_its_own_lease(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        one, other = await store.grant_lease(LONG_S), await store.grant_lease(LONG_S)
        await store.txn([Put(key, b"", one) for key in ("freed", "moved", "removed")])
        await store.txn([Put("freed", b""), Put("moved", b"", other), Delete("removed")])
        await store.txn([Put("removed", b"again")])
        await store.revoke_lease(one)
        assert [key for key, _ in await store.list("")] == ["freed", "moved", "removed"]
        await store.revoke_lease(other)
        assert [key for key, _ in await store.list("")] == ["freed", "removed"]

    with_store(use)


def test_who_compares_with_a_key_whose_lease_ended_is_refused(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        lease = await store.grant_lease(LONG_S)
        revision = await store.txn([Put("leader", b"", lease)], [Compare("leader", 0)])
        await store.txn([Put("a", b"1")], [Compare("leader", revision)])
        await store.revoke_lease(lease)
        with pytest.raises(CompareFailed):
            await store.txn([Put("a", b"2")], [Compare("leader", revision)])
        await store.txn([Put("leader", b"")], [Compare("leader", 0)])

    with_store(use)


@pytest.mark.parametrize("ttl_s", [0, -1, 3601])
def test_a_time_that_no_lease_has_is_refused(with_store: WithStore, ttl_s: int) -> None:
    async def use(store: MetaStore) -> None:
        with pytest.raises(ValueError, match="lease"):
            await store.grant_lease(ttl_s)

    with_store(use)


def test_the_keys_of_leases_do_not_outlast_those_who_held_them(with_lasting_store: WithStore) -> None:
    async def leave(store: MetaStore) -> None:
        lease = await store.grant_lease(TTL_S)
        await store.txn([Put("session", b"", lease), Put("lasting", b"")])

    async def come_back(store: MetaStore) -> None:
        async with asyncio.timeout(10):
            while (listing := await store.listing("session")).entries:
                watch = store.watch("session", listing.revision)
                await anext(aiter(watch))
        assert [key for key, _ in await store.list("")] == ["lasting"]

    with_lasting_store(leave)
    with_lasting_store(come_back)


# watches


def test_a_watch_delivers_every_change_under_its_prefix_in_order(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        await store.txn([Put("a/0", b"before"), Put("b/0", b"before")])
        listing = await store.listing("a/")
        assert [key for key, _ in listing.entries] == ["a/0"]
        seen = Seen(store, "a/", listing.revision)
        first = await store.txn([Put("a/1", b"one"), Put("b/1", b"elsewhere")])
        second = await store.txn([Delete("a/0"), Delete("a/not there")])
        await store.txn([Put("b/2", b"elsewhere")])
        third = await store.txn([Put("a/1", b"two")])
        assert await seen.until(3) == [
            Change("a/1", first, Versioned(b"one", first)),
            Change("a/0", second, None),
            Change("a/1", third, Versioned(b"two", third)),
        ]
        await seen.end()

    with_store(use)


def test_a_watch_may_begin_in_the_past(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        revisions = [await store.txn([Put(f"k{n}", b"")]) for n in range(5)]
        seen = Seen(store, "", revisions[1])
        assert [c.key for c in await seen.until(3)] == ["k2", "k3", "k4"]
        await seen.end()

    with_store(use)


def test_watches_do_not_disturb_each_other(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        revision = await store.txn([Put("begin", b"")])
        watches = [Seen(store, f"{n}/", revision) for n in range(5)]
        await watches[0].end()
        for n in range(5):
            await store.txn([Put(f"{n}/x", b"")])
        for n, seen in enumerate(watches[1:], 1):
            assert [c.key for c in await seen.until(1)] == [f"{n}/x"]
            await seen.end()
        assert watches[0].changes == []

    with_store(use)


def test_a_watch_of_a_closed_store_ends(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        watch = aiter(store.watch("", (await store.listing("")).revision))
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.wait([waiting], timeout=NOTHING_S)
        assert not waiting.done(), "nothing has happened yet"
        await store.close()
        with pytest.raises(StoreClosed):
            await asyncio.wait_for(waiting, 5)

    with_store(use)
