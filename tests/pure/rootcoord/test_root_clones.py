"""Clones: a creation with somebody else's rows, complete after any interruption."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from fakes import settle
from root_bench import Bench, Root, new, refused, started
from test_root_crashes import never

from elanus.api.rootcoord import CloneRequest
from elanus.api.snapshots import CloneSource, HeldSource
from elanus.core.catalog import Collection, Index
from elanus.core.errors import CollectionAlreadyExists, CollectionNotFound, DatabaseNotFound, Unavailable
from elanus.core.ids import BuildID, CollectionID, FieldID, IndexID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.pins import Pin
from elanus.core.segments import IndexFile
from elanus.core.time_to_live import TTL_PROPERTY


async def with_source() -> tuple[Bench, Root, Collection]:
    bench, root = await started()
    source = await root.create_collection(new("c", properties={TTL_PROPERTY: "60"}))
    await root.create_partition("default", "c", "p")
    await root.create_alias("default", "c", "nick")
    source = await root.describe_collection("default", "c")
    field = source.schema.fields[-1]
    index = Index(
        IndexID(5), source.collection_id, field.field_id, "i", {"index_type": "FLAT"}, source.created
    )
    pin = Pin(77, source.collection_id, "snapshots/1", 0, read_ts=bench.oracle.allocate(), clones=True)
    bench.data.sources[source.collection_id] = HeldSource(pin, "daily", source, (index,))
    return bench, root, source


def request(source: Collection, name: str = "copy", database: str = "default") -> CloneRequest:
    return CloneRequest(database, name, CloneSource(source.collection_id), 7)


async def test_a_clone_has_the_definition_of_its_source_and_names_of_its_own() -> None:
    bench, root, source = await with_source()
    clone = await root.clone_collection(request(source))
    assert (clone.name, clone.schema.name, clone.aliases) == ("copy", "copy", ())
    assert clone.schema.fields == source.schema.fields
    assert (clone.partitions, clone.properties) == (source.partitions, source.properties)
    assert len(clone.vchannels) == len(source.vchannels)
    assert not set(clone.vchannels) & set(source.vchannels)
    assert clone.created > source.created
    assert clone.origin is not None
    assert clone.origin.is_done
    assert (clone.origin.job_id, clone.origin.snapshot, clone.origin.collection) == (7, "daily", "c")
    assert await root.describe_collection("default", "copy") == clone
    assert await root.describe_collection("default", "c") == source
    field = source.schema.fields[-1]
    assert bench.index.calls.of("create_index") == [
        (clone.collection_id, field.name, "i", {"index_type": "FLAT"})
    ]
    assert bench.data.calls.of("unpin_snapshot") == [77]
    created = [h.collection_id for h in bench.ddl(MsgKind.CREATE_COLLECTION)]
    assert created.count(clone.collection_id) == len(clone.vchannels)
    await root.stop()


async def test_the_indexes_of_a_clone_begin_with_the_files_of_the_source() -> None:
    bench, root, source = await with_source()
    file = IndexFile(
        BuildID(1), IndexID(5), FieldID(1), SegmentID(9), "FLAT", "L2", {}, "index_files/1", 3, 3, True
    )
    bench.data.borrowed = (file, replace(file, index_id=IndexID(6)))
    clone = await root.clone_collection(request(source))
    assert bench.data.calls.of("borrowed_indexes") == [clone.collection_id]
    assert bench.index.calls.of("built") == [(file,)], "those of this index"
    await root.stop()


async def test_a_clone_needs_a_free_name_and_a_source() -> None:
    bench, root, source = await with_source()
    await refused(root.clone_collection(request(source, "c")), CollectionAlreadyExists, "collection=c")
    await refused(root.clone_collection(request(source, "nick")), CollectionAlreadyExists)
    await refused(root.clone_collection(request(source, database="none")), DatabaseNotFound)
    assert bench.data.calls.of("hold_source") == [], "nothing is held for a clone that cannot be"
    gone = CloneRequest("default", "copy", CloneSource(CollectionID(3)), 8)
    await refused(root.clone_collection(gone), CollectionNotFound)
    await root.stop()


@pytest.mark.parametrize("where", ["data.watch_channels", "index.create_index", "data.unpin_snapshot"])
@pytest.mark.parametrize("how", ["error", "crash"])
async def test_a_clone_that_was_cut_off_goes_to_its_end(where: str, how: str) -> None:
    bench, root, source = await with_source()
    role, method = where.split(".")
    peer = getattr(bench, role)
    if how == "error":
        peer.calls.failing[method] = Unavailable("restarting")
        await refused(root.clone_collection(request(source)), Unavailable)
        peer.calls.failing.clear()
    else:
        real = getattr(peer, method)
        setattr(peer, method, never(real))
        task = asyncio.ensure_future(root.clone_collection(request(source)))
        await settle()
        setattr(peer, method, real)
        task.cancel()
        root = await bench.restart()
    await asyncio.sleep(2)
    clone = await root.describe_collection("default", "copy")
    assert clone.origin is not None
    assert clone.origin.is_done
    assert clone.collection_id in bench.data.calls.of("watch_channels")
    assert bench.index.calls.of("create_index")
    if where != "data.unpin_snapshot":
        assert bench.data.calls.of("unpin_snapshot") == [77]
    before = len(bench.data.calls.asked)
    await asyncio.sleep(10)
    assert len(bench.data.calls.asked) == before, "and then it is done"
    await root.stop()


async def test_a_source_that_is_lost_leaves_no_collection() -> None:
    bench, root, source = await with_source()
    bench.data.calls.failing["hold_source"] = Unavailable("no pipeline")
    await refused(root.clone_collection(request(source)), Unavailable)
    await refused(root.describe_collection("default", "copy"), CollectionNotFound)
    await root.stop()


async def test_a_clone_that_is_refused_releases_its_source() -> None:
    """The name is taken while the source's rows are written to files."""
    bench, root, source = await with_source()
    hold = bench.data.hold_source

    async def slow_hold(asked: CloneSource) -> HeldSource:
        held = await hold(asked)
        await root.create_collection(new("copy"))
        return held

    bench.data.hold_source = slow_hold  # type: ignore[method-assign]
    with pytest.raises(CollectionAlreadyExists):
        await root.clone_collection(request(source))
    assert bench.data.calls.of("unpin_snapshot") == [77]
    await root.stop()


async def test_truncation_counts_if_it_was_before_the_moment() -> None:
    bench, root, source = await with_source()
    await root.truncate_collection(source.collection_id)
    truncated = await root.describe_collection("default", "c")
    held = bench.data.sources[source.collection_id]
    later = HeldSource(held.pin, "", truncated, ())
    bench.data.sources[source.collection_id] = later
    clone = await root.clone_collection(request(source))
    assert clone.truncated == 0, "the moment is before it: all rows are there"
    await root.stop()
