"""The live nodes of a role, according to the sessions: a map from node id to a client of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec
import structlog

from elanus.core.ids import NodeID
from elanus.core.nodes import Nodes
from elanus.meta.port import MetaStore
from elanus.meta.session import SessionInfo, exclusive_key, prefix_of
from elanus.meta.view import View

_RETRY_S = 1.0
_log = structlog.get_logger("meta")
Api = TypeVar("Api")


class Directory(Nodes[Api]):
    """Kept up to date between `start` and `stop`, a little behind the sessions.

    ``connect`` makes a client for a node. It is called once for every session, and ``disconnect`` when the
    session has ended. If ``connect`` fails, for whatever reason, it is retried; until it succeeds the node is
    not listed.
    """

    def __init__(
        self,
        meta: MetaStore,
        role: str,
        connect: Callable[[SessionInfo], Api],
        disconnect: Callable[[Api], None] = lambda _: None,
    ) -> None:
        self._connect = connect
        self._disconnect = disconnect
        self._infos: dict[NodeID, SessionInfo] = {}
        self._clients: dict[NodeID, Api] = {}
        self._exclusive_key = exclusive_key(role)
        self._prefix = prefix_of(role)
        self._view = View(meta, self._exclusive_key, self._update)
        self._listeners: list[Callable[[], None]] = []
        self._retry: asyncio.TimerHandle | None = None

    def __getitem__(self, node_id: NodeID) -> Api:
        return self._clients[node_id]

    def __iter__(self) -> Iterator[NodeID]:
        return iter(tuple(self._clients))

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def infos(self) -> Mapping[NodeID, SessionInfo]:
        return self._infos

    async def start(self) -> None:
        """Raises `Unavailable`."""
        await self._view.start()

    async def stop(self) -> None:
        await self._view.stop()
        self._cancel_retry()

    async def refresh(self) -> None:
        """Include every node that had registered when this was called. Raises `Unavailable`."""
        await self._view.refresh()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every change, on the event loop. Returns a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _update(self) -> None:
        infos = {}
        for key, entry in self._view.entries.items():
            if key == self._exclusive_key or key.startswith(self._prefix):
                info = msgspec.json.decode(entry.value, type=SessionInfo)
                infos[info.node_id] = info
        for node_id in self._clients.keys() - infos.keys():
            self._disconnect(self._clients.pop(node_id))
        self._cancel_retry()
        new = infos.keys() - self._clients.keys()
        if [node_id for node_id in new if not self._has_connected(infos[node_id])]:
            self._retry = asyncio.get_running_loop().call_later(_RETRY_S, self._update)
        self._infos = infos
        for listener in tuple(self._listeners):
            listener()

    def _has_connected(self, info: SessionInfo) -> bool:
        try:
            self._clients[info.node_id] = self._connect(info)
        except Exception as error:  # noqa: BLE001 - any failure concerns this node only
            reason = f"{type(error).__name__}: {error}"
            _log.warning("node not connected", node=info.node_id, address=info.address, error=reason)
            return False
        return True

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
