"""An index of a field or collection that is dropped at the same time: nothing would ever remove it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CID
from index_bench import HNSW, Bench

from elanus.core.catalog import Collection
from elanus.core.errors import CollectionNotFound, CoordinatorReplaced, FieldNotFound


def without_its_vector(bench: Bench) -> Collection:
    """Return the collection as the catalog has it while it loses the vector field."""
    (known,) = bench.collections
    kept = tuple(field for field in known.schema.fields if field != bench.field)
    return replace(known, becoming=replace(known.schema, fields=kept))


async def test_an_index_of_a_field_that_is_being_dropped_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.start()
    bench.root.collections[CID] = without_its_vector(bench)
    with pytest.raises(FieldNotFound, match=f"cannot create index on non-exist field: {bench.field.name}"):
        await coord.create_index(CID, bench.field, "", HNSW)
    assert await coord.indexes(CID) == ()
    await coord.stop()


async def test_an_index_of_a_dropped_collection_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.start()
    del bench.root.collections[CID]
    with pytest.raises(CollectionNotFound):
        await coord.create_index(CID, bench.field, "", HNSW)
    assert await coord.indexes(CID) == ()
    await coord.stop()


async def test_an_index_that_is_created_while_its_field_is_dropped_goes_with_the_field(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    coord = await bench.start()
    number, gets_number, goes_on = bench.root.alloc_ids, asyncio.Event(), asyncio.Event()

    async def waits(count: int) -> int:
        gets_number.set()
        await goes_on.wait()
        return await number(count)

    bench.root.alloc_ids = waits  # type: ignore[method-assign]
    creating = asyncio.create_task(coord.create_index(CID, bench.field, "", HNSW))
    await gets_number.wait()
    losing = without_its_vector(bench)
    bench.root.collections[CID] = losing
    dropping = asyncio.create_task(coord.drop_other_indexes(CID, tuple(losing.readers_schema.by_id)))
    goes_on.set()
    await asyncio.gather(creating, dropping)
    assert await coord.indexes(CID) == ()
    await coord.stop()


async def test_indexes_of_the_fields_that_stay_are_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.start()
    await bench.create()
    (index,) = await coord.indexes(CID)
    for _ in range(2):
        await coord.drop_other_indexes(CID, (bench.field.field_id,))
        assert await coord.indexes(CID) == (index,)
    losing = bench.root.collections[CID] = without_its_vector(bench)
    await coord.drop_other_indexes(CID, tuple(losing.readers_schema.by_id))
    assert await coord.indexes(CID) == ()
    await coord.stop()


async def test_a_late_change_of_the_schema_drops_no_index_of_a_later_field(tmp_path: Path) -> None:
    """A rootcoord that was replaced amid its change goes on with it, after its successor made another."""
    bench = Bench(tmp_path)
    coord = await bench.start()
    await bench.create()
    (index,) = await coord.indexes(CID)
    with pytest.raises(CoordinatorReplaced, match="this change of its schema is over"):
        await coord.drop_other_indexes(CID, tuple(without_its_vector(bench).readers_schema.by_id))
    assert await coord.indexes(CID) == (index,)
    await coord.stop()
