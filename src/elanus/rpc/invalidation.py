"""Telling every proxy that what it caches of a collection is no longer so.

A change of definitions returns when no proxy works with the old ones. A call that fails may or may not have
arrived, so it is repeated until the proxy has answered or is gone (its cache with it). One that does not
answer in time makes the change's caller get an error, which says so; it is told all the same, later.

Proxies hear of a change also when its caller has given up. So the telling begins with the change: to persist
the one and `begin` the other is what no cancellation parts (`elanus.meta.whole`); only the waiting (`heard`)
may be cut off. Whoever comes next and finds nothing to change (a client's second try), or takes a name that
the change has freed, waits for it too (`all_heard`).
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

Telling = tuple[asyncio.Task[None], ...]
"""What proxies are being told; goes on whether anybody waits for its end or not."""


class Invalidations:
    """``proxies``: those that are there; one that is no longer among them needs to hear nothing."""

    def __init__(self, proxies: Mapping[NodeID, ProxyApi]) -> None:
        self._proxies = proxies
        self._telling: dict[asyncio.Task[None], NodeID] = {}
        self._stopped = False

    def begin(self, *collection_ids: CollectionID) -> Telling:
        """Have every proxy forget the collections. After the end of this role its successor does
        (`tell_everything`)."""
        if self._stopped:
            return ()
        return tuple(self._begin(n, c) for c in collection_ids for n in tuple(self._proxies))

    async def heard(self, telling: Telling) -> None:
        """Returns when the proxies have forgotten it. Raises `Unavailable` when one is silent."""
        if not telling:
            return
        done, late = await asyncio.wait(telling, timeout=_PATIENCE_S)
        for task in done:
            task.result()
        if late:
            silent = sorted({self._telling[task] for task in late})
            raise Unavailable(
                f"the change is made, but proxies {silent} have not answered for {_PATIENCE_S:g} s and may "
                "still work with what was before"
            )

    async def all_heard(self) -> None:
        """Returns when every proxy has heard of all changes so far, also of those whose callers are gone.

        Raises `Unavailable` when one is silent.
        """
        try:
            await self.heard(tuple(self._telling))
        except Unavailable as error:
            raise Unavailable(f"of an earlier change: {error.message}; retry when they have") from None

    def tell_everything(self) -> None:
        """Have every proxy forget all collections, without waiting: who was told what is not known."""
        for node_id in tuple(self._proxies):
            self._begin(node_id, None)

    async def stop(self) -> None:
        self._stopped = True
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    def _begin(self, node_id: NodeID, collection_id: CollectionID | None) -> asyncio.Task[None]:
        task = asyncio.create_task(self._tell(node_id, collection_id), name=f"invalidate proxy {node_id}")
        self._telling[task] = node_id
        task.add_done_callback(self._telling.pop)
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
