"""Loads of some fields: the others take no memory, and reads that need them are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from node_rows import VECTOR
from node_world import COLLECTION
from test_node_fleet import Fleet, scenario

from elanus.core.errors import FieldNotLoaded, InvalidFilter, InvalidParameter
from elanus.core.ids import FieldID, NodeID
from elanus.proxy.fanout.client import FanOut
from elanus.proxy.fanout.deadline import Patience
from elanus.querycoord.state import LoadState


async def memory_bytes(fleet: Fleet) -> int:
    (status,) = [await node.status() for node in fleet.nodes.values()]
    return sum(s.memory_bytes for s in status.segments if s.sealed)


async def found(fleet: Fleet) -> int:
    """The number of hits of a search for three."""
    hits = await asyncio.to_thread(fleet.proxy.search, fleet.node_search(1.0, 3), Patience(10.0))
    return len(hits.ids)


async def rows(fleet: Fleet, text: str = "", **changes: Any) -> Mapping[str, pa.Array]:
    return await asyncio.to_thread(fleet.proxy.query, fleet.node_query(text, **changes), Patience(10.0))


@scenario
async def test_fields_that_are_left_out_take_no_memory_and_are_not_read(fleet: Fleet) -> None:
    segment_id = await fleet.finish(*range(1, 9))
    fleet.build_index(segment_id)
    await fleet.begin(1)
    await fleet.handed_off()
    assert await found(fleet) == 3
    whole = await memory_bytes(fleet)
    others = tuple(f for f in fleet.schema.by_id if f != VECTOR)
    with pytest.raises(InvalidParameter, match="can't change the load field list for loaded collection"):
        await fleet.coord.load(COLLECTION, (), 1, (), others)
    await fleet.coord.release(COLLECTION, ())
    await fleet.coord.load(COLLECTION, (), 1, (), others)
    await fleet.loaded()
    assert await memory_bytes(fleet) <= whole - 8 * 2 * 4, "the vectors of eight rows"
    await fleet.insert([(20, 20)])
    await fleet.stamp_and_tick()
    with pytest.raises(FieldNotLoaded, match="field vector is not loaded"):
        await rows(fleet)
    assert (await rows(fleet, output_fields=("value",)))["id"].to_pylist() == [*range(1, 9), 20]
    with pytest.raises(FieldNotLoaded, match='ann field "vector" not loaded'):
        await found(fleet)
    (load,) = await LoadState(fleet.meta).all()
    assert load.fields == others
    await fleet.coord.release(COLLECTION, ())
    await fleet.coord.load(COLLECTION, (), 1)
    await fleet.loaded()
    assert await found(fleet) == 3
    await fleet.end()


@scenario
async def test_scalars_and_dynamic_keys_that_are_left_out_take_no_memory(fleet: Fleet) -> None:
    segment_id = await fleet.finish(*range(1, 9))
    fleet.build_index(segment_id)
    await fleet.join(1)
    await fleet.start_coordinator()
    fleet.proxy = FanOut(NodeID(1), "results-1", fleet.channels, fleet.coord, 10.0)
    await fleet.proxy.start()
    await fleet.tick()
    await fleet.coord.load(COLLECTION, (), 1, (), (FieldID(100), VECTOR))
    await fleet.loaded()
    await fleet.insert([(20, 20)])
    await fleet.stamp_and_tick()
    (node,) = fleet.nodes.values()
    held = node._collections[COLLECTION].snapshot
    for segment in held.segments:
        (block,) = segment.blocks
        assert set(block._columns) <= {"id", "vector"}, "sealed" if segment.sealed else "growing"
    assert [segment.sealed for segment in held.segments] == [True, False]
    everything = ("value", "vector", "tag", "$meta")
    spared = await rows(fleet, output_fields=everything, spared_fields=everything)
    assert set(spared) == {"id", "vector"}
    assert spared["id"].to_pylist() == [*range(1, 9), 20]
    with pytest.raises(FieldNotLoaded, match="field value is not loaded"):
        await found(fleet)
    with pytest.raises(InvalidFilter, match="is not loaded"):
        await rows(fleet, 'tag == "a"', output_fields=())
    with pytest.raises(InvalidFilter, match="field half is dynamic but dynamic field is not loaded"):
        await asyncio.to_thread(
            fleet.proxy.count, fleet.node_query("half > 1", output_fields=()), Patience(10.0)
        )
    await fleet.end()
