"""Invalidation of what proxies cache: about a collection, databases, users and their rights.

A change of definitions returns only when no proxy works with the old ones. A call that fails may or may not
have arrived, so it is repeated until the proxy has answered or is gone (its cache with it). If a proxy does
not answer in time, the caller of the change gets an error that says so; the proxy is still notified later.

Proxies are notified of a change even when its caller has given up. Persisting the change and starting the
notifications (`begin`) are one uncancellable step (`elanus.meta.cancellation`); only the waiting
(`confirmed`) may be cancelled. A later caller that finds nothing to change (a client's second try), or that
takes a name freed by the change, waits for the notifications too (`all_confirmed`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog

from elanus.api.proxy import ProxyApi
from elanus.core.errors import ElanusError, Unavailable
from elanus.core.ids import CollectionID, NodeID
from elanus.meta.tasks import cancel_and_wait

_PATIENCE_S = 15.0
"""Longer than a proxy takes to restart."""
_PAUSE_S = 0.05
_PAUSE_MAX_S = 1.0
"""The pause between two attempts: doubled each time, up to the maximum."""
_log = structlog.get_logger("rpc")

Notice = Callable[[ProxyApi], Coroutine[Any, Any, None]]
"""The call by which a proxy is notified."""
Notifications = tuple[asyncio.Task[None], ...]
"""Notifications under way. They continue whether or not anybody waits for them."""


class Invalidations:
    """``proxies``: the live proxies. A proxy that is no longer among them need not be notified."""

    def __init__(self, proxies: Mapping[NodeID, ProxyApi]) -> None:
        self._proxies = proxies
        self._notifying: dict[asyncio.Task[None], NodeID] = {}
        self._stopped = False

    def begin(self, *collection_ids: CollectionID) -> Notifications:
        """Make every proxy forget the collections. Once this role has stopped, its successor does this
        (`invalidate_everything`)."""
        if self._stopped:
            return ()
        return tuple(self._begin(n, _forget(c)) for c in collection_ids for n in tuple(self._proxies))

    def begin_access(self) -> Notifications:
        """Make every proxy forget users, roles and privileges. As `begin`."""
        if self._stopped:
            return ()
        return tuple(self._begin(n, lambda proxy: proxy.invalidate_access()) for n in tuple(self._proxies))

    def begin_databases(self) -> Notifications:
        """Make every proxy forget the properties of databases. As `begin`."""
        if self._stopped:
            return ()
        return tuple(self._begin(n, lambda proxy: proxy.invalidate_databases()) for n in tuple(self._proxies))

    async def confirmed(self, notifications: Notifications) -> None:
        """Wait until the proxies have forgotten the collections. Raises `Unavailable` when one does not
        answer."""
        if not notifications:
            return
        done, late = await asyncio.wait(notifications, timeout=_PATIENCE_S)
        for task in done:
            task.result()
        if late:
            silent = sorted({self._notifying[task] for task in late})
            raise Unavailable(
                f"the change is made, but proxies {silent} have not answered for {_PATIENCE_S:g} s and may "
                "still work with what was before"
            )

    async def all_confirmed(self) -> None:
        """Wait until every proxy has confirmed all changes so far, including those whose callers are gone.

        Raises `Unavailable` when one does not answer.
        """
        try:
            await self.confirmed(tuple(self._notifying))
        except Unavailable as error:
            raise Unavailable(f"of an earlier change: {error.message}; retry when they have") from None

    def invalidate_everything(self) -> None:
        """Make every proxy forget all it caches, without waiting: which proxy was notified of what is not
        known."""
        for node_id in tuple(self._proxies):
            self._begin(node_id, lambda proxy: proxy.invalidate_everything())

    async def stop(self) -> None:
        self._stopped = True
        await cancel_and_wait(*self._notifying)

    def _begin(self, node_id: NodeID, notice: Notice) -> asyncio.Task[None]:
        task = asyncio.create_task(self._notify(node_id, notice), name=f"invalidate proxy {node_id}")
        self._notifying[task] = node_id
        task.add_done_callback(self._notifying.pop)
        return task

    async def _notify(self, node_id: NodeID, notice: Notice) -> None:
        pause_s = _PAUSE_S
        while (proxy := self._proxies.get(node_id)) is not None:
            try:
                await notice(proxy)
            except ElanusError as error:
                _log.info("proxy not notified; trying again", proxy=node_id, error=error.message)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            else:
                return


def _forget(collection_id: CollectionID) -> Notice:
    return lambda proxy: proxy.invalidate_collection(collection_id)
