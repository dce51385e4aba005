"""The live nodes of a role, as the sessions tell: from node id to a client of the node."""

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

_AGAIN_S = 1.0
_log = structlog.get_logger("meta")
Api = TypeVar("Api")


class Directory(Nodes[Api]):
    """Always up to date between `start` and `stop`, a little behind the sessions.

    ``connect`` makes a client of a node. It is called once for every session, ``disconnect`` when that has
    ended. A node of which it makes none, for whatever reason, is not there until it does: it is tried again.
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
        self._view = View(meta, self._exclusive_key, self._look)
        self._listeners: list[Callable[[], None]] = []
        self._again: asyncio.TimerHandle | None = None

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
        self._cancel_again()

    async def refresh(self) -> None:
        """Know every node that had registered when this was called. Raises `Unavailable`."""
        await self._view.refresh()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every change, on the event loop. Returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _look(self) -> None:
        infos = {}
        for key, entry in self._view.entries.items():
            if key == self._exclusive_key or key.startswith(self._prefix):
                info = msgspec.json.decode(entry.value, type=SessionInfo)
                infos[info.node_id] = info
        for node_id in self._clients.keys() - infos.keys():
            self._disconnect(self._clients.pop(node_id))
        self._cancel_again()
        new = infos.keys() - self._clients.keys()
        if [node_id for node_id in new if not self._has_connected(infos[node_id])]:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._look)
        self._infos = infos
        for listener in tuple(self._listeners):
            listener()

    def _has_connected(self, info: SessionInfo) -> bool:
        try:
            self._clients[info.node_id] = self._connect(info)
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns no other node
            reason = f"{type(error).__name__}: {error}"
            _log.warning("a node cannot be called", node=info.node_id, address=info.address, error=reason)
            return False
        return True

    def _cancel_again(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
