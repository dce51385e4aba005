"""Whom a life knows of by sessions: the proxies, data nodes, query nodes. The address of each is its name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from elanus.meta.directory import Directory
from elanus.meta.session import SessionInfo
from elanus.rpc.datanode import DataNodeApi, DataNodePorts
from elanus.rpc.gc import SweeperApi
from elanus.rpc.imports import ImportNodeApi
from elanus.rpc.proxy import ProxyApi
from elanus.rpc.querynode import QueryNodeApi
from elanus.sim.life import Life
from elanus.sim.net import Handle, client
from elanus.sim.stores import MetaHandle


class Directories:
    """``handles``: where each is reached. ``is_cluster``: query nodes have sessions too."""

    def __init__(
        self, meta: MetaHandle, life: Life, handles: Mapping[str, Handle], *, is_cluster: bool
    ) -> None:
        self._life = life
        self._handles = handles
        self.proxies = Directory(meta, "proxy", self._proxy)
        self.data_nodes = Directory(meta, "datanode", self._data_node)
        self.query_nodes = Directory(meta, "querynode", self._query_node)
        self._all: list[Directory[Any]] = [self.proxies, self.data_nodes]
        if is_cluster:
            self._all.append(self.query_nodes)

    async def start(self) -> None:
        await asyncio.gather(*(directory.start() for directory in self._all))

    async def stop(self) -> None:
        await asyncio.gather(*(directory.stop() for directory in self._all))

    def _proxy(self, info: SessionInfo) -> ProxyApi:
        return client(self._life, self._handles[info.address], ProxyApi, info.node_id)

    def _query_node(self, info: SessionInfo) -> QueryNodeApi:
        return client(self._life, self._handles[info.address], QueryNodeApi, info.node_id)

    def _data_node(self, info: SessionInfo) -> DataNodePorts:
        node = self._handles[info.address]
        return DataNodePorts(
            info.address,
            client(self._life, node, DataNodeApi, info.node_id),
            client(self._life, node, ImportNodeApi, info.node_id),
            client(self._life, node, SweeperApi, info.node_id),
        )
