"""Data node and index node around one Spark session, as one role: its interfaces and its lifetime.

The role has no state that must survive: it may be stopped at any moment and started again. It then registers
and receives the position of each vchannel.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import structlog

from elanus.api.datacoord import DataCoordApi
from elanus.api.datanode import DataNodeApi
from elanus.api.gc import SweeperApi
from elanus.api.imports import ImportNodeApi, ImportOrder, ImportOutcome
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.indexnode import IndexNodeApi
from elanus.api.job_book import keep_reported
from elanus.api.ledger import JobLedgerApi
from elanus.api.pipeline import PipelineApi, SparkState
from elanus.api.rootcoord import RootCoordApi
from elanus.core.errors import ElanusError
from elanus.core.ids import NodeID
from elanus.datanode.compactions import SparkCompactions
from elanus.datanode.flushes import SparkFlushes
from elanus.datanode.node import DataNode
from elanus.datanode.policy import DataNodePolicy
from elanus.datanode.sweeps import SparkSweeps
from elanus.indexnode.node import IndexNode
from elanus.log.port import LogFollower
from elanus.pipeline.class_training import ClassTraining
from elanus.pipeline.driver import Drivers, DriverSession
from elanus.pipeline.jobs import AT_ONCE_MAX, JobRunner, default_limits
from elanus.pipeline.on_demand import OnDemandSession
from elanus.pipeline.spark_conf import SparkSettings
from elanus.pipeline.task_memory import memory_limit_bytes
from elanus.server.logs import LogForm
from elanus.server.pipeline_process import PipelineOrder
from elanus.server.settings import Settings
from elanus.server.settings_pipeline import PipelineSettings
from elanus.server.spark_conf import parsed
from elanus.server.threads import offload_to

INTERFACES: tuple[type[Any], ...] = (DataNodeApi, ImportNodeApi, IndexNodeApi, SweeperApi, PipelineApi)
"""The interfaces that the coordinators call."""
_HEARTBEAT_S = 2.0
_LEAVE_S = 1.0
"""A stop does not wait longer than this for a coordinator that may stop as well."""
_ALIVE_LOOK_S = 1.0
_LOCAL_COMPACTIONS_MAX = 4
_IMPORT_THREADS = 4
"""For what imports do outside of Spark: names, kept outcomes, and deletes, which take minutes."""
_MB = 1024 * 1024
_log = structlog.get_logger("pipeline")


@dataclass(frozen=True, slots=True)
class PipelineDependencies:
    """The dependencies of `PipelineRole`. Spark tasks open the log and the objects by the URLs."""

    settings: Settings
    session: OnDemandSession
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
        python_memory_mb=settings.imports.task_mb,
        conf=parsed(pipeline.spark_conf),
    )


def pipeline_order(settings: Settings, scratch: Path) -> PipelineOrder:
    """Return what the pipeline process gets to know: no more than it needs."""
    form = settings.logging.format
    if form == "auto":  # what it writes goes through a pipe to this process
        form = "console" if sys.stderr.isatty() else "json"
    logging = LogForm(settings.logging.level, form)
    return PipelineOrder(_spark_settings(settings), scratch, settings.pipeline.nice, logging)


def _datanode_policy(settings: Settings) -> DataNodePolicy:
    return DataNodePolicy(
        report_ms=50,
        idle_report_ms=1000,
        idle_look_ms=10_000,
        idle_checkpoint_ms=30_000,
        holding_checkpoint_ms=5_000,
        sync_age_ms=600_000,
        range_size_max_bytes=512 * _MB,
        flush_timeout_s=settings.pipeline.flush_timeout_s,
    )


def build_threads(pipeline: PipelineSettings, processors: int) -> int:
    """Return the threads of one index build; ``processors`` are those of this machine."""
    if pipeline.build_threads:
        return pipeline.build_threads
    if pipeline.spark_master.startswith("local"):
        return max(1, processors // max(1, pipeline.builds_at_once))
    return max(1, pipeline.executor_cores)


def job_runner(pipeline: PipelineSettings, session: OnDemandSession) -> JobRunner:
    """Return the runner of a data node's jobs. On one machine they share its memory."""
    memory_bytes = memory_limit_bytes() if pipeline.spark_master.startswith("local") else None
    limits = default_limits(session.slots, pipeline.builds_at_once)
    return JobRunner(session, limits, memory_bytes=memory_bytes)


def build_cpus(pipeline: PipelineSettings, threads: int) -> int:
    """Return the cores that Spark counts for an index build: more than one only where it can place them."""
    is_local = pipeline.spark_master.startswith("local")
    return threads if not is_local and threads <= pipeline.executor_cores else 1


def builds_at_once(pipeline: PipelineSettings, slots: int, threads: int) -> int:
    """Return how many index builds there is room for."""
    if pipeline.builds_at_once:
        return pipeline.builds_at_once
    return 1 if pipeline.spark_master.startswith("local") else max(1, (slots - 1) // threads)


def compactions_at_once(pipeline: PipelineSettings) -> int:
    """Return how many compactions run at a time at most, whatever the slots: a machine serves reads too."""
    return _LOCAL_COMPACTIONS_MAX if pipeline.spark_master.startswith("local") else AT_ONCE_MAX


class SparkOnDemand:
    """The Spark of a data node: pipeline processes that come and go."""

    def __init__(self, settings: Settings, scratch: Path) -> None:
        self._settings = settings
        self._scratch = scratch
        order = pipeline_order(settings, scratch)
        self._spark = order.spark
        self._drivers = Drivers([sys.executable, "-m", "elanus", "pipeline"], order)
        self._session: OnDemandSession | None = None

    @property
    def pid(self) -> int | None:
        """The id of the pipeline process; ``None`` while there is none."""
        return self._drivers.pid

    def start(self) -> OnDemandSession:
        """Start Spark for the first time. Blocks for seconds, until `close`. Raises `DriverFailed`."""
        first: DriverSession = self._drivers.start()
        idle_stop_s = self._settings.pipeline.idle_stop_s if self._spark.is_local else 0.0
        training = ClassTraining(self._spark, self._scratch, first.archive)
        self._session = OnDemandSession(first, self._drivers.start, idle_stop_s, time.monotonic, training)
        return self._session

    def close(self) -> None:
        """End Spark and its process, in whatever state they are. Jobs are lost. Blocks for a moment."""
        try:
            if self._session is not None:
                self._session.stop_for_good()
        finally:
            self._drivers.close()


async def until_dead(session: OnDemandSession) -> None:
    """Return when Spark has ended on its own. Until then, stops it when no job needs it."""
    while await asyncio.to_thread(session.is_alive):
        await asyncio.sleep(_ALIVE_LOOK_S)
        await asyncio.to_thread(session.stop_if_idle)
    _log.error("Spark ended; the data node ends too and is started again")


class _LateImports:
    """Implements `ImportNodeApi` by what ``make`` returns, when an import comes: its modules take 2 MB."""

    def __init__(self, make: Callable[[], ImportNodeApi]) -> None:
        self._make = make
        self._made: ImportNodeApi | None = None

    async def import_files(self, order: ImportOrder) -> ImportOutcome:
        if self._made is None:
            await asyncio.to_thread(import_module, "elanus.datanode.imports")
            self._made = self._make()
        return await self._made.import_files(order)


class PipelineRole:
    """Implements the interfaces of `INTERFACES`, each by one of its parts.

    ``address``: where those interfaces are reached. ``ended`` is called when the role's work ends on its own,
    with the error or ``None``.
    """

    def __init__(
        self,
        needs: PipelineDependencies,
        node_id: NodeID,
        address: str,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._needs = needs
        self._node_id = node_id
        self._address = address
        self._ended = ended
        scratch = needs.session.task_scratch
        self._datanode = DataNode(
            node_id,
            needs.log,
            needs.data,
            SparkFlushes(needs.runner, needs.log_url, needs.store_url, scratch),
            SparkCompactions(
                needs.runner, needs.store_url, scratch, compactions_at_once(needs.settings.pipeline)
            ),
            _datanode_policy(needs.settings),
            needs.session.rows_arrived,
        )
        threads = build_threads(needs.settings.pipeline, os.cpu_count() or 1)
        self._build_threads = threads
        cpus = build_cpus(needs.settings.pipeline, threads)
        self._indexnode = IndexNode(needs.runner, needs.store_url, scratch, threads, cpus)
        self._imports = _LateImports(self._make_imports)
        self._import_threads = ThreadPoolExecutor(_IMPORT_THREADS, thread_name_prefix="elanus-import")
        self._sweeps = SparkSweeps(needs.runner, needs.store_url)
        self._work: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._work = [
            asyncio.create_task(self._datanode.run(), name="data node"),
            asyncio.create_task(self._heartbeat(), name="index node"),
            asyncio.create_task(
                keep_reported(self._needs.runner.book, self._needs.ledger, self._address), name="job book"
            ),
        ]
        for task in self._work:
            task.add_done_callback(self._one_ended)

    async def stop(self) -> None:
        for task in self._work:
            task.remove_done_callback(self._one_ended)
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await self._leave()
        self._import_threads.shutdown(wait=False)

    def part(self, api: type[Any]) -> Any:
        """Return the object that implements an interface of `INTERFACES`."""
        parts: dict[type[Any], Any] = {
            DataNodeApi: self._datanode,
            ImportNodeApi: self._imports,
            IndexNodeApi: self._indexnode,
            SweeperApi: self._sweeps,
            PipelineApi: self,
        }
        return parts[api]

    async def ping(self) -> SparkState:
        return self._needs.session.state

    async def cancel_job(self, job_id: str) -> None:
        await self._needs.runner.cancel(job_id)

    def _one_ended(self, task: asyncio.Task[None]) -> None:
        self._ended(None if task.cancelled() else task.exception())

    def _make_imports(self) -> ImportNodeApi:
        from elanus.datanode.imports import ImportSettings, SparkImports

        needs = self._needs
        settings = ImportSettings(
            needs.import_url,
            needs.store_url,
            str(needs.session.task_scratch),
            needs.settings.imports.task_mb * _MB,
        )
        return SparkImports(needs.runner, needs.root, settings, offload_to(self._import_threads))

    async def _leave(self) -> None:
        """Notify indexcoord that no builds can be made here. Else it would wait until this node is silent."""
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._needs.index.indexnode_stops(self._node_id)
        except (ElanusError, TimeoutError) as error:
            _log.info("indexcoord not notified of the stop of the index node", error=str(error))

    async def _heartbeat(self) -> None:
        needs = self._needs
        while True:
            try:
                room = builds_at_once(needs.settings.pipeline, needs.runner.slots, self._build_threads)
                await needs.index.register_indexnode(self._node_id, self._address, room)
            except ElanusError as error:
                _log.info("indexcoord not reached", error=error.message)
            await asyncio.sleep(_HEARTBEAT_S)
