"""Telling every proxy that what it caches of a collection is no longer so.

A change of definitions returns when no proxy works with the old ones. A call that fails may or may not have
arrived, so it is repeated until the proxy has answered or is gone (its cache with it). One that does not
answer in time makes the change's caller get an error, which says so; it is told all the same, later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from elanus.core.errors import ElanusError, Unavailable
from elanus.core.ids import CollectionID, NodeID
from elanus.rpc.proxy import ProxyApi

_PATIENCE_S = 15.0
"""Longer than a proxy takes to restart."""
_PAUSE_S = 0.05
_PAUSE_MAX_S = 1.0
"""Between two attempts: doubled up to the latter."""
_log = structlog.get_logger("rpc")


class Invalidations:
    """``proxies``: those that are there; one that is no longer among them needs to hear nothing."""

    def __init__(self, proxies: Mapping[NodeID, ProxyApi]) -> None:
        self._proxies = proxies
        self._telling: set[asyncio.Task[None]] = set()

    async def tell(self, collection_id: CollectionID) -> None:
        """Returns when every proxy has forgotten the collection. Raises `Unavailable` when one is silent."""
        told = {node_id: self._begin(node_id, collection_id) for node_id in tuple(self._proxies)}
        if not told:
            return
        done, late = await asyncio.wait(told.values(), timeout=_PATIENCE_S)
        for task in done:
            task.result()
        if late:
            silent = [node_id for node_id, task in told.items() if task in late]
            raise Unavailable(
                f"the change is made, but proxies {silent} have not answered for {_PATIENCE_S:g} s and may "
                "still work with what was before"
            )

    def tell_everything(self) -> None:
        """Have every proxy forget all collections, without waiting: who was told what is not known."""
        for node_id in tuple(self._proxies):
            self._begin(node_id, None)

    async def stop(self) -> None:
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    def _begin(self, node_id: NodeID, collection_id: CollectionID | None) -> asyncio.Task[None]:
        task = asyncio.create_task(self._tell(node_id, collection_id), name=f"invalidate proxy {node_id}")
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
        return task

    async def _tell(self, node_id: NodeID, collection_id: CollectionID | None) -> None:
        pause_s = _PAUSE_S
        while (proxy := self._proxies.get(node_id)) is not None:
            try:
                if collection_id is None:
                    await proxy.invalidate_everything()
                else:
                    await proxy.invalidate_collection(collection_id)
            except ElanusError as error:
                _log.info("proxy not told yet", proxy=node_id, error=error.message)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            else:
                return
