"""The online process: proxy, coordinators and one query node on one event loop, and the Milvus front.

This is the composition root of the standalone server: it builds what the roles depend on, while
`elanus.server.builders` builds the roles. Roles call each other through `elanus.rpc.local` here, and the
data node through `elanus.rpc.local_port`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from elanus.api.connector import SnapshotApi
from elanus.api.datacoord import DataCoordApi
from elanus.api.datanode import DataNodePorts
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.ledger import JobLedgerApi
from elanus.api.proxy import ProxyApi
from elanus.api.querycoord import QueryCoordApi
from elanus.api.querynode import QueryNodeApi
from elanus.api.rootcoord import RootCoordApi
from elanus.core.clock import SystemClock
from elanus.core.errors import NotReady
from elanus.core.ids import NodeID
from elanus.core.jobs import JobEntry
from elanus.core.nodes import Nodes, NodesAs
from elanus.log.port import Log
from elanus.meta.directory import Directory
from elanus.meta.port import MetaStore
from elanus.meta.session import Session
from elanus.meta.tasks import cancel_and_wait
from elanus.proxy.api.introspection import ComponentView
from elanus.proxy.fanout.blocking import ThreadWaits
from elanus.proxy.role.measures import Measures
from elanus.proxy.role.proxy import Coordinators, Proxy
from elanus.proxy.role.stamps import OwnStamps
from elanus.proxy.verbs.pressure import GrowingData, Pressure
from elanus.querycoord.fleet import OneNode
from elanus.querynode.node import QueryNode
from elanus.rpc.local import LocalRole, local_client
from elanus.rpc.local_port import LocalPort
from elanus.server.backends import log_url, store_url
from elanus.server.builders import Builders, RoleDependencies, data_node_ports, recall_sampler
from elanus.server.current_reads import CurrentReads
from elanus.server.data_dir import DataDir
from elanus.server.free_disk import FreeDisk, directories_of
from elanus.server.roles import Role, RoleHost
from elanus.server.serving.members import Both, Members
from elanus.server.settings import Settings
from elanus.server.status import RoleStatus
from elanus.server.threads import ProcessThreads
from elanus.storage.port import ObjectStore

Api = TypeVar("Api")
_QUERY_NODE = NodeID(2)
"""The coordinators' id for the query node of this process, the same for every instance: there is only one."""
DATA_NODE = "datanode"
"""The data node's role name in its session."""


class Online:
    """Everything of the online process except its ports. Created and used on one event loop.

    ``job_ended`` is called at the end of every Spark job, for the metrics.

    `stop` closes the metadata and the log.
    """

    def __init__(
        self,
        settings: Settings,
        data_dir: DataDir,
        meta: MetaStore,
        log: Log,
        store: ObjectStore,
        measures: Measures,
        job_ended: Callable[[JobEntry], None],
    ) -> None:
        self._settings = settings
        self._paths = data_dir.paths
        self.clock = SystemClock()
        self._threads = ProcessThreads()
        self.meta = meta
        self.log = log
        self.store = store
        self.roles = RoleHost()
        self.recall = recall_sampler(settings)
        self.proxies = ("proxy", *(f"proxy-{n}" for n in range(2, settings.proxy.count + 1)))
        """The names of the proxies."""
        coordinators = ("rootcoord", "datacoord", "indexcoord")
        names = (*coordinators, "querynode", "querycoord", *self.proxies)
        self._handles = {name: LocalRole(name) for name in names}
        self.root = self._client("rootcoord", RootCoordApi)
        self.data = self._client("datacoord", DataCoordApi)
        self.ledger = self._client("datacoord", JobLedgerApi)
        self.snapshots = self._client("datacoord", SnapshotApi)
        self.index = self._client("indexcoord", IndexCoordApi)
        self.query = self._client("querycoord", QueryCoordApi)
        self.node = self._client("querynode", QueryNodeApi)
        self.pipeline = LocalPort(DATA_NODE)
        """Where the data node of this process serves its interfaces."""
        # In this process a role's address is its name.
        self._directory = Directory(self.meta, "proxy", lambda info: self._client(info.address, ProxyApi))
        self.members = Members()
        """The further serving processes."""
        self._data_nodes = Directory(self.meta, DATA_NODE, lambda _: self.pipeline)
        self._builders = Builders(self._dependencies(measures, job_ended))
        self._growing_watch = self._builders.growing_watch()
        self._watching: asyncio.Task[None] | None = None
        self._add_roles()

    def _dependencies(self, measures: Measures, job_ended: Callable[[JobEntry], None]) -> RoleDependencies:
        return RoleDependencies(
            settings=self._settings,
            clock=self.clock,
            meta=self.meta,
            log=self.log,
            store=self.store,
            pools=self._threads.pools,
            scratch=self._paths.scratch,
            measures=measures,
            job_ended=job_ended,
            coordinators=Coordinators(self.root, self.data, self.index, self.query),
            proxies=self._directory,
            query_nodes=lambda _: OneNode(_QUERY_NODE, self.node),
            data_nodes=self._data_nodes_of,
            dial=lambda _: self.pipeline,
            recall=self.recall,
            caches=Both(self._directory, self.members.proxies()),
            mirrors=self.members.mirrors,
        )

    def _client(self, name: str, api: type[Api]) -> Api:
        return local_client(self._handles[name], api)

    @property
    def import_url(self) -> str:
        return self._paths.import_url(self._settings.imports.root)

    async def start(self) -> None:
        await self._directory.start()
        await self._data_nodes.start()
        await self.roles.start()
        self._watching = asyncio.create_task(self._growing_watch.run(), name="growing data")

    async def stop(self) -> None:
        await cancel_and_wait(self._watching)
        await self.roles.stop()
        await self._directory.stop()
        await self._data_nodes.stop()
        await self.log.close()
        await self.meta.close()
        self._threads.shutdown()
        await asyncio.to_thread(self.recall.close)

    async def register_data_node(self) -> Session:
        """Register a session for the data node. Raises `Unavailable`."""
        return await self._builders.register(DATA_NODE, DATA_NODE)

    def _data_nodes_of(self, datacoord: NodeID) -> Nodes[DataNodePorts]:
        nodes = self._data_nodes
        return NodesAs(nodes, lambda n: data_node_ports(nodes.infos[n].address, nodes[n], datacoord))

    # what roles need from the process

    def current_proxy(self, name: str) -> Proxy:
        proxy = self._handles[name].instance
        if proxy is None:
            raise NotReady(f"{name} is not running; retry when it is back")
        return cast(Proxy, proxy)

    def current_node(self) -> QueryNode | None:
        return cast(QueryNode | None, self._handles["querynode"].instance)

    def pressure(self) -> Pressure:
        urls = log_url(self._settings, self._paths), store_url(self._settings, self._paths)
        disk = FreeDisk((self._paths.root, *directories_of(urls)))
        return self._builders.pressure(self._growing, disk.free_bytes)

    def _growing(self) -> GrowingData:
        """The sum is the query node's present one: it runs in this process."""
        return replace(self._growing_watch.latest, total_bytes=self.growing_bytes())

    def components(self) -> list[ComponentView]:
        """Return every role of this process."""
        return [
            ComponentView(self.roles.node_id(name), name, self.roles.is_running(name))
            for name in self.roles.names()
        ]

    def elsewhere(self) -> list[RoleStatus]:
        """Always empty: the data node is reported separately."""
        return []

    def growing_bytes(self) -> int:
        node = self.current_node()
        return node.growing_bytes if node is not None else 0

    # roles of this process

    def _add_roles(self) -> None:
        make = self._builders
        coordinators: dict[str, Callable[[Session], Role]] = {
            "rootcoord": make.rootcoord,
            "datacoord": make.datacoord,
            "indexcoord": make.indexcoord,
            "querycoord": make.querycoord,
        }
        proxies: dict[str, Callable[[Session], Role]] = dict.fromkeys(self.proxies, self._build_proxy)
        nodes: dict[str, Callable[[Session], Role]] = {"querynode": self._build_querynode, **proxies}
        for name in self._handles:
            if name in coordinators:
                self.roles.add(self._handles[name], partial(make.elect, name, name), coordinators[name])
            else:
                role = "proxy" if name in proxies else name
                self.roles.add(self._handles[name], partial(make.register, role, name), nodes[name])

    def _build_querynode(self, _session: Session) -> QueryNode:
        return self._builders.querynode(_QUERY_NODE)

    def _build_proxy(self, session: Session) -> Proxy:
        waits = ThreadWaits(asyncio.get_running_loop())
        reads = CurrentReads(self.current_node, self.query, waits)
        return self._builders.proxy(session, reads, OwnStamps(self._builders.stamp))
