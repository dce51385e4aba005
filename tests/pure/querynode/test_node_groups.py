"""Query nodes in resource groups: what is loaded in one is served there, through transfers and losses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from unittest.mock import AsyncMock, patch

import pytest
from fakes import FakeNodes
from node_world import COLLECTION
from test_node_fleet import Fleet, scenario

from elanus.api.querynode import DamagedFile, LoadSegment, QueryNodeApi
from elanus.core.catalog import Partition
from elanus.core.errors import InvalidParameter, NodesNotEnough, ResourceGroupNotFound
from elanus.core.group_config import GroupConfig
from elanus.core.ids import NodeID, PartitionID
from elanus.core.nodes import Nodes
from elanus.core.resource_groups import DEFAULT_RESOURCE_GROUP as DEFAULT
from elanus.core.timestamps import Timestamp
from elanus.proxy.fanout.client import FanOut
from elanus.proxy.fanout.deadline import Patience
from elanus.querycoord.state import LoadState


async def begun(fleet: Fleet, *numbers: int, **made: int) -> None:
    """A fleet with resource groups of so many nodes, and nothing loaded."""
    await fleet.begin(*numbers)
    await fleet.coord.release(COLLECTION, ())
    for name, count in made.items():
        await fleet.coord.create_resource_group(name)
        await fleet.coord.transfer_node(DEFAULT, name, count)


async def load(fleet: Fleet, *groups: str, replicas: int = 1) -> None:
    await fleet.coord.load(COLLECTION, (), replicas, groups)
    await fleet.loaded()


async def members(fleet: Fleet, name: str) -> tuple[int, ...]:
    return (await fleet.coord.describe_resource_group(name)).nodes


async def serving(fleet: Fleet, *numbers: int) -> None:
    """Until exactly these nodes have anything of the collection."""

    async def is_so() -> bool:
        await fleet.stamp_and_tick()
        statuses = {n: await node.status() for n, node in fleet.nodes.items()}
        return {n for n, s in statuses.items() if COLLECTION in s.versions} == set(numbers)

    await fleet.until(is_so)


@scenario
async def test_a_load_stays_on_the_nodes_of_its_group(fleet: Fleet) -> None:
    for n in range(4):
        await fleet.finish(2 * n, 2 * n + 1)
    await begun(fleet, 1, 2, 3, rg=1)
    assert (await members(fleet, "rg"), await members(fleet, DEFAULT)) == ((3,), (1, 2))
    await load(fleet, "rg")
    await fleet.handed_off()
    assert await fleet.spread() == {1: 0, 2: 0, 3: 4}
    (replica,) = await fleet.coord.replicas(COLLECTION)
    assert (replica.group, replica.nodes, replica.outbound) == ("rg", (3,), {})
    await fleet.finish(20)
    await fleet.handed_off()
    await fleet.check()
    assert await fleet.spread() == {1: 0, 2: 0, 3: 5}
    await fleet.end()


@scenario
async def test_replicas_are_spread_over_groups(fleet: Fleet) -> None:
    await fleet.finish(1, 2)
    await begun(fleet, 1, 2, 3, a=1, b=1)
    await load(fleet, "b", "a", replicas=2)
    found = await fleet.coord.replicas(COLLECTION)
    assert [(r.info.replica, r.group, r.nodes) for r in found] == [(0, "b", (2,)), (1, "a", (3,))]
    with pytest.raises(InvalidParameter, match=r"collection .* loaded for both"):
        await fleet.coord.transfer_node("a", "b", 1)
    with pytest.raises(InvalidParameter, match="should use collection's resource group"):
        await fleet.coord.load(COLLECTION, (), 2, (DEFAULT,))
    await fleet.coord.load(COLLECTION, (), 2, ())
    with pytest.raises(InvalidParameter, match="some replicas still loaded"):
        await fleet.coord.drop_resource_group("a")
    await fleet.check()
    await fleet.end()


@scenario
async def test_a_load_into_a_group_without_enough_nodes_is_refused(fleet: Fleet) -> None:
    await begun(fleet, 1, 2, rg=1)
    with pytest.raises(NodesNotEnough, match=r"2 replicas need .* 1 are alive in resource group rg"):
        await fleet.coord.load(COLLECTION, (), 2, ("rg",))
    with pytest.raises(NodesNotEnough, match="2147483647 replicas need"):
        await fleet.coord.load(COLLECTION, (), 2**31 - 1)
    with pytest.raises(ResourceGroupNotFound):
        await fleet.coord.load(COLLECTION, (), 1, ("nope",))
    assert await LoadState(fleet.meta).all() == []
    await fleet.end()


@scenario
async def test_a_transferred_node_takes_part_in_its_new_group_and_leaves_the_old(fleet: Fleet) -> None:
    for n in range(4):
        await fleet.finish(2 * n, 2 * n + 1)
    await begun(fleet, 1, 2, 3, rg=1)
    await load(fleet)
    await fleet.handed_off()
    await fleet.coord.transfer_node(DEFAULT, "rg", 1)
    default, group = await fleet.coord.resource_groups()
    assert (default.name, group.name, group.nodes) == (DEFAULT, "rg", (2, 3))
    assert default == await fleet.coord.describe_resource_group(DEFAULT)
    await serving(fleet, 1)
    await fleet.check()
    assert await fleet.spread() == {1: 4, 2: 0, 3: 0}
    await fleet.coord.transfer_node("rg", DEFAULT, 2)
    await fleet.coord.drop_resource_group("rg")
    assert await fleet.coord.list_resource_groups() == (DEFAULT,)

    async def even() -> bool:
        await fleet.stamp_and_tick()
        return max((await fleet.spread()).values()) < 4

    await fleet.until(even)
    await fleet.check()
    await fleet.end()


@scenario
async def test_a_transferred_replica_moves_while_reads_go_on(fleet: Fleet) -> None:
    segment_id = await fleet.finish(1, 2)
    await begun(fleet, 1, 2, rg=1)
    await load(fleet)
    await fleet.check()
    await fleet.coord.transfer_replica(COLLECTION, DEFAULT, "rg", 1)
    await fleet.check()
    await serving(fleet, 2)
    (replica,) = await fleet.coord.replicas(COLLECTION)
    assert (replica.group, replica.info.sealed) == ("rg", {segment_id: 2})
    await fleet.check()
    await fleet.end()


@scenario
async def test_a_node_that_is_about_to_stop_hands_over_what_it_serves(fleet: Fleet) -> None:
    for n in range(4):
        await fleet.finish(2 * n, 2 * n + 1)
    await begun(fleet, 1, 2, 3, rg=1)
    await load(fleet)
    await fleet.handed_off()
    assert await fleet.spread() == {1: 2, 2: 2, 3: 0}
    assert await fleet.coord.leave(NodeID(2))
    assert await members(fleet, DEFAULT) == (1,)
    await fleet.check()
    await serving(fleet, 1)
    await fleet.check()
    assert await fleet.spread() == {1: 4, 2: 0, 3: 0}
    assert not await fleet.coord.leave(NodeID(2)), "it has nothing any more"
    assert not await fleet.coord.leave(NodeID(1)), "no other node of its group would take over"
    assert not await fleet.coord.leave(NodeID(77))
    await fleet.check()
    await fleet.end()


@scenario
async def test_partitions_are_released_on_a_node_that_still_serves_what_moves(fleet: Fleet) -> None:
    """It is in no replica any more, but reads go to it until the others have loaded."""
    made = await fleet.collection_by_id(COLLECTION)
    partitions = (*made.partitions, Partition(PartitionID(2), "other", Timestamp(0)))
    fleet.collection_by_id = AsyncMock(  # type: ignore[method-assign]
        return_value=replace(made, partitions=partitions)
    )
    await fleet.finish(1, 2)
    await fleet.begin(1)
    await fleet.insert([(9, 9)], partition=2)
    await fleet.join(2)
    loading, loaded, load_segment = asyncio.Event(), asyncio.Event(), fleet.nodes[NodeID(2)].load_segment

    async def slow(request: LoadSegment) -> tuple[DamagedFile, ...]:
        loading.set()
        await loaded.wait()
        return await load_segment(request)

    fleet.nodes[NodeID(2)].load_segment = slow  # type: ignore[method-assign]
    assert await fleet.coord.leave(NodeID(1))
    await loading.wait()
    await fleet.coord.release(COLLECTION, (PartitionID(2),))
    await fleet.stamp_and_tick()
    rows = await asyncio.to_thread(fleet.proxy.query, fleet.node_query(), Patience(10.0))
    assert rows["id"].to_pylist() == [1, 2]
    loaded.set()
    await serving(fleet, 2)
    await fleet.end()


@scenario
async def test_a_proxy_that_does_not_start_stops_its_reads_twice(fleet: Fleet) -> None:
    """By itself, and as a role that has not started."""
    await fleet.begin(1)
    nodes: Nodes[QueryNodeApi] = FakeNodes({NodeID(1): fleet.nodes[NodeID(1)]})
    reads = FanOut(NodeID(2), "results-2", fleet.channels, fleet.coord, 10.0, nodes)
    await reads.start()
    await reads.stop()
    await reads.stop()
    await fleet.check()
    await fleet.end()


@scenario
async def test_a_node_that_nobody_can_replace_goes_on_until_it_stops(fleet: Fleet) -> None:
    await fleet.finish(1, 2)
    await begun(fleet, 1, 2)
    await load(fleet, replicas=2)
    assert not await fleet.coord.leave(NodeID(2)), "the other node has a replica of its own"
    await fleet.check()
    await fleet.end()


@scenario
async def test_a_replica_whose_group_has_no_node_left_goes_on_where_it_is(fleet: Fleet) -> None:
    await fleet.finish(1, 2)
    await fleet.begin(1)
    await fleet.coord.create_resource_group("rg")
    await fleet.coord.transfer_node(DEFAULT, "rg", 1)
    (replica,) = await fleet.coord.replicas(COLLECTION)
    assert (replica.nodes, replica.outbound) == ((1,), {"rg": 1})
    assert (await fleet.coord.describe_resource_group("rg")).incoming == {COLLECTION: 1}
    assert (await fleet.coord.describe_resource_group(DEFAULT)).outgoing == {COLLECTION: 1}
    await fleet.finish(3)
    await fleet.handed_off()
    await fleet.check()
    await fleet.join(2)
    await serving(fleet, 2)
    await fleet.check()
    await fleet.end()


@scenario
async def test_groups_outlive_the_coordinator_and_its_nodes(fleet: Fleet) -> None:
    await fleet.finish(1, 2)
    await begun(fleet, 1, 2, rg=1)
    await load(fleet, "rg")
    await fleet.coord.stop()
    await fleet.start_coordinator()
    fleet.proxy._replicas._querycoord = fleet.coord
    assert await members(fleet, "rg") == (2,)
    await fleet.loaded()
    await fleet.kill(2)
    assert await members(fleet, "rg") == ()
    await fleet.join(3)
    assert await members(fleet, "rg") == (3,), "a node that joins fills the gap"
    await serving(fleet, 3)
    await fleet.check()
    assert (await LoadState(fleet.meta).groups())[0].nodes == (NodeID(3),)
    await fleet.end()


@scenario
async def test_a_group_that_lost_a_node_takes_one_of_the_default_group(fleet: Fleet) -> None:
    await fleet.finish(1, 2)
    with patch("elanus.querycoord.groups._RECOVER_S", 0.05):
        await begun(fleet, 1, 2, rg=1)
        await load(fleet, "rg")
        await fleet.kill(2)
        await serving(fleet, 1)
        await fleet.check()
        assert (await members(fleet, "rg"), await members(fleet, DEFAULT)) == ((1,), ())
    await fleet.end()


@scenario
async def test_declared_groups_move_nodes_and_the_replicas_follow(fleet: Fleet) -> None:
    async def regrouped(*nodes: tuple[int, ...]) -> None:
        async def is_so() -> bool:
            await fleet.stamp_and_tick()
            return [r.nodes for r in await fleet.coord.replicas(COLLECTION)] == list(nodes)

        await fleet.until(is_so)
        await fleet.check()

    await fleet.finish(1, 2)
    await begun(fleet, 1, 2, 3)
    await fleet.coord.create_resource_group("a", GroupConfig(1, 1))
    await fleet.coord.create_resource_group("b", GroupConfig(1, 2))
    assert (await members(fleet, "a"), await members(fleet, "b")) == ((3,), (2,))
    await load(fleet, "a", "b", replicas=2)
    await fleet.check()
    await fleet.coord.update_resource_groups({"a": GroupConfig(1, 2), "b": GroupConfig(2, 2)})
    assert (await members(fleet, "b"), await members(fleet, DEFAULT)) == ((1, 2), ())
    await regrouped((3,), (1, 2))
    await fleet.coord.update_resource_groups({"b": GroupConfig(1, 1), "a": GroupConfig(2, 2)})
    assert (await members(fleet, "a"), await members(fleet, "b")) == ((2, 3), (1,))
    await regrouped((2, 3), (1,))
    await fleet.coord.release(COLLECTION, ())
    with pytest.raises(InvalidParameter, match="limits"):
        await fleet.coord.drop_resource_group("a")
    await fleet.coord.update_resource_groups({"a": GroupConfig(), DEFAULT: GroupConfig(2, 9)})
    await fleet.coord.drop_resource_group("a")
    await fleet.coord.stop()
    await fleet.start_coordinator()
    assert (await fleet.coord.describe_resource_group(DEFAULT)).config == GroupConfig(2, 9)
    assert (await members(fleet, DEFAULT), await members(fleet, "b")) == ((2, 3), (1,))
    await fleet.end()
