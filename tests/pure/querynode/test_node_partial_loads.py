"""Loads of some fields: the vectors of others are read from files, take no memory, and are not searched."""

from __future__ import annotations

import asyncio

import pytest
from node_rows import VECTOR
from node_world import COLLECTION
from test_node_fleet import Fleet, scenario

from elanus.core.errors import IndexNotFound, InvalidParameter
from elanus.proxy.fanout.deadline import Patience
from elanus.querycoord.state import LoadState


async def memory_bytes(fleet: Fleet) -> int:
    (status,) = [await node.status() for node in fleet.nodes.values()]
    return sum(s.memory_bytes for s in status.segments if s.sealed)


async def found(fleet: Fleet) -> int:
    """The number of hits of a search for three."""
    hits = await asyncio.to_thread(fleet.proxy.search, fleet.node_search(1.0, 3), Patience(10.0))
    return len(hits.ids)


@scenario
async def test_fields_that_are_left_out_take_no_memory_and_are_read_but_not_searched(fleet: Fleet) -> None:
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
    await fleet.check()
    with pytest.raises(IndexNotFound, match="field vector is not loaded"):
        await found(fleet)
    (load,) = await LoadState(fleet.meta).all()
    assert load.fields == others
    await fleet.coord.release(COLLECTION, ())
    await fleet.coord.load(COLLECTION, (), 1)
    await fleet.loaded()
    assert await found(fleet) == 3
    await fleet.end()
