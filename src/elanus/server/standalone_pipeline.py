"""The data node and index node of a standalone server: the pipeline role in the online process.

The role runs next to the coordinators. Its Spark runs in the pipeline process
(`elanus.server.pipeline_process`), which exists only while jobs need it. The role costs the online process
little: it reads the headers of the log's entries, and its jobs are small plans.

Import this module in a thread: what it needs is not needed to answer clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elanus.api.datacoord import DataCoordApi
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.ledger import JobLedgerApi
from elanus.api.rootcoord import RootCoordApi
from elanus.log.port import Log
from elanus.meta.session import Session
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.on_demand import OnDemandSession
from elanus.rpc.local_port import LocalPort
from elanus.server.backends import log_url, store_url
from elanus.server.data_dir import Paths
from elanus.server.pipeline_role import (
    INTERFACES,
    PipelineDependencies,
    PipelineRole,
    SparkOnDemand,
    job_runner,
    until_dead,
)
from elanus.server.settings import Settings


@dataclass(frozen=True, slots=True)
class Neighbors:
    """The roles and the log of the online process, as the pipeline role uses them."""

    log: Log
    root: RootCoordApi
    data: DataCoordApi
    ledger: JobLedgerApi
    index: IndexCoordApi


class StandalonePipeline:
    """Implements `elanus.server.supervise.Supervised`. ``port``: where the role takes its orders."""

    def __init__(self, settings: Settings, paths: Paths, neighbors: Neighbors, port: LocalPort) -> None:
        self._settings = settings
        self._paths = paths
        self._neighbors = neighbors
        self._port = port
        self._spark: SparkOnDemand | None = None
        self._runner: JobRunner | None = None

    @property
    def pid(self) -> int | None:
        return None if self._spark is None else self._spark.pid

    async def run(self, session: Session) -> None:
        """Run one instance of the role, until cancelled or until its Spark ends."""
        self._spark = spark = SparkOnDemand(self._settings, self._paths.scratch)
        try:
            on_demand = await asyncio.to_thread(spark.start)
            await self._serve(session, on_demand)
        finally:
            await asyncio.to_thread(spark.close)
            if self._runner is not None:
                await asyncio.to_thread(self._runner.close)
            self._spark = self._runner = None

    async def _serve(self, session: Session, spark: OnDemandSession) -> None:
        here = self._neighbors
        self._runner = runner = job_runner(self._settings.pipeline, spark)
        needs = PipelineDependencies(
            settings=self._settings,
            session=spark,
            runner=runner,
            log=here.log,
            log_url=log_url(self._settings, self._paths),
            store_url=store_url(self._settings, self._paths),
            import_url=self._paths.import_url(self._settings.imports.root),
            root=here.root,
            data=here.data,
            ledger=here.ledger,
            index=here.index,
        )
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        role = PipelineRole(needs, session.node_id, self._port.name, lambda error: _settle(over, error))
        alive = asyncio.ensure_future(until_dead(spark))
        try:
            self._port.up(_parts(role))
            await role.start()
            await asyncio.wait((over, alive), return_when=asyncio.FIRST_COMPLETED)
            for work in (over, alive):
                if work.done():
                    work.result()
        finally:
            alive.cancel()
            over.cancel()
            await role.stop()
            self._port.down()


def _parts(role: PipelineRole) -> Sequence[tuple[type[Any], Any]]:
    return [(api, role.part(api)) for api in INTERFACES]


def _settle(over: asyncio.Future[None], error: BaseException | None) -> None:
    if over.done():
        return
    if error is None:
        over.set_result(None)
    else:
        over.set_exception(error)
