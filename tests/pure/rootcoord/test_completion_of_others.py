"""A definition that was interrupted and cannot be completed yet keeps no other collection back."""

from __future__ import annotations

import asyncio

from root_bench import Bench, Root, new, refused
from test_unavailable_channels import FullChannels, two_channels

from elanus.core.errors import CollectionNotFound, DiskFull, Unavailable
from elanus.core.ids import CollectionID
from elanus.core.messages import MsgKind

NO_COLLECTION = CollectionID(0)
"""Named by a proxy that finds no collection of the name."""


async def with_a_drop_on_a_full_channel() -> tuple[Bench, Root, FullChannels, str]:
    """Collections a and b, and the drop of a in the catalog, announced nowhere: its pchannel is full."""
    log = FullChannels()
    bench, root, a, _ = await two_channels(log)
    log.full = {a}
    await refused(root.drop_collection("default", "a"), DiskFull)
    return bench, root, log, a


def forgotten(bench: Bench, name: str) -> bool:
    """Whether every role knows of the drop, so that the catalog has no record of it any more."""
    return all(c.name != name for c in bench.root.catalog.everything())


async def test_others_are_dropped_and_forgotten_meanwhile() -> None:
    bench, root, log, a = await with_a_drop_on_a_full_channel()
    await root.drop_collection("default", "b")
    await bench.tick()  # rootcoord notices that there is no room, and places no new shard there
    await root.create_collection(new("c", shards=1))
    await root.drop_collection("default", "c")
    await refused(root.drop_collection("default", "never"), CollectionNotFound)
    await asyncio.sleep(3)
    assert [forgotten(bench, name) for name in "abc"] == [False, True, True]
    await refused(root.drop_collection("default", "a"), DiskFull, a)
    log.full = set()
    await bench.tick()
    await asyncio.sleep(3)
    assert forgotten(bench, "a")
    assert len(bench.ddl(MsgKind.DROP_COLLECTION)) == 3
    await refused(root.drop_collection("default", "a"), CollectionNotFound)
    await root.stop()


async def test_others_are_dropped_and_forgotten_after_a_restart() -> None:
    bench, root, log, a = await with_a_drop_on_a_full_channel()
    root = await bench.restart()
    await root.drop_collection("default", "b")
    await asyncio.sleep(3)
    assert [forgotten(bench, name) for name in "ab"] == [False, True]
    await refused(root.drop_collection("default", "a"), DiskFull, a)
    log.full = set()
    await asyncio.sleep(4)
    assert forgotten(bench, "a")
    await root.stop()


async def test_a_collection_that_took_the_name_does_not_wait_for_the_one_that_had_it() -> None:
    bench, root, _, a = await with_a_drop_on_a_full_channel()
    old = bench.root.catalog.dropped()[0].collection_id
    await bench.tick()
    await root.create_collection(new("a", shards=1))
    await refused(root.drop_collection("default", "a", old), DiskFull, a)
    await root.drop_collection("default", "a")
    await root.stop()


async def test_every_role_knows_of_a_drop_before_not_found_is_answered() -> None:
    bench, root, _, _ = await with_a_drop_on_a_full_channel()
    b = (await root.describe_collection("default", "b")).collection_id
    bench.query.calls.failing["release"] = Unavailable("restarting")
    for named in (b, b, None, NO_COLLECTION):
        await refused(root.drop_collection("default", "b", named), Unavailable, "restarting")
    bench.query.calls.failing.clear()
    await refused(root.drop_collection("default", "b"), CollectionNotFound)
    assert bench.query.calls.of("release")[-1] == (b, ())
    assert bench.data.calls.of("drop_collection")[-1] == b
    await root.stop()


async def test_other_changes_are_completed_meanwhile() -> None:
    bench, root, _, _ = await with_a_drop_on_a_full_channel()
    bench.data.calls.failing["watch_channels"] = Unavailable("restarting")
    await bench.tick()
    await refused(root.create_collection(new("c", shards=1)), Unavailable)
    bench.data.calls.failing.clear()
    c = (await root.describe_collection("default", "c")).collection_id
    await asyncio.sleep(2)
    assert bench.data.calls.of("watch_channels")[-1] == c
    await root.stop()
