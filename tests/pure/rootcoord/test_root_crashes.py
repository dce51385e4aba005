"""A definition that a crash or an error cuts off has not begun, or is completed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from unittest.mock import patch

import msgspec
import pytest
from fakes import OTHER, settle
from giving_up import cut_off
from root_bench import Bench, Root, new, refused, started

from elanus.core.catalog import Collection, Index
from elanus.core.errors import (
    CollectionNotFound,
    DiskFull,
    PartitionNotFound,
    RecordTooLarge,
    Unavailable,
)
from elanus.core.ids import FieldID, IndexID, PartitionID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import compose
from elanus.meta.port import VALUE_MAX_BYTES
from elanus.rootcoord.completion import Completion

# one at a time, and over restarts


async def test_definitions_that_come_together_are_made_one_after_the_other() -> None:
    bench, root = await started()
    made = await asyncio.gather(*(root.create_collection(new("c")) for _ in range(10)))
    assert len({c.collection_id for c in made}) == 1
    assert len(bench.ddl(MsgKind.CREATE_COLLECTION)) == 2
    await root.stop()


async def test_everything_defined_is_there_after_a_restart() -> None:
    bench, root = await started("c", "d")
    await root.create_database("books", {"a": "1"})
    await root.create_alias("default", "c", "a")
    await root.create_partition("default", "c", "p")
    await root.drop_collection("default", "d")
    before = (await root.list_databases(), await root.list_collections(""))
    root = await bench.restart()
    assert (await root.list_databases(), await root.list_collections("")) == before
    await root.stop()


async def crashed(bench: Bench, dying: Awaitable[object]) -> Root:
    """The process dies while ``dying`` waits for what will not come; another one starts."""
    task = asyncio.ensure_future(dying)
    await settle()
    assert not task.done()
    task.cancel()
    await settle()
    return await bench.restart()


def never(method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    async def wait(*_args: object, **_kwargs: object) -> object:
        return await asyncio.Event().wait()

    return wait


async def test_a_new_coordinator_makes_the_proxies_forget_what_they_cached() -> None:
    """The one before may have died between a change and the word of it."""
    bench, _ = await started("c")
    before = len(bench.proxy.calls.of("invalidate_everything"))
    await bench.restart()
    await settle()
    assert len(bench.proxy.calls.of("invalidate_everything")) == before + 1
    await bench.root.stop()


async def test_a_crash_before_the_catalogs_write_leaves_no_collection() -> None:
    bench, root = await started()
    root.catalog.put = never(root.catalog.put)  # type: ignore[method-assign,assignment]
    root = await crashed(bench, root.create_collection(new("c")))
    assert len(bench.ddl(MsgKind.CREATE_COLLECTION)) == 2, "its message stands there, and means nothing"
    await refused(root.describe_collection("default", "c"), CollectionNotFound)
    await root.create_collection(new("c"))
    await root.stop()


async def test_a_collection_whose_creation_was_cut_off_is_watched_after_all() -> None:
    bench, root = await started()
    watch = bench.data.watch_channels
    bench.data.watch_channels = never(watch)  # type: ignore[method-assign,assignment]
    task = asyncio.ensure_future(root.create_collection(new("c")))
    await settle()
    bench.data.watch_channels = watch  # type: ignore[method-assign]
    task.cancel()
    root = await bench.restart()
    await settle()
    made = await root.describe_collection("default", "c")
    assert bench.data.calls.of("watch_channels") == [made.collection_id]
    await root.stop()


async def test_a_creation_that_is_cut_off_at_the_catalogs_write_is_watched_too() -> None:
    bench, root = await started("other")
    await cut_off(bench.meta, root.create_collection(new("c")))
    made = await root.describe_collection("default", "c")
    await asyncio.sleep(2)
    assert bench.data.calls.of("watch_channels")[-1:] == [made.collection_id]
    await root.stop()


async def test_a_collection_that_could_not_be_watched_is_watched_as_soon_as_it_can_be() -> None:
    bench, root = await started()
    bench.data.calls.failing["watch_channels"] = Unavailable("restarting")
    await refused(root.create_collection(new("c")), Unavailable)
    bench.data.calls.failing.clear()
    made = await root.describe_collection("default", "c")
    await asyncio.sleep(2)
    assert bench.data.calls.of("watch_channels")[-1:] == [made.collection_id]
    before = len(bench.data.calls.asked)
    await asyncio.sleep(10)
    assert len(bench.data.calls.asked) == before, "and then it is done"
    await root.stop()


async def test_an_undrop_has_the_indexes_although_the_drop_was_interrupted_after_theirs() -> None:
    bench, root = await started("c")
    cid = (await root.describe_collection("default", "c")).collection_id
    index = Index(IndexID(5), cid, FieldID(101), "vector", {"index_type": "FLAT"}, compose(1))
    bench.index.defined.append(index)
    bench.data.calls.failing["drop_collection"] = Unavailable("restarting")
    await refused(root.drop_collection("default", "c"), Unavailable)
    bench.index.defined.clear()
    bench.data.calls.failing.clear()
    await asyncio.sleep(2)
    first, *_ = bench.data.calls.of("remember_dropped")
    assert first.indexes == (index,), "datacoord keeps the first one"
    await root.stop()


async def test_a_definition_leaves_room_for_its_drop() -> None:
    _, root = await started()
    made = await root.create_collection(replace(new("c"), properties={"note": ""}))
    size_bytes = len(msgspec.json.encode(made))
    await root.drop_collection("default", "c")
    largest = {"note": "x" * (VALUE_MAX_BYTES - 10_000 - size_bytes)}
    longer = {"note": largest["note"] + "x" * 100}
    await refused(root.create_collection(replace(new("c"), properties=longer)), RecordTooLarge)
    await root.create_collection(replace(new("c"), properties=largest))
    await root.drop_collection("default", "c")
    await refused(root.describe_collection("default", "c"), CollectionNotFound)
    await root.stop()


@pytest.mark.parametrize("where", ["query.release", "index.drop_collection", "data.drop_collection"])
@pytest.mark.parametrize("how", ["error", "crash"])
async def test_a_drop_that_was_cut_off_goes_to_its_end(where: str, how: str) -> None:
    bench, root = await started("c")
    cid = (await root.describe_collection("default", "c")).collection_id
    bench.data.recoveries[cid] = None  # type: ignore[assignment]  # its channels are held
    role, method = where.split(".")
    peer = getattr(bench, role)
    if how == "error":
        peer.calls.failing[method] = Unavailable("restarting")
        await refused(root.drop_collection("default", "c"), Unavailable)
        peer.calls.failing.clear()
    else:
        real = getattr(peer, method)
        setattr(peer, method, never(real))
        task = asyncio.ensure_future(root.drop_collection("default", "c"))
        await settle()
        setattr(peer, method, real)
        task.cancel()
        root = await bench.restart()
    await refused(root.describe_collection("default", "c"), CollectionNotFound)
    await asyncio.sleep(2)
    assert bench.query.calls.of("release")[-1] == (cid, ())
    assert bench.index.calls.of("drop_collection")[-1] == cid
    assert bench.data.calls.of("drop_collection")[-1] == cid
    messages = Counter(h.vchannel for h in bench.ddl(MsgKind.DROP_COLLECTION))
    assert set(messages.values()) == {2}, "announced again: the first time may have been lost"
    await root.stop()


async def test_a_dropped_collection_is_not_forgotten_before_the_proxies_have() -> None:
    """Its data may be gone while the drop still waits for somebody: a tidying then comes upon it."""
    bench, root = await started("c")
    cid = (await root.describe_collection("default", "c")).collection_id
    asked, release = bench.proxy.calls.of("invalidate_collection"), asyncio.Event()

    async def late(*_args: object, **_kwargs: object) -> None:
        await release.wait()
        raise Unavailable("the answer was lost")

    known, bench.query.release = bench.query.release, late  # type: ignore[method-assign,assignment]
    dropping = asyncio.ensure_future(root.drop_collection("default", "c"))
    await asyncio.sleep(3)  # the tidying has found that nobody holds its channels, and waits for its turn
    bench.query.release = known  # type: ignore[method-assign]
    release.set()
    await refused(dropping, Unavailable)
    await asyncio.sleep(3)
    assert bench.proxy.calls.of("invalidate_collection") == [*asked, cid]
    await root.stop()


async def test_a_drop_whose_message_found_no_room_is_announced_when_there_is() -> None:
    bench, root = await started("c")
    append = bench.log.append

    async def full(*_args: object, **_kwargs: object) -> object:
        raise DiskFull("no room")

    bench.log.append = full  # type: ignore[method-assign,assignment]
    await refused(root.drop_collection("default", "c"), DiskFull)
    await asyncio.sleep(3)
    bench.log.append = append  # type: ignore[method-assign]
    await asyncio.sleep(3)
    assert len(bench.ddl(MsgKind.DROP_COLLECTION)) == 2
    await root.stop()


def segment_in(collection: Collection, partition_id: PartitionID, state: SegmentState) -> SegmentInfo:
    at = compose(1)
    return SegmentInfo(
        SegmentID(partition_id + state),
        collection.collection_id,
        partition_id,
        collection.vchannels[0],
        state,
        9,
        at,
        at,
    )


@pytest.mark.parametrize("has_rows", [True, False])
async def test_a_partition_whose_drop_was_cut_off_is_dropped_to_the_end(has_rows: bool) -> None:
    """Also where no row of it is known: a proxy that does not know of the drop may still write one."""
    bench, root = await started("c")
    await root.create_partition("default", "c", "p")
    made = await root.describe_collection("default", "c")
    kept, gone, finished = (
        p.partition_id for p in (*made.partitions, replace(made.partitions[0], partition_id=OTHER))
    )
    for info in (
        segment_in(made, kept, SegmentState.FLUSHED),
        *([segment_in(made, gone, SegmentState.FLUSHED)] if has_rows else []),
        segment_in(made, finished, SegmentState.DROPPED),
    ):
        bench.data.infos[info.segment_id] = info
    append = bench.log.append
    bench.log.append = never(append)  # type: ignore[method-assign,assignment]
    task = asyncio.ensure_future(root.drop_partition("default", "c", "p"))
    await settle()
    bench.log.append = append  # type: ignore[method-assign]
    task.cancel()
    root = await bench.restart()
    await settle()
    assert [p.name for p in (await root.describe_collection("default", "c")).partitions] == ["_default"]
    assert {h.partition_id for h in bench.ddl(MsgKind.DROP_PARTITION)} == {gone}
    assert bench.data.calls.of("drop_partition") == [(made.collection_id, gone)]
    assert bench.query.calls.of("release") == [(made.collection_id, (gone,))]
    assert root.catalog.by_id(made.collection_id).leaving == ()
    await root.stop()


async def test_a_partition_is_not_found_only_when_its_drop_has_come_to_its_end() -> None:
    """Else its client goes on while a proxy still takes rows for it."""
    bench, root = await started("c")
    await root.create_partition("default", "c", "p")
    made = await root.describe_collection("default", "c")
    known = bench.data.drop_partition
    bench.data.drop_partition = never(known)  # type: ignore[method-assign,assignment]
    dropping = asyncio.ensure_future(root.drop_partition("default", "c", "p"))
    await settle()
    before = bench.proxy.calls.of("invalidate_collection")
    with patch.object(Completion, "tidy", never(settle)):  # it is not the tidying that does it
        dropping.cancel()
        root = await bench.restart()
        bench.data.drop_partition = known  # type: ignore[method-assign]
        await refused(root.drop_partition("default", "c", "p"), PartitionNotFound)
        assert bench.data.calls.of("drop_partition") == [
            (made.collection_id, made.partitions[1].partition_id)
        ]
        assert bench.proxy.calls.of("invalidate_collection") == [*before, made.collection_id]
        assert root.catalog.by_id(made.collection_id).leaving == ()
        await root.stop()


async def test_a_crash_while_a_partition_is_created_leaves_none() -> None:
    bench, root = await started("c")
    root.definitions.begin_change = never(root.definitions.begin_change)  # type: ignore[method-assign,assignment]
    root = await crashed(bench, root.create_partition("default", "c", "p"))
    assert len((await root.describe_collection("default", "c")).partitions) == 1
    await root.stop()
