"""The pipeline process: data node and index node around one Spark session.

It serves orders on its own socket and reaches the coordinators through the online process's. It holds
nothing that must be kept: killed at any moment and started again, it registers and is told where each
vchannel stands.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from typing import Any

import structlog

from elanus.core.errors import ElanusError, JobNotFound
from elanus.core.ids import NodeID
from elanus.datanode.compactions import SparkCompactions
from elanus.datanode.flushes import SparkFlushes
from elanus.datanode.imports import ImportSettings, SparkImports
from elanus.datanode.node import DataNode, DataNodePolicy
from elanus.datanode.sweeps import SparkSweeps
from elanus.indexnode.node import IndexNode
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.session import PipelineSession, SparkSettings
from elanus.rpc.carrier import RpcChannel, RpcServer
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
from elanus.server.backends import LogFollower, log_url, open_follower, store_url
from elanus.server.data_dir import paths_of
from elanus.server.logs import configure_logging
from elanus.server.settings import Settings

_ONLINE_WAIT_S = 30.0
_HEARTBEAT_S = 2.0
_ALIVE_LOOK_S = 1.0
_LOG_POLL_MS = 50.0
_MB = 1024 * 1024
_DATANODE_POLICY = DataNodePolicy(
    report_ms=50,
    idle_report_ms=1000,
    idle_checkpoint_ms=30_000,
    sync_age_ms=600_000,
    range_size_max_bytes=512 * 1024 * 1024,
)
_log = structlog.get_logger("pipeline")


def run(settings_json: str, online: str, address: str) -> int:
    """Run until the parent closes standard input, or Spark dies. Returns the exit code.

    ``online``: the online process's address; ``address``: where this process is to be reached.
    """
    settings = Settings.model_validate_json(settings_json)
    configure_logging(settings.logging, "pipeline")
    os.nice(settings.pipeline.nice)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent, which then ends us
    return asyncio.run(_Pipeline(settings, online, address).run())


class _Pipeline:
    """Implements `PipelineApi`."""

    def __init__(self, settings: Settings, online: str, address: str) -> None:
        self._settings = settings
        self._online = online
        self._address = address
        self._paths = paths_of(settings.data_dir)
        self._runner: JobRunner | None = None

    async def ping(self) -> None:
        """Nothing to say: that it is answered is what is asked."""

    async def cancel_job(self, job_id: str) -> None:
        if self._runner is None:
            raise JobNotFound(f"job {job_id} does not run here")
        await self._runner.cancel(job_id)

    async def run(self) -> int:
        ended = asyncio.Event()
        _when_parent_ends(asyncio.get_running_loop(), ended)
        starting = asyncio.ensure_future(asyncio.to_thread(self._start_spark))
        if not await _done_before(ended, starting):
            # Spark's start cannot be interrupted; its JVM ends with the pipe that this process holds.
            os._exit(0)
        session = starting.result()
        self._runner = JobRunner(session)
        channel = RpcChannel(self._online)
        log = await open_follower(self._settings, self._paths, poll_ms=_LOG_POLL_MS)
        serving = asyncio.ensure_future(self._serve(session, self._runner, channel, log))
        try:
            if not await _done_before(ended, serving):
                return 0
            serving.result()
            return 1
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await log.close()
            await channel.close()
            await asyncio.to_thread(session.stop)

    def _start_spark(self) -> PipelineSession:
        pipeline = self._settings.pipeline
        settings = SparkSettings(
            master=pipeline.spark_master,
            driver_memory_mb=pipeline.driver_memory_mb,
            java=pipeline.java,
            ui=pipeline.spark_ui,
            driver_host=pipeline.driver_host,
            executor_memory_mb=pipeline.executor_memory_mb,
            executor_cores=pipeline.executor_cores,
            executor_python=pipeline.executor_python,
        )
        session = PipelineSession.start(settings, self._paths.scratch)
        session.warm_up()
        return session

    async def _serve(
        self,
        session: PipelineSession,
        runner: JobRunner,
        channel: RpcChannel,
        log: LogFollower,
    ) -> None:
        await channel.ready(_ONLINE_WAIT_S)
        node_id = NodeID(await channel.client(RootCoordApi).alloc_ids(1))
        objects = store_url(self._settings, self._paths)
        flushes = SparkFlushes(runner, log_url(self._settings, self._paths), objects, session.task_scratch)
        compactions = SparkCompactions(runner, objects, session.task_scratch)
        datacoord = channel.client(DataCoordApi)
        datanode = DataNode(node_id, self._address, log, datacoord, flushes, compactions, _DATANODE_POLICY)
        indexnode = IndexNode(runner, objects, session.task_scratch, threads=os.cpu_count() or 1)
        imports = SparkImports(runner, channel.client(RootCoordApi), self._import_settings(session))
        server = RpcServer(
            self._address,
            [
                (DataNodeApi, datanode),
                (ImportNodeApi, imports),
                (IndexNodeApi, indexnode),
                (SweeperApi, SparkSweeps(runner, objects)),
                (PipelineApi, self),
            ],
        )
        await server.start()
        work = [
            asyncio.ensure_future(datanode.run()),
            asyncio.ensure_future(self._heartbeat(node_id, channel.client(IndexCoordApi))),
            asyncio.ensure_future(keep_reported(runner.book, channel.client(JobLedgerApi), self._address)),
            asyncio.ensure_future(_until_dead(session)),
        ]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in work:
                if task.done():
                    task.result()
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            await server.stop()

    def _import_settings(self, session: PipelineSession) -> ImportSettings:
        settings = self._settings.imports
        return ImportSettings(
            self._paths.import_url(settings.root),
            store_url(self._settings, self._paths),
            str(session.task_scratch),
            settings.task_mb * _MB,
            session.slots,
        )

    async def _heartbeat(self, node_id: NodeID, indexcoord: IndexCoordApi) -> None:
        while True:
            try:
                await indexcoord.register_indexnode(node_id, self._address)
            except ElanusError as error:
                _log.info("index coordinator not reached", error=error.message)
            await asyncio.sleep(_HEARTBEAT_S)


async def _done_before(ended: asyncio.Event, work: asyncio.Future[Any]) -> bool:
    """Wait for whichever comes first; whether it was the work."""
    end = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait((work, end), return_when=asyncio.FIRST_COMPLETED)
        return not end.done()
    finally:
        end.cancel()


async def _until_dead(session: PipelineSession) -> None:
    while await asyncio.to_thread(session.is_alive):  # noqa: ASYNC110 - Spark tells nobody when its JVM ends
        await asyncio.sleep(_ALIVE_LOOK_S)
    _log.error("Spark's JVM is gone; this process ends and will be started again")


def _when_parent_ends(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Set the event when standard input, which only the parent holds open, is closed."""

    def watch() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()
