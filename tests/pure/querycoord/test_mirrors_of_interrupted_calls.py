"""A change of what mirrors may show is completed, also if the caller that asked for it gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from fakes import CID, DEFAULT, OTHER, collection, manifest, recovery, settle
from query_bench import Bench, FakeGrants, FakeNode

from elanus.core.ids import CollectionID

OF = collection(partitions=(DEFAULT, OTHER))


async def mirrored() -> tuple[Bench, FakeNode, FakeGrants]:
    """One of two partitions is loaded, and a mirror is read."""
    bench = Bench(OF)
    bench.set_data(recovery(OF, manifest(1), manifest(2, partition_id=OTHER)))
    await bench.start()
    await bench.coord.load(CID, (DEFAULT,), 1)
    await asyncio.sleep(1)
    node, grants = bench.mirrors.join(3)
    await asyncio.sleep(1)
    assert (node.served(), grants.granted) == ({1}, {CID})
    return bench, node, grants


def slowly(
    call: Callable[[CollectionID], Awaitable[None]], go_on: asyncio.Event
) -> Callable[[CollectionID], Coroutine[Any, Any, None]]:
    async def slow(collection_id: CollectionID) -> None:
        await go_on.wait()
        await call(collection_id)

    return slow


async def given_up(grants: FakeGrants, call: Coroutine[Any, Any, None]) -> None:
    """The caller gives up while the mirror takes its time over the end of its grant."""
    go_on = asyncio.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grants, "withhold", slowly(grants.withhold, go_on))
        calling = asyncio.create_task(call)
        await settle()
        calling.cancel()
        await settle()
        go_on.set()
        await asyncio.gather(calling, return_exceptions=True)


async def test_no_mirror_is_read_after_a_release() -> None:
    bench, node, grants = await mirrored()
    await given_up(grants, bench.coord.release(CID, ()))
    await bench.coord.release(CID, ())
    assert grants.granted == set()
    await settle()
    assert (node.held, bench.node.held) == ({}, {})
    await bench.coord.stop()


async def test_no_mirror_is_read_without_the_partitions_that_were_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, node, grants = await mirrored()
    load, go_on = node.load_segment, asyncio.Event()

    async def slow(request: Any) -> object:
        await go_on.wait()
        return await load(request)

    monkeypatch.setattr(node, "load_segment", slow)
    await given_up(grants, bench.coord.load(CID, (OTHER,), 1))
    await bench.coord.load(CID, (OTHER,), 1)
    await asyncio.sleep(1)
    assert (bench.node.served(), node.served()) == ({1, 2}, {1})
    assert grants.granted == set()
    go_on.set()
    await asyncio.sleep(1)
    assert (node.served(), grants.granted) == ({1, 2}, {CID})
    await bench.coord.stop()


async def test_a_mirror_that_joins_during_a_reload_follows_what_is_loaded_then() -> None:
    bench, _, _ = await mirrored()
    go_on = asyncio.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.node, "release_collection", slowly(bench.node.release_collection, go_on))
        reloading = asyncio.create_task(bench.coord.reload(CID))
        await settle()
        late, grants = bench.mirrors.join(4)
        await asyncio.sleep(1)
        go_on.set()
        await reloading
    await asyncio.sleep(1)
    assert (late.served(), grants.granted) == ({1}, {CID})
    await bench.coord.load(CID, (OTHER,), 1)
    await asyncio.sleep(1)
    assert (late.served(), grants.granted) == ({1, 2}, {CID})
    await bench.coord.stop()
