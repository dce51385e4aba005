"""Sealed segments whose columns are mapped from a local file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from node_world import COLLECTION, World, scenario

from elanus.core.index_properties import MMAP_KEY
from elanus.core.schema import DataType
from elanus.querynode.keys import SortedKeys
from elanus.storage import mapped_columns

ROWS = [(key, key) for key in range(100)]


@pytest.fixture(autouse=True)
def _small_columns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_columns, "MAPPED_MIN_BYTES", 0)


def mappings() -> Iterator[range]:
    """The addresses of mapped columns in this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if ".columns (deleted)" in line:
            first, _, end = line.split()[0].partition("-")
            yield range(int(first, 16), int(end, 16))


def is_mapped(column: pa.Array) -> bool:
    address = column.buffers()[1].address
    return any(address in mapping for mapping in mappings())


async def loaded(world: World) -> dict[str, pa.Array]:
    """Hand rows off, some of which are deleted; return the columns of their segment."""
    await world.insert(ROWS)
    await world.tick()
    world.seal()
    [segment_id] = world.flush()
    await world.delete(range(10))
    await world.tick()
    world.flush()
    await world.hand_off([segment_id])
    snapshot = world.node._collections[COLLECTION].snapshot
    [segment] = [segment for segment in snapshot.segments if segment.sealed]
    return dict(segment.blocks[0]._columns)


@scenario()
async def test_reads_and_deletes_are_as_from_memory(world: World) -> None:
    columns = await loaded(world)
    assert all(is_mapped(columns[name]) for name in ("id", "value", "tag"))
    assert world.count("value >= 5") == 90
    await world.delete(range(10, 20))
    await world.tick()
    assert world.count("value >= 5") == 80


@pytest.mark.parametrize("key_type", [DataType.INT64, DataType.VARCHAR])
def test_the_order_of_keys_is_mapped_with_them(tmp_path: Path, key_type: DataType) -> None:
    async def play() -> None:
        world = World(tmp_path, key_type=key_type)
        await world.start()
        await world.insert([(key, key) for key in range(100, 0, -1)])
        await world.stamp_and_tick()
        world.seal()
        [segment_id] = world.flush()
        await world.hand_off([segment_id])
        [segment] = world.node._collections[COLLECTION].snapshot.segments
        keys = segment.blocks[0].keys
        assert keys.order is not None
        assert all(is_mapped(pa.array(array)) for array in (keys.codes, keys.order))
        again = SortedKeys(keys.keys)
        assert (again.codes == keys.codes).all()
        assert (again.order == keys.order).all()
        assert (again.unique, again.memory_bytes) == (keys.unique, keys.memory_bytes)
        await world.delete(range(10, 20))
        await world.tick()
        assert world.count("value >= 5") == 86
        world.node.invariants()
        await world.node.stop()

    asyncio.run(play())


def test_a_field_may_be_held_in_memory(tmp_path: Path) -> None:
    async def play() -> None:
        world = World(tmp_path)
        fields = [
            replace(f, params={MMAP_KEY: "False"} if f.name == "value" else {}) for f in world.schema.fields
        ]
        world.schema = replace(world.schema, fields=tuple(fields))
        await world.start()
        columns = await loaded(world)
        assert is_mapped(columns["id"])
        assert not is_mapped(columns["value"])
        await world.node.stop()

    asyncio.run(play())


def test_what_a_killed_process_left_in_its_directory_is_removed(tmp_path: Path) -> None:
    async def play() -> None:
        world = World(tmp_path)
        left = world.node._loading._scratch / "left.columns"
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"half")
        await world.start()
        assert not left.exists()
        await world.node.stop()

    asyncio.run(play())
