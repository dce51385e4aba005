"""Whom a life knows of by sessions: the proxies, and the data nodes. The address of each is its name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from elanus.meta.directory import Directory
from elanus.meta.session import SessionInfo
from elanus.rpc.datanode import DataNodeApi, DataNodePorts
from elanus.rpc.gc import SweeperApi
from elanus.rpc.imports import ImportNodeApi
from elanus.rpc.proxy import ProxyApi
from elanus.sim.life import Life
from elanus.sim.net import Handle, client
from elanus.sim.stores import MetaHandle


class Directories:
    """``handles``: where each is reached."""

    def __init__(self, meta: MetaHandle, life: Life, handles: Mapping[str, Handle]) -> None:
        self._life = life
        self._handles = handles
        self.proxies = Directory(meta, "proxy", self._proxy)
        self.data_nodes = Directory(meta, "datanode", self._data_node)

    async def start(self) -> None:
        await asyncio.gather(self.proxies.start(), self.data_nodes.start())

    async def stop(self) -> None:
        await asyncio.gather(self.proxies.stop(), self.data_nodes.stop())

    def _proxy(self, info: SessionInfo) -> ProxyApi:
        return client(self._life, self._handles[info.address], ProxyApi)

    def _data_node(self, info: SessionInfo) -> DataNodePorts:
        node = self._handles[info.address]
        return DataNodePorts(
            info.address,
            client(self._life, node, DataNodeApi),
            client(self._life, node, ImportNodeApi),
            client(self._life, node, SweeperApi),
        )
