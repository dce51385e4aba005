"""An import is complete when every read that begins then sees its rows, whichever replica answers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elanus.api.query_channel import QueryChannelInfo
from elanus.api.querycoord import ReplicaStatus
from elanus.api.querynode import SegmentServing
from elanus.core.errors import CollectionNotLoaded
from elanus.core.ids import CollectionID, IndexID, NodeID, PartitionID, SegmentID, TaskID
from elanus.core.imports import ImportState, ImportTask
from elanus.core.segments import SegmentState
from elanus.core.timestamps import Timestamp
from elanus.server.import_served import ServedImports

CID, PID, SEGMENT = CollectionID(1), PartitionID(2), SegmentID(50)
TASK = ImportTask(TaskID(7), CID, "c", PID, "p", ("f",), 1, ImportState.PERSISTED, segments=(SEGMENT,))
SERVING = SegmentServing(SEGMENT, CID, PID, "v0", 10, True, 0, IndexID(0))


def replica(number: int, node_id: int, *, names: bool = True, lives: bool = True) -> ReplicaStatus:
    node = NodeID(node_id)
    info = QueryChannelInfo(CID, number, "c", 1, {SEGMENT: node} if names else {}, {"v0": node})
    return ReplicaStatus(info, "group", (node,) if lives else (), {})


class Peers:
    """The coordinators, as far as they are asked. ``replicas`` None: the collection is loading."""

    state = SegmentState.FLUSHED
    loaded = PID

    def __init__(
        self, replicas: tuple[ReplicaStatus, ...] | None, serving: tuple[tuple[int, SegmentServing], ...]
    ) -> None:
        self.found = replicas
        self.seen = tuple((NodeID(node_id), segment) for node_id, segment in serving)

    async def segments_by_id(self, segment_ids: object) -> tuple[Any, ...]:
        return (SimpleNamespace(segment_id=SEGMENT, state=self.state, partition_id=PID),)

    async def unbuilt(self, collection_id: object, segment_ids: object) -> tuple[SegmentID, ...]:
        return ()

    async def loads(self, collection_id: object) -> tuple[Any, ...]:
        return (SimpleNamespace(percentages={self.loaded: 100}),)

    async def replicas(self, collection_id: object) -> tuple[ReplicaStatus, ...]:
        if self.found is None:
            raise CollectionNotLoaded("loading")
        return self.found

    async def serving(self, collection_id: object) -> tuple[tuple[NodeID, SegmentServing], ...]:
        return self.seen


async def is_served(replicas: tuple[ReplicaStatus, ...] | None, *serving: tuple[int, SegmentServing]) -> bool:
    peers = cast(Any, Peers(replicas, serving))
    return await ServedImports(peers, peers, peers, peers).is_served(TASK)


@pytest.mark.parametrize("other", [replica(1, 12), replica(1, 12, names=False)])
async def test_every_replica_has_to_serve_it(other: ReplicaStatus) -> None:
    assert not await is_served((replica(0, 11), other), (11, SERVING))
    assert await is_served((replica(0, 11), replica(1, 12)), (11, SERVING), (12, SERVING))


async def test_a_replica_without_nodes_is_not_waited_for() -> None:
    assert await is_served((replica(0, 11), replica(1, 12, lives=False)), (11, SERVING))
    assert not await is_served((replica(0, 11, lives=False),)), "of nobody anything is known"


async def test_its_moment_has_to_have_come() -> None:
    assert not await is_served((replica(0, 11),), (11, replace(SERVING, visible=False)))
    assert await is_served((replica(0, 11),), (11, SERVING))


async def test_a_load_that_has_begun_is_waited_for() -> None:
    assert not await is_served(None)


@pytest.mark.parametrize("state", [SegmentState.FLUSHED, SegmentState.DROPPED])
async def test_deletes_in_other_partitions_are_waited_for(state: SegmentState) -> None:
    """Its own partition was dropped while it was served, or is not loaded: its deletes concern the others."""

    class Upsert(Peers):
        loaded = PartitionID(3)

        async def alloc_timestamp(self, count: int) -> Timestamp:
            return Timestamp(100)

    def at(moments: dict[str, Timestamp]) -> Any:
        peers = Upsert((replace(replica(0, 11), info=replace(replica(0, 11).info, deletes=moments)),), ())
        peers.state = state
        return peers

    task = replace(TASK, deltas=("d",))
    for moments, expected in (({}, False), ({"d": Timestamp(100)}, False), ({"d": Timestamp(99)}, True)):
        peers = at(moments)
        assert await ServedImports(peers, peers, peers, peers).is_served(task) is expected, moments
