"""The pipeline process of a standalone server: the pipeline role around one Spark session.

It serves orders on its own socket and reaches the coordinators through the online process's socket. If it is
killed at any moment, its parent starts it again; when the parent ends, it ends too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import NoReturn

from elanus.api.datacoord import DataCoordApi
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.ledger import JobLedgerApi
from elanus.api.rootcoord import RootCoordApi
from elanus.core.ids import NodeID
from elanus.log.port import LogFollower
from elanus.pipeline.jobs import JobRunner, default_limits
from elanus.pipeline.on_demand import OnDemandSession
from elanus.rpc.carrier import RpcChannel, RpcServer
from elanus.server.backends import log_url, open_follower, store_url
from elanus.server.data_dir import paths_of
from elanus.server.ending import end_process
from elanus.server.logs import configure_logging
from elanus.server.loop_lag import LoopLag
from elanus.server.parent import when_parent_ends
from elanus.server.pipeline_role import (
    INTERFACES,
    PipelineDependencies,
    PipelineRole,
    start_spark,
    until_dead,
)
from elanus.server.settings import Settings
from elanus.server.waiting import first_of

_ONLINE_WAIT_S = 30.0
_LOG_POLL_MS = 50.0


def run(settings_json: str, online: str, address: str, node_id: int) -> NoReturn:
    """Run until the parent closes standard input, or Spark dies. Ends the process with the exit code.

    ``online``: the online process's address; ``address``: the address of this process; ``node_id``: the id
    of its session, which its parent holds.
    """
    settings = Settings.model_validate_json(settings_json)
    configure_logging(settings.logging, "pipeline")
    os.nice(settings.pipeline.nice)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent, which then stops us
    end_process(asyncio.run(_run(settings, online, address, NodeID(node_id))))


async def _run(settings: Settings, online: str, address: str, node_id: NodeID) -> int:
    ended = asyncio.Event()
    when_parent_ends(asyncio.get_running_loop(), ended)
    paths = paths_of(settings.data_dir)
    starting = asyncio.ensure_future(asyncio.to_thread(start_spark, settings, paths.scratch))
    if await first_of(ended, starting):
        # Spark's start cannot be interrupted; its JVM ends with the pipe that this process holds.
        os._exit(0)
    session = starting.result()
    channel = RpcChannel(online)
    log = await open_follower(settings, paths, poll_ms=_LOG_POLL_MS)
    serving = asyncio.ensure_future(_serve(settings, session, channel, log, address, node_id))
    try:
        if await first_of(ended, serving):
            return 0
        serving.result()
        return 1
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await log.close()
        await channel.close()
        await asyncio.to_thread(session.stop_for_good)


async def _serve(
    settings: Settings,
    session: OnDemandSession,
    channel: RpcChannel,
    log: LogFollower,
    address: str,
    node_id: NodeID,
) -> None:
    """Serve until the role's work or Spark ends on its own; raises the error it ended with."""
    await channel.ready(_ONLINE_WAIT_S)
    paths = paths_of(settings.data_dir)
    needs = PipelineDependencies(
        settings=settings,
        session=session,
        runner=JobRunner(session, default_limits(session.slots, settings.pipeline.builds_at_once)),
        log=log,
        log_url=log_url(settings, paths),
        store_url=store_url(settings, paths),
        import_url=paths.import_url(settings.imports.root),
        root=channel.client(RootCoordApi),
        data=channel.client(DataCoordApi),
        ledger=channel.client(JobLedgerApi),
        index=channel.client(IndexCoordApi),
    )
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    role = PipelineRole(needs, node_id, address, lambda error: _settle(over, error))
    server = RpcServer(address, [(api, role.part(api)) for api in INTERFACES])
    await server.start()
    await role.start()
    alive = asyncio.ensure_future(until_dead(session))
    lag = asyncio.ensure_future(LoopLag(time.monotonic, lambda _: None).keep())
    try:
        await asyncio.wait((over, alive), return_when=asyncio.FIRST_COMPLETED)
        for work in (over, alive):
            if work.done():
                work.result()
    finally:
        alive.cancel()
        lag.cancel()
        await role.stop()
        await server.stop()


def _settle(over: asyncio.Future[None], error: BaseException | None) -> None:
    if over.done():
        return
    if error is None:
        over.set_result(None)
    else:
        over.set_exception(error)
