"""What all definitions share: the catalog, one change of it at a time, and the caches that follow it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from elanus.core.catalog import Collection
from elanus.core.ids import NodeID
from elanus.rootcoord.catalog import Catalog
from elanus.rootcoord.ids import IdAllocator
from elanus.rootcoord.tso import TimestampOracle
from elanus.rpc.proxy import ProxyApi


class Definitions:
    """``proxies`` finds the handle of a proxy; those in it are told of every change."""

    def __init__(
        self,
        catalog: Catalog,
        ids: IdAllocator,
        oracle: TimestampOracle,
        proxies: Mapping[NodeID, ProxyApi],
    ) -> None:
        self._catalog = catalog
        self._ids = ids
        self._oracle = oracle
        self._proxies = proxies
        self._ddl_lock = asyncio.Lock()

    async def _invalidate(self, collection: Collection) -> None:
        await asyncio.gather(
            *(proxy.invalidate_collection(collection.collection_id) for proxy in self._proxies.values())
        )


def changed_properties(
    known: Mapping[str, str], added: Mapping[str, str], deleted: tuple[str, ...]
) -> dict[str, str]:
    return {k: v for k, v in {**known, **added}.items() if k not in deleted}
