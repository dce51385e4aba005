"""What the coordinators ask of a proxy."""

from __future__ import annotations

from typing import Protocol

from elanus.core.ids import CollectionID
from elanus.core.timestamps import Timestamp
from elanus.rpc.repeat import repeatable
from elanus.rpc.rootcoord import TickReport


class ProxyApi(Protocol):
    @repeatable
    async def invalidate_collection(self, collection_id: CollectionID) -> None:
        """Forget what is cached of a collection, under every name it was looked up by."""
        ...

    @repeatable
    async def invalidate_everything(self) -> None:
        """Forget what is cached of all collections: a new coordinator cannot know who was told what."""
        ...

    @repeatable
    async def release_query_channels(self, collection_id: CollectionID) -> None:
        """The collection's query channels are closed, or others now: ask querycoord before the next read."""
        ...

    @repeatable
    async def give_back_quota(self, collection_id: CollectionID) -> Timestamp:
        """Forget all segment quota of a collection; later writes ask anew.

        Returns the timestamp of the oldest unfinished write of the collection, or 0: only writes from
        there on may still bring rows for quota given out before.
        """
        ...

    @repeatable
    async def report_tick(self, now: Timestamp) -> TickReport:
        """A report as of ``now``, which was allocated before this is asked: a write that the proxy has not
        begun by then gets a later one."""
        ...
