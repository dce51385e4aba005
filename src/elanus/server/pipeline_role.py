"""Data node and index node around one Spark session, as one role: what it serves, and how long.

It holds nothing that must be kept: stopped at any moment and started again, it registers and is told where
each vchannel stands.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from elanus.core.errors import ElanusError
from elanus.core.ids import NodeID
from elanus.datanode.compactions import SparkCompactions
from elanus.datanode.flushes import SparkFlushes
from elanus.datanode.imports import ImportSettings, SparkImports
from elanus.datanode.node import DataNode, DataNodePolicy
from elanus.datanode.sweeps import SparkSweeps
from elanus.indexnode.node import IndexNode
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.session import PipelineSession, SparkSettings
from elanus.rpc.datacoord import DataCoordApi
from elanus.rpc.datanode import DataNodeApi
from elanus.rpc.gc import SweeperApi
from elanus.rpc.imports import ImportNodeApi
from elanus.rpc.indexcoord import IndexCoordApi
from elanus.rpc.indexnode import IndexNodeApi
from elanus.rpc.jobbook import keep_reported
from elanus.rpc.ledger import JobLedgerApi
from elanus.rpc.pipeline import PipelineApi
from elanus.rpc.rootcoord import RootCoordApi
from elanus.server.backends import LogFollower
from elanus.server.settings import Settings

INTERFACES: tuple[type[Any], ...] = (DataNodeApi, ImportNodeApi, IndexNodeApi, SweeperApi, PipelineApi)
"""What the coordinators ask of it."""
_HEARTBEAT_S = 2.0
_ALIVE_LOOK_S = 1.0
_MB = 1024 * 1024
_DATANODE_POLICY = DataNodePolicy(
    report_ms=50,
    idle_report_ms=1000,
    idle_checkpoint_ms=30_000,
    holding_checkpoint_ms=5_000,
    sync_age_ms=600_000,
    range_size_max_bytes=512 * 1024 * 1024,
)
_log = structlog.get_logger("pipeline")


@dataclass(frozen=True, slots=True)
class PipelineGround:
    """What it stands on. The URLs are those that Spark tasks open the log and the objects by."""

    settings: Settings
    session: PipelineSession
    runner: JobRunner
    log: LogFollower
    log_url: str
    store_url: str
    import_url: str
    root: RootCoordApi
    data: DataCoordApi
    ledger: JobLedgerApi
    index: IndexCoordApi


def _spark_settings(settings: Settings) -> SparkSettings:
    pipeline = settings.pipeline
    return SparkSettings(
        master=pipeline.spark_master,
        driver_memory_mb=pipeline.driver_memory_mb,
        java=pipeline.java,
        ui=pipeline.spark_ui,
        driver_host=pipeline.driver_host,
        executor_memory_mb=pipeline.executor_memory_mb,
        executor_cores=pipeline.executor_cores,
        cores_max=pipeline.cores_max,
        executor_python=pipeline.executor_python,
    )


def start_spark(settings: Settings, scratch: Path) -> PipelineSession:
    """Takes seconds, and cannot be interrupted."""
    session = PipelineSession.start(_spark_settings(settings), scratch)
    session.warm_up()
    return session


async def until_dead(session: PipelineSession) -> None:
    while await asyncio.to_thread(session.is_alive):  # noqa: ASYNC110 - Spark tells nobody when its JVM ends
        await asyncio.sleep(_ALIVE_LOOK_S)
    _log.error("Spark's JVM is gone; this process ends, to be started again")


class PipelineRole:
    """Implements the interfaces of `INTERFACES`, each by the part that does. ``address``: where those are
    reached. ``ended`` is called when its work ends by itself, with what it ended with."""

    def __init__(
        self,
        ground: PipelineGround,
        node_id: NodeID,
        address: str,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._ground = ground
        self._node_id = node_id
        self._address = address
        self._ended = ended
        scratch = ground.session.task_scratch
        self._datanode = DataNode(
            node_id,
            ground.log,
            ground.data,
            SparkFlushes(ground.runner, ground.log_url, ground.store_url, scratch),
            SparkCompactions(ground.runner, ground.store_url, scratch),
            _DATANODE_POLICY,
        )
        self._indexnode = IndexNode(ground.runner, ground.store_url, scratch, threads=os.cpu_count() or 1)
        self._imports = SparkImports(ground.runner, ground.root, self._import_settings())
        self._sweeps = SparkSweeps(ground.runner, ground.store_url)
        self._work: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._work = [
            asyncio.create_task(self._datanode.run(), name="data node"),
            asyncio.create_task(self._heartbeat(), name="index node"),
            asyncio.create_task(
                keep_reported(self._ground.runner.book, self._ground.ledger, self._address), name="job book"
            ),
        ]
        for task in self._work:
            task.add_done_callback(self._one_ended)

    async def stop(self) -> None:
        for task in self._work:
            task.remove_done_callback(self._one_ended)
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    def part(self, api: type[Any]) -> Any:
        """The object that implements an interface of `INTERFACES`."""
        parts: dict[type[Any], Any] = {
            DataNodeApi: self._datanode,
            ImportNodeApi: self._imports,
            IndexNodeApi: self._indexnode,
            SweeperApi: self._sweeps,
            PipelineApi: self,
        }
        return parts[api]

    async def ping(self) -> None:
        """Nothing to say: that it is answered is what is asked."""

    async def cancel_job(self, job_id: str) -> None:
        await self._ground.runner.cancel(job_id)

    def _one_ended(self, task: asyncio.Task[None]) -> None:
        self._ended(None if task.cancelled() else task.exception())

    def _import_settings(self) -> ImportSettings:
        ground = self._ground
        return ImportSettings(
            ground.import_url,
            ground.store_url,
            str(ground.session.task_scratch),
            ground.settings.imports.task_mb * _MB,
            ground.session.slots,
        )

    async def _heartbeat(self) -> None:
        while True:
            try:
                await self._ground.index.register_indexnode(self._node_id, self._address)
            except ElanusError as error:
                _log.info("index coordinator not reached", error=error.message)
            await asyncio.sleep(_HEARTBEAT_S)
