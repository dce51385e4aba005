"""The progress of a load: complete once the nodes have caught up with it, and as long as they serve then."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from fakes import CID, DEFAULT, OTHER, collection, manifest, recovery, settle
from query_bench import Bench

from elanus.api.query_channel import QueryChannelInfo
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.core.timestamps import Timestamp
from elanus.querycoord.load_progress import LoadProgress
from elanus.querycoord.served import is_followed, is_served

NODE, SEGMENT = NodeID(1), SegmentID(3)
ONE, TWO = PartitionID(11), PartitionID(12)
INFO = QueryChannelInfo(CID, 0, "channel", 1, {SEGMENT: NODE}, {"v0": NODE})


class Replica:
    """The part of a replica that progress reads. ``info``: the version that was announced last."""

    stood_in_for: frozenset[SegmentID] = frozenset()
    unrecovered = SimpleNamespace(all=set)

    def __init__(self) -> None:
        self.info = INFO

    def is_served(self, statuses: Any) -> bool:
        return is_served(self.info, statuses)

    def reads(self, partition_ids: Collection[PartitionID]) -> bool:
        return True

    def is_followed(self, statuses: Any) -> bool:
        return is_followed(self.info, statuses)

    def here(self, _: Any) -> set[SegmentID]:
        return {SEGMENT}

    def serving(self, _: Any) -> dict[SegmentID, object]:
        return {SEGMENT: object()}


def status(version: int, tick: int, channel: str = "channel") -> Any:
    return SimpleNamespace(
        versions={CID: version}, query_channels={CID: channel}, failures={}, service_times={"v0": tick}
    )


def test_a_complete_load_stays_complete_while_nodes_apply_another_version() -> None:
    replica, progress = Replica(), LoadProgress(Timestamp(5))
    target = SimpleNamespace(segments={SEGMENT: SimpleNamespace(partition_id=ONE)}, damaged={})
    progress.begin(cast(Any, target))

    def percentages(statuses: dict[NodeID, Any], of: LoadProgress = progress) -> dict[PartitionID, int]:
        return of.percentages((ONE,), cast(Any, (replica,)), statuses)

    assert percentages({NODE: status(0, 9)}) == {ONE: 99}, "no version yet"
    assert percentages({NODE: status(1, 4)}) == {ONE: 99}, "it has not caught up"
    assert percentages({NODE: status(1, 6)}) == {ONE: 100}
    replica.info = replace(INFO, version=2)
    assert percentages({NODE: status(1, 6)}) == {ONE: 100}, "a handoff is not a load"
    assert percentages({NODE: status(1, 6)}, progress.without({TWO})) == {ONE: 100}
    assert percentages({NODE: status(1, 6, "another")}) == {ONE: 99}, "the node has lost the channel"
    assert percentages({NODE: status(1, 6)}) == {ONE: 99}, "and has to serve the version again"
    assert percentages({NODE: status(2, 6)}) == {ONE: 100}
    assert percentages({}) == {ONE: 99}, "the node is gone"


async def test_a_partition_is_loaded_when_the_nodes_serve_it_and_not_when_they_have_its_rows() -> None:
    """They have the rows of a partition that was released a moment ago, and serve a version all the time."""
    both = collection(partitions=(DEFAULT, OTHER))
    bench = Bench(both)
    growing = (manifest(3, partition_id=DEFAULT), manifest(4, partition_id=OTHER))
    bench.set_data(recovery(both, growing=growing))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await settle()
    set_partitions, may_serve = bench.node.set_partitions, asyncio.Event()

    async def late(collection_id: CollectionID, partition_ids: tuple[PartitionID, ...]) -> None:
        if OTHER in partition_ids:
            await may_serve.wait()
        await set_partitions(collection_id, partition_ids)

    bench.node.set_partitions = late  # type: ignore[method-assign,assignment]
    for _ in range(2):
        may_serve.clear()
        await bench.coord.release(CID, (OTHER,))
        await bench.coord.load(CID, (OTHER,), 1)
        await settle()
        assert bench.node.held[CID].partitions == (DEFAULT,)
        assert (await bench.percentages())[OTHER] < 100
        may_serve.set()
        await settle()
        assert bench.node.held[CID].partitions == (DEFAULT, OTHER)
        assert await bench.percentages() == {DEFAULT: 100, OTHER: 100}
    await bench.coord.stop()
