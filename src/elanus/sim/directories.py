"""The peers that a life finds by their sessions: proxies, data nodes, query nodes. An address is a name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from elanus.api.datanode import DataNodeApi, DataNodePorts
from elanus.api.gc import SweeperApi
from elanus.api.imports import ImportNodeApi
from elanus.api.proxy import ProxyApi
from elanus.api.querynode import QueryNodeApi
from elanus.meta.directory import Directory
from elanus.meta.session import SessionInfo
from elanus.sim.incarnation import Life
from elanus.sim.net import Handle, client
from elanus.sim.stores import MetaHandle


class Directories:
    """The directories of one life.

    ``handles``: where each address is reached. ``is_cluster``: query nodes have sessions too.
    """

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
