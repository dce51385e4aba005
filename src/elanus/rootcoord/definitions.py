"""What all definitions share: the catalog, one change of it at a time, and the caches that follow it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from elanus.core.catalog import Collection
from elanus.meta.whole import whole
from elanus.rootcoord.catalog import Catalog
from elanus.rootcoord.ids import IdAllocator
from elanus.rootcoord.tso import TimestampOracle
from elanus.rpc.invalidation import Invalidations, Telling


class Definitions:
    """``proxies`` are told of every change before it returns."""

    def __init__(
        self,
        catalog: Catalog,
        ids: IdAllocator,
        oracle: TimestampOracle,
        proxies: Invalidations,
    ) -> None:
        self._catalog = catalog
        self._ids = ids
        self._oracle = oracle
        self._invalidations = proxies
        self._ddl_lock = asyncio.Lock()

    async def _change(self, *collections: Collection) -> None:
        """Persist and show what the collections are from now on. Returns when every proxy has heard of it."""
        await self._invalidations.heard(await self._begin_change(*collections))

    @whole
    async def _begin_change(self, *collections: Collection) -> Telling:
        """A caller that is cancelled meanwhile does not learn whether the change was made; the proxies do."""
        await self._catalog.put(*collections)
        return self._invalidations.begin(*(c.collection_id for c in collections))


def changed_properties(
    known: Mapping[str, str], added: Mapping[str, str], deleted: tuple[str, ...]
) -> dict[str, str]:
    return {k: v for k, v in {**known, **added}.items() if k not in deleted}
