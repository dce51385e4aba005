"""`elanus serve`: the standalone server, from its start to its clean stop.

The online process answers clients as soon as its roles are up; the pipeline process is started in the
background and may come up, die and come back without anybody waiting for it but what needs Spark.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from contextlib import AsyncExitStack

from elanus import __version__
from elanus.core.errors import ElanusError, Unavailable
from elanus.log.files import LogInUse
from elanus.log.frames import UnknownLogFormat
from elanus.log.port import CorruptLog
from elanus.meta.sqlite import MetaInUse, UnknownMetaFormat
from elanus.metrics import Metrics
from elanus.proxy.connector import Connector
from elanus.proxy.front import ProxyFront
from elanus.proxy.wire.server import MilvusServer
from elanus.rpc.carrier import RpcServer, ThreadedHandler
from elanus.rpc.connector import ConnectorApi
from elanus.rpc.datacoord import DataCoordApi
from elanus.rpc.indexcoord import IndexCoordApi
from elanus.rpc.ledger import JobLedgerApi
from elanus.rpc.pipeline import PipelineApi
from elanus.rpc.rootcoord import RootCoordApi
from elanus.rpc.security import FrontSecurity
from elanus.server.announce import Announcement, announce, withdraw
from elanus.server.backends import bind, open_log, open_objects
from elanus.server.certificates import front_security
from elanus.server.data_dir import DataDir
from elanus.server.logs import configure_logging
from elanus.server.measures import JobMeasures, MetricMeasures, RequestMeasures
from elanus.server.memory import fix_allocator
from elanus.server.observing import start_observing
from elanus.server.online import Online
from elanus.server.report import Report
from elanus.server.settings import Settings
from elanus.server.startup import CannotStart, PortTaken
from elanus.server.supervise import PipelineSupervisor

_STOP_GRACE_S = 2.0
_SWITCH_INTERVAL_S = 0.0005
"""How long a busy thread keeps the interpreter from another one. The default, 5 ms, is many searches."""


def serve(settings: Settings) -> int:
    """Run until SIGINT or SIGTERM; the exit code. Raises `CannotStart`."""
    fix_allocator()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    configure_logging(settings.logging, "online")
    return asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    security = front_security(settings.proxy)
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        data_dir = DataDir(settings.data_dir)
        stack.callback(data_dir.close)
        metrics = Metrics()
        online = await _open(settings, data_dir, metrics)
        stack.push_async_callback(online.stop)
        await online.start()
        pipeline_address = data_dir.socket("pipeline")
        supervisor = await _start_pipeline(stack, settings, data_dir, online, pipeline_address, metrics)
        pipeline = online.connections.to(pipeline_address).client(PipelineApi, timeout_s=1.0)
        report = Report(online, supervisor, pipeline)
        observe_url = start_observing(stack, settings, online, metrics, report)
        ports = await _start_fronts(stack, settings, security, online, metrics)
        addresses = [f"{settings.proxy.host}:{port}" for port in ports]
        report.addresses = dict(zip(online.proxies, addresses, strict=True))
        announce(
            data_dir.root,
            Announcement(
                version=__version__,
                pid=os.getpid(),
                address=addresses[0],
                other_addresses=tuple(addresses[1:]),
                observe_url=observe_url,
            ),
        )
        stack.callback(withdraw, data_dir.root)
        sys.stdout.write(f"Elanus {__version__} serves {', '.join(addresses)}, data in {data_dir.root}\n")
        sys.stdout.flush()
        await stopping.wait()
    return 0


async def _open(settings: Settings, data_dir: DataDir, metrics: Metrics) -> Online:
    bind(settings, data_dir.paths)
    try:
        store = await asyncio.to_thread(open_objects, settings, data_dir.paths)
        log = await open_log(settings, data_dir.paths)
        try:
            return Online(settings, data_dir, log, store, MetricMeasures(metrics), JobMeasures(metrics).ended)
        except BaseException:
            await log.close()
            raise
    except (ElanusError, LogInUse, MetaInUse, UnknownLogFormat, UnknownMetaFormat, CorruptLog) as error:
        raise CannotStart(str(error)) from error


async def _start_pipeline(
    stack: AsyncExitStack,
    settings: Settings,
    data_dir: DataDir,
    online: Online,
    address: str,
    metrics: Metrics,
) -> PipelineSupervisor | None:
    """The coordinators' socket, and the process that uses it."""
    if not settings.pipeline.enabled:
        return None
    online_address = data_dir.socket("online")
    services = [
        (RootCoordApi, online.root),
        (DataCoordApi, online.data),
        (JobLedgerApi, online.ledger),
        (IndexCoordApi, online.index),
    ]
    server = RpcServer(online_address, services)
    await server.start()
    stack.push_async_callback(server.stop)
    arguments = [
        f"--settings-json={settings.model_copy(update={'data_dir': data_dir.root}).model_dump_json()}",
        f"--online={online_address}",
        f"--address={address}",
    ]
    supervisor = PipelineSupervisor(
        arguments,
        functools.partial(online.register_data_node, address),
        settings.pipeline.restart_backoff_ms,
        settings.pipeline.restart_backoff_max_ms,
        metrics.pipeline_restarts.inc,
    )
    supervisor.start()
    stack.push_async_callback(supervisor.stop)
    return supervisor


async def _start_fronts(
    stack: AsyncExitStack,
    settings: Settings,
    security: FrontSecurity | None,
    online: Online,
    metrics: Metrics,
) -> list[int]:
    """A front for each proxy. The ports they listen on."""
    observe = RequestMeasures(metrics).observe
    loop = asyncio.get_running_loop()
    ports = []
    for name, port in zip(online.proxies, settings.proxy.ports, strict=True):
        current = functools.partial(online.current_proxy, name)
        connector = Connector(current, online.snapshots, online.import_url)
        server = MilvusServer(
            ProxyFront(current, online.pressure(), online.components),
            settings.proxy.host,
            port,
            max_workers=settings.proxy.workers,
            observe=observe,
            others=[ThreadedHandler(ConnectorApi, connector, loop)],
            security=security,
        )
        try:
            ports.append(server.start())
        except Unavailable as error:
            raise PortTaken(f"{error.message}; choose another with --port PORT (0: any free one)") from None
        # In a thread: requests under way may still need the event loop.
        stack.push_async_callback(asyncio.to_thread, server.stop, _STOP_GRACE_S)
    return ports
