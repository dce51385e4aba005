"""The online process: proxy, coordinators and one query node on one event loop, and the Milvus front.

This is the composition root of the standalone: the only place that knows every role and adapter. Roles
meet through `elanus.rpc.local` here, the pipeline process through `elanus.rpc.carrier`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from elanus.core.errors import NotReady
from elanus.core.gc import GcPolicy
from elanus.core.ids import NodeID
from elanus.core.jobs import JobEntry
from elanus.core.sealing import SealPolicy
from elanus.core.timestamps import Timestamp
from elanus.core.world import SystemClock
from elanus.datacoord.collecting import GcPorts, GcSchedule
from elanus.datacoord.coord import DataCoord, DataPolicy
from elanus.datacoord.flushing import FlushPolicy
from elanus.datacoord.imports import ImportPolicy, ImportSetup
from elanus.datacoord.ledger import JobLedger, LedgerPolicy
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.quota import QuotaPolicy
from elanus.datacoord.state import DataState
from elanus.indexcoord.coord import IndexCoord, IndexPolicy
from elanus.indexcoord.state import IndexState
from elanus.log.port import Log
from elanus.meta.sqlite import SqliteMeta
from elanus.proxy.api import ComponentView
from elanus.proxy.measures import Measures
from elanus.proxy.pressure import Pressure, PressureLimits
from elanus.proxy.proxy import Coordinators, Proxy, ProxyPolicy
from elanus.querycoord.coord import QueryCoord
from elanus.querycoord.fleet import OneNode
from elanus.querycoord.loader import Peers
from elanus.querycoord.state import LoadState
from elanus.querynode.node import QueryNode
from elanus.rootcoord.coord import RootCoord
from elanus.rootcoord.tso import TimestampOracle
from elanus.rpc.carrier import RpcChannel
from elanus.rpc.connector import SnapshotApi
from elanus.rpc.datacoord import DataCoordApi
from elanus.rpc.datanode import DataNodeApi
from elanus.rpc.gc import SweeperApi
from elanus.rpc.imports import ImportNodeApi
from elanus.rpc.indexcoord import IndexCoordApi
from elanus.rpc.indexnode import IndexNodeApi
from elanus.rpc.ledger import JobLedgerApi
from elanus.rpc.local import LocalRole, local_client
from elanus.rpc.pipeline import PipelineApi
from elanus.rpc.proxy import ProxyApi
from elanus.rpc.querycoord import QueryCoordApi
from elanus.rpc.querynode import QueryNodeApi
from elanus.rpc.rootcoord import RootCoordApi
from elanus.server.data_dir import DataDir
from elanus.server.import_served import ServedImports
from elanus.server.reads import CurrentReads
from elanus.server.roles import RoleHost
from elanus.server.settings import Settings
from elanus.storage.port import ObjectStore

Api = TypeVar("Api")
_MB = 1024 * 1024
_FIRST_PROXY = NodeID(1)
_QUERY_NODE = NodeID(2)
_OTHER_PROXIES = 100
"""Node ids of further proxies count up from here."""
_OFFLOAD_THREADS = 4
_SYNC_BYTES = 256 * _MB
_TRIM_INTERVAL_S = 10.0
_GC_SETTLE_S = 5.0
_DISK_LOOK_S = 1.0


class Online:
    """Everything of the online process except its ports. Made and used on one event loop.

    ``job_ended`` hears of the end of every Spark job, for the metrics.

    It closes the log when it stops. Raises what opening the metadata raises.
    """

    def __init__(
        self,
        settings: Settings,
        data_dir: DataDir,
        log: Log,
        store: ObjectStore,
        measures: Measures,
        job_ended: Callable[[JobEntry], None],
    ) -> None:
        self._settings = settings
        self._measures = measures
        self._job_ended = job_ended
        self._paths = data_dir.paths
        self.clock = SystemClock()
        self._threads = ThreadPoolExecutor(_OFFLOAD_THREADS, thread_name_prefix="elanus-offload")
        self.meta = SqliteMeta(self._paths.meta, fsync=settings.log.fsync)
        self.log = log
        self.store = store
        self.roles = RoleHost()
        self._proxy_nodes = _proxy_nodes(settings.proxy.count)
        self._handles = {
            name: LocalRole(name)
            for name in (
                *("rootcoord", "datacoord", "indexcoord", "querynode", "querycoord"),
                *self._proxy_nodes,
            )
        }
        self.root = self._client("rootcoord", RootCoordApi)
        self.data = self._client("datacoord", DataCoordApi)
        self.ledger = self._client("datacoord", JobLedgerApi)
        self.snapshots = self._client("datacoord", SnapshotApi)
        self.index = self._client("indexcoord", IndexCoordApi)
        self.query = self._client("querycoord", QueryCoordApi)
        self.node = self._client("querynode", QueryNodeApi)
        self._proxies = {node: self._client(name, ProxyApi) for name, node in self._proxy_nodes.items()}
        self._oracle: TimestampOracle | None = None
        self._channels: dict[str, RpcChannel] = {}
        self._add_roles()

    def _client(self, name: str, api: type[Api]) -> Api:
        return local_client(self._handles[name], api)

    @property
    def import_url(self) -> str:
        return self._paths.import_url(self._settings.imports.root)

    async def start(self) -> None:
        await self.roles.start()

    async def stop(self) -> None:
        await self.roles.stop()
        for channel in self._channels.values():
            await channel.close()
        await self.log.close()
        await self.meta.close()
        self._threads.shutdown()

    # what roles need of the process

    def stamp(self) -> Timestamp:
        """A fresh timestamp, from any thread. Raises `NotReady` while the root coordinator restarts."""
        oracle = self._oracle
        if oracle is None:
            raise NotReady("rootcoord is not running; retry when it is back")
        return oracle.allocate()

    async def offload(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run blocking work off the event loop."""
        call = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def dial(self, address: str) -> RpcChannel:
        if address not in self._channels:
            self._channels[address] = RpcChannel(address)
        return self._channels[address]

    @property
    def proxies(self) -> tuple[str, ...]:
        """The roles' names."""
        return tuple(self._proxy_nodes)

    def current_proxy(self, name: str) -> Proxy:
        proxy = self._handles[name].instance
        if proxy is None:
            raise NotReady(f"{name} is not running; retry when it is back")
        return cast(Proxy, proxy)

    def current_node(self) -> QueryNode | None:
        return cast(QueryNode | None, self._handles["querynode"].instance)

    def pressure(self) -> Pressure:
        backpressure = self._settings.backpressure
        limits = PressureLimits(
            growing_soft_bytes=backpressure.growing_soft_mb * _MB,
            growing_hard_bytes=backpressure.growing_hard_mb * _MB,
            disk_reserve_bytes=backpressure.disk_reserve_mb * _MB,
        )
        return Pressure(
            limits, self.growing_bytes, _FreeDisk(self._paths.root).free_bytes, time.sleep, self._measures
        )

    def components(self) -> list[ComponentView]:
        """Every role of this process."""
        node_ids = {**self._proxy_nodes, "querynode": _QUERY_NODE}
        return [
            ComponentView(node_ids.get(name, NodeID(0)), name, self.roles.is_running(name))
            for name in self.roles.names()
        ]

    def growing_bytes(self) -> int:
        node = self.current_node()
        return node.growing_bytes if node is not None else 0

    # how each role is made

    def _add_roles(self) -> None:
        builders: dict[str, Callable[[], Any]] = {
            "rootcoord": self._build_rootcoord,
            "datacoord": self._build_datacoord,
            "indexcoord": self._build_indexcoord,
            "querynode": self._build_querynode,
            "querycoord": self._build_querycoord,
            **{name: functools.partial(self._build_proxy, node) for name, node in self._proxy_nodes.items()},
        }
        for name, build in builders.items():
            self.roles.add(self._handles[name], build)

    def _build_rootcoord(self) -> RootCoord:
        settings = self._settings.rootcoord
        self._oracle = TimestampOracle(
            self.meta, self.clock, window_ms=settings.tso_window_ms, update_ms=settings.tso_update_ms
        )
        return RootCoord(
            self.meta,
            self.log,
            self._oracle,
            self.data,
            self.index,
            self.query,
            self._proxies,
            pchannels_max=settings.dml_channel_num,
        )

    def _build_datacoord(self) -> DataCoord:
        settings = self._settings.datacoord
        policy = DataPolicy(
            quota=QuotaPolicy(settings.segment_size_max_mb * _MB, settings.assignment_expiration_ms),
            flush=FlushPolicy(
                SealPolicy(settings.seal_proportion, settings.seal_age_s, settings.seal_idle_s), _SYNC_BYTES
            ),
            trim_interval_s=_TRIM_INTERVAL_S,
            gc=self._gc_schedule(),
        )
        return DataCoord(
            DataState(self.meta),
            Manifests(self.store, self.offload),
            self.log,
            self.clock,
            self.root,
            self._proxies,
            lambda address: self.dial(address).client(DataNodeApi),
            GcPorts(
                self.index,
                self.query,
                lambda address: self.dial(address).client(SweeperApi, timeout_s=None),
                self.offload,
            ),
            policy,
            self._import_setup(),
            self._job_ledger(),
        )

    def _import_setup(self) -> ImportSetup:
        settings = self._settings.imports
        return ImportSetup(
            lambda address: self.dial(address).client(ImportNodeApi, timeout_s=None),
            ServedImports(self.data, self.index, self.query).is_served,
            ImportPolicy(settings.tasks_max, round(settings.retention_s * 1000)),
        )

    def _job_ledger(self) -> JobLedger:
        settings = self._settings.datacoord
        return JobLedger(
            self.meta,
            self.clock,
            lambda address: self.dial(address).client(PipelineApi),
            LedgerPolicy(settings.jobs_max, settings.jobs_age_max_s),
            self._job_ended,
        )

    def _gc_schedule(self) -> GcSchedule:
        settings = self._settings.gc
        policy = GcPolicy(
            settings.drop_tolerance_s,
            settings.missing_tolerance_s,
            settings.commit_deadline_s,
            settings.record_retention_s,
        )
        return GcSchedule(policy, settings.enabled, settings.interval_s, _GC_SETTLE_S)

    def _build_indexcoord(self) -> IndexCoord:
        return IndexCoord(
            IndexState(self.meta),
            self.clock,
            self.store,
            self.offload,
            self.root,
            self.data,
            self._proxies,
            lambda address: self.dial(address).client(IndexNodeApi, timeout_s=None),
            IndexPolicy(rows_min=self._settings.indexcoord.index_rows_min, builds_max=1),
        )

    def _build_querynode(self) -> QueryNode:
        threads = self._settings.querynode.search_threads or os.cpu_count() or 1
        return QueryNode(
            _QUERY_NODE,
            self.log,
            self.store,
            self.offload,
            scratch=self._paths.scratch / "querynode",
            search_threads=threads,
        )

    def _build_querycoord(self) -> QueryCoord:
        return QueryCoord(
            LoadState(self.meta),
            Peers(self.root, self.data, self.index, OneNode(_QUERY_NODE, self.node), self._proxies),
        )

    def _build_proxy(self, node_id: NodeID) -> Proxy:
        settings = self._settings.proxy
        policy = ProxyPolicy(
            tick_interval_ms=settings.time_tick_interval_ms,
            tasks_max=settings.max_task_num,
            graceful_time_ms=settings.graceful_time_ms,
            retention_s=self._settings.datacoord.retention_s,
            read_timeout_s=settings.read_timeout_s,
            call_timeout_s=settings.read_timeout_s,
            quota_rows=self._settings.datacoord.allocation_rows_min,
        )
        return Proxy(
            node_id,
            Coordinators(self.root, self.data, self.index, self.query),
            CurrentReads(self.current_node),
            self.log,
            self.stamp,
            self.offload,
            policy,
            self._measures,
        )


def _proxy_nodes(count: int) -> dict[str, NodeID]:
    """The proxies' names and node ids."""
    others = {f"proxy-{n}": NodeID(_OTHER_PROXIES + n) for n in range(2, count + 1)}
    return {"proxy": _FIRST_PROXY, **others}


class _FreeDisk:
    """Free bytes where a directory lies, looked up at most once in a while."""

    def __init__(self, directory: Any) -> None:
        self._directory = directory
        self._free_bytes = 0
        self._looked_s = float("-inf")

    def free_bytes(self) -> int:
        now_s = time.monotonic()
        if now_s - self._looked_s >= _DISK_LOOK_S:
            self._free_bytes = shutil.disk_usage(self._directory).free
            self._looked_s = now_s
        return self._free_bytes
