"""The parts that all definitions share: the catalog, one change of it at a time, and cache invalidation."""

from __future__ import annotations

import asyncio

from elanus.api.cache_invalidation import Invalidations, Notifications
from elanus.core.catalog import Collection, Database
from elanus.meta.cancellation import uncancellable
from elanus.rootcoord.catalog import Catalog
from elanus.rootcoord.ids import IdAllocator
from elanus.rootcoord.tso import TimestampOracle


class Definitions:
    """``invalidations``: the proxies, which are notified of every change before it returns.

    ``lock``: held for the whole of a definition, from its first look at the catalog.
    """

    def __init__(
        self, catalog: Catalog, ids: IdAllocator, oracle: TimestampOracle, invalidations: Invalidations
    ) -> None:
        self.catalog = catalog
        self.ids = ids
        self.oracle = oracle
        self.invalidations = invalidations
        self.lock = asyncio.Lock()

    async def change(self, *collections: Collection) -> None:
        """Persist and show the new state of the collections. Returns when every proxy has been notified."""
        await self.invalidations.confirmed(await self.begin_change(*collections))

    @uncancellable
    async def begin_change(self, *collections: Collection) -> Notifications:
        """A caller cancelled meanwhile does not learn whether the change was made; the proxies do."""
        await self.catalog.put(*collections)
        return self.invalidations.begin(*(c.collection_id for c in collections))

    async def change_database(self, database: Database) -> None:
        """Persist a new or changed database. Returns when every proxy has been notified."""
        await self.invalidations.confirmed(await self._begin_database_change(database))

    @uncancellable
    async def _begin_database_change(self, database: Database) -> Notifications:
        await self.catalog.put_database(database)
        return self.invalidations.begin_databases()
