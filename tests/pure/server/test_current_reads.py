"""Reads of a collection that the query node of the process does not have (yet)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from elanus.api.querycoord import LoadStatus
from elanus.core.errors import CollectionNotFullyLoaded, CollectionNotLoaded
from elanus.core.ids import CollectionID, PartitionID
from elanus.core.timestamps import Timestamp
from elanus.proxy.fanout.blocking import ThreadWaits
from elanus.proxy.fanout.deadline import Patience
from elanus.server.current_reads import CurrentReads

COLLECTION = CollectionID(7)


class EmptyNode:
    def service_time(self, collection_id: CollectionID) -> Timestamp:
        raise CollectionNotLoaded(f"collection not loaded[collection={collection_id}]")

    def wait_service_time(self, collection_id: CollectionID, _ts: Timestamp, _timeout_s: float) -> None:
        self.service_time(collection_id)


class QueryCoord:
    def __init__(self, *loads: LoadStatus) -> None:
        self._loads = loads

    async def loads(self, collection_id: CollectionID) -> tuple[LoadStatus, ...]:
        return tuple(load for load in self._loads if load.collection_id == collection_id)


LOADING = LoadStatus(COLLECTION, True, {PartitionID(1): 100, PartitionID(2): 40})


async def refusal(read: Callable[[CurrentReads, Patience], object], *loads: LoadStatus) -> str:
    coordinator: Any = QueryCoord(*loads)
    node: Any = EmptyNode()
    reads = CurrentReads(lambda: node, coordinator, ThreadWaits(asyncio.get_running_loop()))
    kind = CollectionNotFullyLoaded if loads else CollectionNotLoaded
    with pytest.raises(CollectionNotLoaded) as caught:
        await asyncio.to_thread(read, reads, Patience(5.0, time.monotonic))
    assert type(caught.value) is kind
    return caught.value.message


@pytest.mark.parametrize(
    "read",
    [
        lambda reads, patience: reads.service_time(COLLECTION, patience),
        lambda reads, patience: reads.wait_service_time(COLLECTION, Timestamp(9), patience),
    ],
    ids=["weak", "strong"],
)
def test_what_is_to_be_loaded_is_not_said_to_be_released(
    read: Callable[[CurrentReads, Patience], object],
) -> None:
    """After a restart the load is on record, and the node does not have the collection yet."""
    assert "fully loaded[collection=7]: 40 % are loaded; retry" in asyncio.run(refusal(read, LOADING))
    assert asyncio.run(refusal(read)) == "collection not loaded[collection=7]"
