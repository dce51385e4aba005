"""The metadata cache: what was invalidated is never served, also when it was on its way."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from fakes import CID, OTHER, FakeIndexCoord, FakeRoot, collection, index, schema, settle

from elanus.core.catalog import Index
from elanus.core.errors import CollectionNotFound, IndexNotFound, PartitionNotFound
from elanus.core.ids import CollectionID
from elanus.proxy.role.cache import MetaCache


class Coordinators:
    def __init__(self) -> None:
        self.root = FakeRoot(collection(partitions=(OTHER,), aliases=("a",)))
        self.index = FakeIndexCoord()
        self.cache = MetaCache(self.root, self.index)


async def test_a_name_is_asked_for_once() -> None:
    c = Coordinators()
    assert c.cache.get("default", "c") is None
    filled = await c.cache.fill("default", "c")
    assert c.cache.get("default", "c") is filled
    assert filled.collection_id == CID
    assert filled.partition_id("_default") == OTHER
    assert c.root.calls.of("describe_collection") == [("default", "c")]


async def test_each_name_is_an_entry_and_all_go_together() -> None:
    c = Coordinators()
    for name in ("c", "a"):
        await c.cache.fill("default", name)
    c.cache.invalidate(CID)
    assert [c.cache.get("default", name) for name in ("c", "a")] == [None, None]


async def test_invalidating_one_collection_leaves_the_others() -> None:
    c = Coordinators()
    await c.cache.fill("default", "c")
    c.cache.invalidate(CollectionID(999))
    assert c.cache.get("default", "c") is not None


async def test_what_was_fetched_while_an_invalidation_came_in_is_not_kept() -> None:
    c = Coordinators()
    answer = asyncio.Event()
    indexes_of = c.index.indexes

    async def slow_indexes(collection_id: CollectionID) -> tuple[Index, ...]:
        found = await indexes_of(collection_id)
        await answer.wait()
        return found

    c.index.indexes = slow_indexes  # type: ignore[method-assign]
    filling = asyncio.ensure_future(c.cache.fill("default", "c"))
    await settle()
    c.index.defined.append(index())  # the index is made, and says so
    c.cache.invalidate(CID)
    answer.set()
    assert (await filling).indexes == ()
    assert c.cache.get("default", "c") is None
    assert len((await c.cache.fill("default", "c")).indexes) == 1


async def test_what_does_not_exist_is_not_remembered() -> None:
    c = Coordinators()
    with pytest.raises(CollectionNotFound):
        await c.cache.fill("default", "new")
    c.root.collections[CollectionID(7)] = replace(collection(schema("new")), collection_id=CollectionID(7))
    assert (await c.cache.fill("default", "new")).collection_id == 7


async def test_an_entry_knows_its_indexes_and_partitions() -> None:
    c = Coordinators()
    c.index.defined.append(index())
    cached = await c.cache.fill("default", "c")
    fields = cached.view.schema
    assert cached.index_spec(fields.field("v0")).metric_type == "L2"
    with pytest.raises(PartitionNotFound, match="partition=nope"):
        cached.partition_id("nope")
    c.index.defined.clear()
    c.cache.invalidate(CID)
    with pytest.raises(IndexNotFound, match="field=v0"):
        (await c.cache.fill("default", "c")).index_spec(fields.field("v0"))
