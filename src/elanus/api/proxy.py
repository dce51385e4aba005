"""The interface of a proxy towards the coordinators."""

from __future__ import annotations

from typing import Protocol

from elanus.api.idempotency import repeatable
from elanus.api.rootcoord import TickReport
from elanus.core.ids import CollectionID
from elanus.core.timestamps import Timestamp


class ProxyApi(Protocol):
    @repeatable
    async def invalidate_collection(self, collection_id: CollectionID) -> None:
        """Forget what is cached of a collection, under every name it was looked up by."""
        ...

    @repeatable
    async def invalidate_everything(self) -> None:
        """Forget what is cached of all collections and of users: a new coordinator cannot know what proxies
        were notified of."""
        ...

    @repeatable
    async def invalidate_access(self) -> None:
        """Forget what is cached of users, roles and privileges. The next request reads them again."""
        ...

    @repeatable
    async def invalidate_databases(self) -> None:
        """Forget the properties of all databases. The next request reads them again."""
        ...

    @repeatable
    async def release_query_channels(self, collection_id: CollectionID) -> None:
        """The collection's query channels were closed or replaced: ask querycoord before the next read."""
        ...

    @repeatable
    async def return_allocations(self, collection_id: CollectionID) -> Timestamp:
        """Forget all segment allocations of a collection; later writes request new ones.

        Returns a timestamp that no write which has used one of them exceeds; 0 if any that is allocated now
        is later. A root coordinator that was replaced may still answer the caller, with earlier ones than
        those of its successor, which this proxy has.
        """
        ...

    @repeatable
    async def report_tick(self, now: Timestamp) -> TickReport:
        """Return a report as of ``now``, a timestamp allocated before this call: a write that the proxy has
        not begun by then gets a later one."""
        ...
