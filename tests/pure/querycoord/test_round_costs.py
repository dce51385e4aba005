"""The work of one reconciliation of a collection with many segments."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from counting import steps_of, turns_of
from fakes import CID, DEFAULT, collection, manifest, recovery
from query_bench import NODE, Bench

from elanus.api.query_channel import QueryChannelInfo
from elanus.api.querynode import DamagedFile, LoadSegment, QueryNodeStatus, SegmentServing
from elanus.core.errors import Unavailable
from elanus.core.heirs import Heirs
from elanus.core.ids import IndexID, NodeID, SegmentID
from elanus.core.timestamps import Timestamp
from elanus.meta.memory import MemoryMeta
from elanus.querycoord import long_rounds
from elanus.querycoord.fleet import OneNode
from elanus.querycoord.handoff import decide
from elanus.querycoord.long_rounds import LONG_STEP_SEGMENTS
from elanus.querycoord.replica import Replica
from elanus.querycoord.replica_records import ReplicaRecord
from elanus.querycoord.state import LoadState

STEPS_A_SEGMENT_MAX = 330
"""The price of a round for a segment that is served as it should be. It was twice as much when passes were
repeated, and rooms were counted of nodes to which nothing was to go."""


class Compared(int):
    """A number that counts how often it was compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return int(self) == other

    __hash__ = int.__hash__


async def served_by(segments: int) -> Bench:
    """A collection whose segments are all served, by a node whose status costs nothing."""
    one = collection()
    bench = Bench(one)
    bench.data.recoveries[CID] = recovery(one, *(manifest(1000 + n, of=one) for n in range(segments)))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(65.5)  # not at a time at which something is looked at
    assert bench.node.held[CID].version == 1
    status = await bench.node.status(CID)

    async def same_status(_: object = CID) -> QueryNodeStatus:
        return status

    bench.node.status = same_status  # type: ignore[method-assign]
    return bench


async def a_round(bench: Bench) -> object:
    return await bench.coord._loaders[CID]._reconcile()


async def test_a_round_looks_at_each_segment_a_few_times() -> None:
    few, many = 100, 300
    costs = []
    for count in (few, many):
        bench = await served_by(count)
        costs.append(await steps_of(lambda bench=bench: a_round(bench)))  # type: ignore[misc]
        await bench.coord.stop()
    assert (costs[1] - costs[0]) / (many - few) < STEPS_A_SEGMENT_MAX, costs


async def test_others_run_between_the_parts_of_a_long_round(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = await served_by(300)
    at_once = await turns_of(lambda: a_round(bench))
    assert max(at_once) > 0.7 * sum(at_once), "a short round is not cut"
    monkeypatch.setattr(long_rounds, "LONG_STEP_SEGMENTS", 300)
    parts = await turns_of(lambda: a_round(bench))
    assert max(parts) < 0.3 * sum(parts), parts
    assert LONG_STEP_SEGMENTS == 1000
    await bench.coord.stop()


def test_a_segment_is_found_where_the_plan_put_it_although_the_version_names_another_node() -> None:
    other, segment_id = NodeID(NODE + 1), SegmentID(1)
    serving = SegmentServing(segment_id, CID, DEFAULT, "v", 10, True, 0, IndexID(0))
    status = QueryNodeStatus(other, {}, (serving,), 0, 0, {})
    info = QueryChannelInfo(CID, 0, "", 1, {segment_id: NODE}, {})
    moved = _replica(ReplicaRecord(info, (NODE, other), plan={segment_id: other}))
    assert moved.served({other: status}).nodes[segment_id] == other
    assert moved.serving({other: status}) == {segment_id: serving}
    assert not _replica(ReplicaRecord(info, (NODE, other))).serving({other: status})


def _replica(record: ReplicaRecord) -> Replica:
    async def stamp() -> Timestamp:
        raise AssertionError("nothing is announced")

    async def rebuild(_: object) -> None:
        raise AssertionError("nothing is damaged")

    node = OneNode(NODE, None)  # type: ignore[arg-type]
    return Replica(record, node, LoadState(MemoryMeta()), stamp, rebuild, lambda *_: None)


def test_outputs_of_compactions_are_not_searched_for_among_all_segments() -> None:
    one = collection()
    ids = [SegmentID(Compared(1000 + n)) for n in range(500)]
    manifests = {s: replace(manifest(s, of=one), parents=(SegmentID(s - 900),)) for s in ids}
    info = QueryChannelInfo(CID, 0, "", 1, dict.fromkeys(ids, NODE), {})
    replica = _replica(ReplicaRecord(info, (NODE,)))
    served = replica.served({NODE: QueryNodeStatus(NODE, {}, (), 0, 0, {})})
    Compared.comparisons = 0
    assert not decide(manifests, served, Heirs(), (), Timestamp(1)).held
    assert Compared.comparisons <= 10 * len(ids)


async def test_many_segments_are_loaded_some_at_a_time_and_one_vchannel_after_the_other() -> None:
    one = collection(shards=2)
    bench = Bench(one)
    segments = [replace(manifest(1000 + n, of=one), vchannel=one.vchannels[n % 2]) for n in range(200)]
    bench.data.recoveries[CID] = recovery(one, *segments)
    load_segment = bench.node.load_segment
    order: list[str] = []
    running = most = 0

    async def slow(request: LoadSegment) -> tuple[DamagedFile, ...]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        order.append(request.manifest.vchannel)
        await asyncio.sleep(0.01)
        running -= 1
        return await load_segment(request)

    bench.node.load_segment = slow  # type: ignore[method-assign]
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(5)
    assert bench.node.held[CID].served.keys() == {s.segment_id for s in segments}
    assert 8 <= most <= 32
    assert order == sorted(order), "a vchannel's deletes are read once for all of its segments"
    await bench.coord.stop()


async def test_a_load_that_fails_begins_no_more_and_leaves_none_running() -> None:
    one = collection()
    bench = Bench(one)
    segments = [manifest(1000 + n, of=one) for n in range(200)]
    bench.data.recoveries[CID] = recovery(one, *segments)
    load_segment = bench.node.load_segment
    begun: list[int] = []
    running = 0

    async def away(request: LoadSegment) -> tuple[DamagedFile, ...]:
        nonlocal running
        begun.append(request.manifest.segment_id)
        running += 1
        await asyncio.sleep(0.01 * (1 + len(begun) % 3))
        running -= 1
        if len(begun) < 100:
            raise Unavailable("the node is away")
        return await load_segment(request)

    bench.node.load_segment = away  # type: ignore[method-assign]
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(0.2)
    assert 0 < len(begun) <= 32
    assert not running
    await asyncio.sleep(60)
    assert bench.node.held[CID].served.keys() == {s.segment_id for s in segments}, "tried again"
    await bench.coord.stop()
