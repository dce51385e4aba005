"""The nodes of a role: they come and go, watches break, and the view stays true."""

from __future__ import annotations

import asyncio

import pytest
from session_bench import TTL_S, Bench, now_s

from elanus.core.errors import Unavailable
from elanus.meta.directory import Directory
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import Listing, Put, WatchBroken
from elanus.meta.session import Session, SessionInfo
from elanus.meta.view import View


async def directory(bench: Bench, role: str = "proxy", meta: object = None) -> Directory[str]:
    made = Directory(meta or bench.store, role, lambda info: f"client of {info.address}")  # type: ignore[arg-type]
    await made.start()
    return made


async def test_it_shows_who_is_there_and_follows() -> None:
    bench = Bench()
    first = await bench.register(address="a:1")
    nodes = await directory(bench)
    assert dict(nodes) == {first.node_id: "client of a:1"}
    changes: list[set[int]] = []
    end = nodes.on_change(lambda: changes.append(set(nodes)))
    second = await bench.register(address="b:2")
    other = await bench.register("querynode")
    await first.close()
    await asyncio.sleep(0)
    assert dict(nodes) == {second.node_id: "client of b:2"}
    assert nodes.infos == {second.node_id: SessionInfo(second.node_id, "proxy", "b:2")}
    assert changes == [{1, 2}, {2}]
    end()
    await second.close()
    await asyncio.sleep(0)
    assert len(nodes) == 0
    assert len(changes) == 2
    await other.close()
    await nodes.stop()


async def test_a_node_that_died_is_gone_when_its_lease_is() -> None:
    bench = Bench()
    cable = bench.cable()
    session = await bench.register(meta=cable)
    nodes = await directory(bench)
    gone = asyncio.Event()
    nodes.on_change(gone.set)
    cable.pull()
    began_s = now_s()
    await gone.wait()
    assert len(nodes) == 0
    assert now_s() - began_s < TTL_S + 1
    await session.close()
    await nodes.stop()


async def test_roles_whose_names_begin_alike_are_distinguished() -> None:
    bench = Bench()
    sessions = [await bench.register("proxy"), await bench.register("proxyish")]
    nodes = await directory(bench)
    assert set(nodes) == {sessions[0].node_id}
    await nodes.stop()
    for session in sessions:
        await session.close()


async def test_the_active_one_of_an_exclusive_role_is_found() -> None:
    bench = Bench()
    nodes = await directory(bench, "rootcoord")
    session = await bench.elect("rootcoord")
    await asyncio.sleep(0)
    assert set(nodes) == {session.node_id}
    await session.close()
    await nodes.stop()


async def test_after_a_broken_watch_it_lists_again() -> None:
    bench = Bench()
    cable = bench.cable()
    nodes = await directory(bench, meta=cable)
    cable.pull()
    session = await bench.register()
    await asyncio.sleep(1)
    assert len(nodes) == 0
    with pytest.raises(Unavailable):
        await nodes.refresh()
    cable.plug()
    await asyncio.sleep(1)
    assert set(nodes) == {session.node_id}
    later = await bench.register()
    await asyncio.sleep(0.01)
    assert later.node_id in nodes, "it watches again"
    await nodes.stop()
    await session.close()
    await later.close()


async def test_what_the_store_has_forgotten_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    nodes = await directory(bench)
    watch, broken = bench.store.watch, []

    def forgetful(prefix: str, after: int) -> object:
        broken.append(after)
        if len(broken) % 2:
            raise WatchBroken("compacted")
        return watch(prefix, after)

    monkeypatch.setattr(bench.store, "watch", forgetful)
    bench.store._hub._known_since = 10**6  # the watch it has breaks with the next change
    session = await bench.register()
    await asyncio.sleep(1)
    assert broken
    assert set(nodes) == {session.node_id}
    await nodes.stop()
    await session.close()


async def test_refreshing_shows_what_the_watch_has_not_delivered_yet() -> None:
    bench = Bench()
    nodes = await directory(bench)
    session = await Session.register(bench.store, "proxy", "a", ttl_s=TTL_S, monotonic_s=now_s)
    nodes._view._following.cancel()  # type: ignore[union-attr]
    await nodes.refresh()
    assert set(nodes) == {session.node_id}
    await nodes.stop()
    await session.close()


async def test_it_ends_with_the_store() -> None:
    store = MemoryMeta(now_s)
    nodes = Directory(store, "proxy", lambda info: info)
    await nodes.start()
    await store.txn([Put("x", b"")])
    await store.close()
    await asyncio.sleep(1)
    assert nodes._view._following is not None
    assert nodes._view._following.done()
    await nodes.stop()


async def test_a_node_of_which_no_client_can_be_made_keeps_no_other_from_being_seen() -> None:
    bench, attempts = Bench(), 0

    def connect(info: SessionInfo) -> str:
        nonlocal attempts
        attempts += info.address == "b:2"
        if info.address == "b:2" and attempts < 3:
            raise FileNotFoundError("the key is being renewed")
        return info.address

    nodes = Directory(bench.store, "proxy", connect)
    await nodes.start()
    sessions = [await bench.register(address="a:1"), await bench.register(address="b:2")]
    await asyncio.sleep(0.01)
    assert list(nodes.values()) == ["a:1"]
    sessions.append(await bench.register(address="c:3"))  # which is another occasion to try
    await asyncio.sleep(0.01)
    assert (sorted(nodes.values()), attempts) == (["a:1", "c:3"], 2)
    came = asyncio.Event()
    nodes.on_change(came.set)
    await came.wait()
    assert sorted(nodes.values()) == ["a:1", "b:2", "c:3"]
    await sessions[0].close()
    await asyncio.sleep(0.01)
    assert sorted(nodes.values()) == ["b:2", "c:3"]
    await nodes.stop()
    for session in sessions[1:]:
        await session.close()


async def test_a_change_that_was_not_applied_is_reported_again() -> None:
    """By the watch and, the next time, by the listing after it."""
    store, seen = MemoryMeta(now_s), list[set[str]]()
    all_seen = asyncio.Event()

    def changed() -> None:
        seen.append(set(view.entries))
        if len(seen) in (1, 2):
            raise ValueError("not now")
        all_seen.set()

    view = View(store, "p/", changed)
    await view.start()
    await store.txn([Put("p/a", b"")])
    await all_seen.wait()
    await store.txn([Put("p/b", b"")])
    await asyncio.sleep(0.01)
    assert seen == [{"p/a"}, {"p/a"}, {"p/a"}, {"p/a", "p/b"}]
    await view.stop()
    await store.close()


async def test_a_store_that_went_back_is_shown_as_it_is_now() -> None:
    """etcd came back empty, or with an older copy: what it shows no more is gone."""

    class Exchanged(MemoryMeta):
        def __init__(self) -> None:
            super().__init__(now_s)
            self.older: Listing | None = None

        async def listing(self, prefix: str) -> Listing:
            return self.older or await super().listing(prefix)

    store, seen = Exchanged(), list[set[str]]()
    view = View(store, "p/", lambda: seen.append(set(view.entries)))
    await view.start()
    await store.txn([Put("p/a", b"")])
    await store.txn([Put("p/b", b"")])
    await asyncio.sleep(0.01)
    found = await store.get("p/a")
    assert found is not None
    store.older = Listing([("p/a", found)], found.revision)
    await view.refresh()
    assert seen[-1] == {"p/a"}
    await view.stop()
    await store.close()
