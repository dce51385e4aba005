"""Several index nodes: builds are spread over those that are there, and leave those that are not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fakes import settle
from index_bench import CID, Bench, FakeNode, segment

from elanus.api.indexcoord import BuildState
from elanus.core.errors import DiskFull, ElanusError, StoreRefused, Unavailable
from elanus.core.ids import NodeID


async def with_an_index(directory: Path, *, builds_max: int = 1) -> Bench:
    bench = Bench(directory, builds_max=builds_max)
    await bench.start()
    await bench.create()
    return bench


def built(node: FakeNode) -> list[tuple[int, int]]:
    """The segments it was ordered, each with the build's version."""
    return node.calls.of("build_index")


async def test_builds_are_spread_over_the_nodes(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    first, second = await bench.node(1), await bench.node(2)
    for node in (first, second):
        node.go_on.clear()
    await bench.flushed(*(segment(n) for n in range(1, 6)))
    assert (first.at_once, second.at_once) == (1, 1)
    for node in (first, second):
        node.go_on.set()
    await settle(300)
    assert (first.at_once_max, second.at_once_max) == (1, 1)
    assert len(built(first)) + len(built(second)) == len(await bench.files()) == 5
    await bench.coord.stop()


async def test_a_node_that_comes_later_takes_what_waits(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    first = await bench.node(1)
    first.go_on.clear()
    await bench.flushed(segment(1), segment(2))
    second = await bench.node(2)
    assert (built(first), built(second)) == ([(1, 1)], [(2, 1)])
    await bench.coord.stop()


async def test_a_lost_nodes_build_goes_to_another_one(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    lost, other = await bench.node(1), await bench.node(2)
    lost.calls.failing["build_index"] = Unavailable("gone")
    await bench.flushed(segment(1))
    await settle()
    assert (built(lost), built(other)) == ([(1, 1)], [(1, 2)])
    assert len(await bench.files()) == 1
    await bench.coord.stop()


async def test_a_node_that_says_it_is_up_and_breaks_off_every_call_keeps_no_build_from_another(
    tmp_path: Path,
) -> None:
    bench = await with_an_index(tmp_path)
    await bench.node(1)
    bench.nodes["unix:/node-1"].calls.failing["build_index"] = Unavailable("no way there")
    await bench.node(2)
    for number in range(1, 6):
        await bench.flushed(*(segment(n) for n in range(1, number + 1)))
        await bench.node(1)
    assert len(await bench.files()) == 5
    assert len(built(bench.nodes["unix:/node-1"])) == 1
    await bench.coord.stop()


async def test_a_node_that_broke_off_and_never_came_back_is_forgotten(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    lost = await bench.node(1)
    lost.calls.failing["build_index"] = Unavailable("gone")
    await bench.flushed(segment(1))
    await bench.node(2)
    nodes = bench.coord._builder.nodes
    assert nodes._broken.keys() == {1}
    await asyncio.sleep(300)
    await bench.flushed(segment(1), segment(2))
    assert nodes._broken.keys() == {1}, "it may come back"
    await asyncio.sleep(900)
    await bench.flushed(*(segment(n) for n in (1, 2, 3)))
    assert nodes._broken == {}
    await bench.coord.stop()


async def test_a_node_that_falls_silent_loses_its_build_to_one_that_speaks(tmp_path: Path) -> None:
    """Its machine is gone: nothing reports that, the call just does not end."""
    bench = await with_an_index(tmp_path)
    silent = await bench.node(1)
    silent.go_on.clear()
    await bench.flushed(segment(1))
    other = await bench.node(2)
    for _ in range(30):
        await bench.node(2)
        await asyncio.sleep(1)
    assert built(other) == [(1, 2)]
    silent.go_on.set()
    await settle()
    (path,) = await bench.files()
    assert path.endswith("/2")
    await bench.coord.stop()


async def test_a_node_that_stops_in_order_loses_its_builds_at_once(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    stopping, other = await bench.node(1), await bench.node(2)
    stopping.go_on.clear()
    other.go_on.clear()
    await bench.flushed(segment(1))
    assert (built(stopping), built(other)) == ([(1, 1)], [])
    other.go_on.set()
    await bench.coord.indexnode_stops(NodeID(1))
    await bench.coord.indexnode_stops(NodeID(1))
    await settle()
    assert built(other) == [(1, 2)]
    assert len(await bench.files()) == 1
    await bench.flushed(segment(1), segment(2))
    assert built(other) == [(1, 2), (2, 1)], "it gets no more"
    await bench.coord.stop()


async def test_a_lonely_node_may_be_silent(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node(1)
    node.go_on.clear()
    await bench.flushed(segment(1))
    await asyncio.sleep(600)
    node.go_on.set()
    await settle()
    assert built(node) == [(1, 1)]
    assert len(await bench.files()) == 1
    await bench.coord.stop()


async def test_a_node_at_the_address_of_another_takes_its_place(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    old = await bench.node(1, "unix:/one")
    old.go_on.clear()
    await bench.flushed(segment(1))
    bench.nodes.pop("unix:/one")
    new = await bench.node(2, "unix:/one")
    assert built(new) == [(1, 2)]
    await bench.coord.register_indexnode(1, "unix:/one")  # type: ignore[arg-type]
    await bench.flushed(segment(1), segment(2))
    assert built(old) == [(1, 1)], "it was replaced, whatever it says"
    assert [b.state for b in bench.state.builds()] == [BuildState.FINISHED] * 2
    await bench.coord.stop()


async def test_a_build_that_is_given_up_while_it_waits_for_a_node_leaves_no_trace(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node(1)
    node.go_on.clear()
    await bench.flushed(segment(1), segment(2))
    await bench.flushed(segment(1))
    await asyncio.sleep(10)
    node.go_on.set()
    await settle()
    assert built(node) == [(1, 1)]
    assert list(bench.builds()) == [1]
    await bench.coord.stop()


async def test_a_node_says_how_many_builds_it_has_room_for_now(tmp_path: Path) -> None:
    """Workers of its cluster join and leave."""
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    node.go_on.clear()
    await bench.flushed(*(segment(n) for n in range(1, 6)))
    assert node.at_once == 1
    bench.builds_max = 3
    await bench.node()
    assert node.at_once == 3
    bench.builds_max = 1
    await bench.node()
    node.go_on.set()
    await settle(200)
    assert (node.at_once_max, len(await bench.files())) == (3, 5)
    await bench.coord.stop()


@pytest.mark.parametrize("error", [DiskFull("no room"), StoreRefused("the keys are refused")])
async def test_what_is_wrong_with_the_store_makes_no_build_fail(tmp_path: Path, error: ElanusError) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    node.calls.failing["build_index"] = error
    await bench.flushed(segment(1))
    await asyncio.sleep(200)
    assert (await bench.coord.describe(CID))[0].state is BuildState.IN_PROGRESS
    assert len(node.calls.of("build_index")) == 4
    node.calls.failing.clear()
    await asyncio.sleep(300)
    assert (await bench.coord.describe(CID))[0].state is BuildState.FINISHED
    await bench.coord.stop()
