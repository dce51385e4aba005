"""A collection whose schema has changed is loaded again, as it was loaded before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from fakes import CID, DEFAULT, OTHER, collection, manifest, recovery, settle
from query_bench import Bench

from elanus.core.errors import InvalidParameter, Unavailable
from elanus.core.field_changes import with_added_field
from elanus.core.ids import CollectionID, FieldID
from elanus.core.schema import DataType, FieldSchema

OF = collection(partitions=(DEFAULT, OTHER))
NEW = with_added_field(OF.schema, FieldSchema(FieldID(0), "n", DataType.INT64, nullable=True))


async def test_nodes_release_it_and_load_it_with_the_schema_that_rows_are_written_with() -> None:
    bench = Bench(OF)
    found = recovery(OF, manifest(1, partition_id=DEFAULT), manifest(2, partition_id=OTHER))
    bench.set_data(found)
    await bench.start()
    await bench.coord.load(CID, (DEFAULT,), 1)
    await settle()
    assert bench.node.held[CID].request.schema == OF.schema
    bench.set_data(replace(found, schema=NEW))
    bench.node.calls.asked.clear()
    await bench.coord.reload(CID)
    await settle()
    assert [c for c, _ in bench.node.calls.asked if c.endswith("_collection")] == [
        "release_collection",
        "load_collection",
    ]
    held = bench.node.held[CID]
    assert (held.request.schema, held.request.partition_ids) == (NEW, (DEFAULT,))
    assert set(held.served) == {1}
    (status,) = await bench.coord.loads(CID)
    assert status.percentages == {DEFAULT: 100}
    await bench.coord.stop()


async def test_a_load_of_some_fields_is_the_same_without_one_that_was_dropped() -> None:
    wide = replace(OF, schema=NEW)
    bench = Bench(wide)
    bench.set_data(replace(recovery(OF), schema=NEW))
    await bench.start()
    key, price, *vectors, added = (field.field_id for field in NEW.fields)
    await bench.coord.load(CID, (), 1, fields=(key, *vectors, added))
    with pytest.raises(InvalidParameter, match="can't change the load field list"):
        await bench.coord.load(CID, (), 1, fields=(key, *vectors))
    bench.root.collections[CID] = OF  # the added field is dropped again
    await bench.coord.load(CID, (), 1, fields=(key, *vectors))
    with pytest.raises(InvalidParameter, match=rf"expected=fields {key}, {vectors[0]}\]\[actual=all fields"):
        await bench.coord.load(CID, (), 1)
    fields = tuple(field for field in OF.schema.fields if field.field_id != price)
    bench.root.collections[CID] = replace(OF, schema=replace(OF.schema, fields=fields))
    await bench.coord.load(CID, (), 1)  # these are all fields now
    await bench.coord.stop()


async def interrupted(bench: Bench) -> None:
    """Its caller gives up while a node takes its time over the release."""
    release, go_on = bench.node.release_collection, asyncio.Event()

    async def slow(collection_id: CollectionID) -> None:
        await go_on.wait()
        await release(collection_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.node, "release_collection", slow)
        reloading = asyncio.create_task(bench.coord.reload(CID))
        await settle()
        reloading.cancel()
        await asyncio.gather(reloading, return_exceptions=True)
        go_on.set()


async def failed(bench: Bench) -> None:
    """The store does not answer while the nodes hold nothing."""

    async def away(*_: object) -> int:
        raise Unavailable("no answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.meta, "txn", away)
        with pytest.raises(Unavailable):
            await bench.coord.reload(CID)


@pytest.mark.parametrize("ended", [interrupted, failed])
async def test_it_is_loaded_again_however_the_call_for_it_ends(
    ended: Callable[[Bench], Awaitable[None]],
) -> None:
    bench = Bench(OF)
    found = recovery(OF, manifest(1, partition_id=DEFAULT))
    bench.set_data(found)
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await settle()
    bench.set_data(replace(found, schema=NEW))
    await ended(bench)
    await asyncio.sleep(1)
    held = bench.node.held[CID]
    assert (held.request.schema, set(held.served)) == (NEW, {1})
    assert (await bench.percentages())[DEFAULT] == 100
    await bench.coord.stop()


async def test_what_is_not_loaded_is_left_alone() -> None:
    bench = Bench(OF)
    bench.set_data(recovery(OF))
    await bench.start()
    await bench.coord.reload(CID)
    await settle()
    assert CID not in bench.node.held
    await bench.coord.stop()
