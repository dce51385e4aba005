"""`elanus run ROLE ...`: a process of a cluster, from its start to its clean stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from elanus import __version__
from elanus.core.errors import ElanusError, Unavailable
from elanus.core.world import SystemClock
from elanus.meta.format import check_format
from elanus.meta.keeper import LeaseKeeper
from elanus.metrics import Metrics
from elanus.proxy.connector import Connector
from elanus.proxy.front import ProxyFront
from elanus.proxy.wire.server import MilvusServer
from elanus.rpc.carrier import ThreadedHandler
from elanus.rpc.connector import ConnectorApi
from elanus.server.announce import Announcement, announce, withdraw
from elanus.server.backends import open_channels, open_log, open_meta, open_objects
from elanus.server.certificates import cluster_security, front_security
from elanus.server.cluster.peers import ROLES
from elanus.server.cluster.process import ClusterProcess, Services
from elanus.server.cluster.workspace import Workspace
from elanus.server.data_dir import paths_of
from elanus.server.logs import configure_logging
from elanus.server.measures import JobMeasures, MetricMeasures, RequestMeasures
from elanus.server.memory import fix_allocator
from elanus.server.observing import start_observing
from elanus.server.report import Report
from elanus.server.settings import Settings
from elanus.server.startup import CannotStart, PortTaken
from elanus.server.waiting import first_of

if TYPE_CHECKING:
    from elanus.server.cluster.datanode import SparkPipeline

_STOP_GRACE_S = 2.0
_SWITCH_INTERVAL_S = 0.0005
"""As in the standalone server: a busy thread must not keep others waiting for milliseconds."""


def run(settings: Settings, roles: tuple[str, ...]) -> int:
    """Run until SIGINT or SIGTERM; the exit code. Raises `CannotStart`."""
    check(settings, roles)
    fix_allocator()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    configure_logging(settings.logging, "+".join(roles))
    return asyncio.run(_run(settings, roles))


def check(settings: Settings, roles: tuple[str, ...]) -> None:
    """Raises `CannotStart` for what cannot be a process of a cluster."""
    for role in roles:
        if role not in ROLES:
            raise CannotStart(f"no role {role!r}: there are {', '.join(ROLES)}")
    if len(set(roles)) < len(roles):
        raise CannotStart("a process runs each role once: start another process for a second one")
    if "datanode" in roles and len(roles) > 1:
        raise CannotStart("the role datanode runs Spark: give it a process of its own")
    for name, url, example in (
        ("meta.url", settings.meta.url, "etcd://host:2379/elanus"),
        ("log.url", settings.log.url, "nats://host:4222/elanus"),
        ("storage.url", settings.storage.url, "s3://bucket/elanus"),
    ):
        if not url:
            raise CannotStart(f"a cluster needs the setting {name}, such as {example}")
    cluster_security(settings.cluster)
    front_security(settings.proxy)


async def _run(settings: Settings, roles: tuple[str, ...]) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        workspace = Workspace(settings.data_dir, "-".join(roles))
        stack.callback(workspace.close)
        metrics = Metrics()
        pipeline = (
            await _start_pipeline(stack, settings, workspace, stopping) if "datanode" in roles else None
        )
        try:
            services = await _open(stack, settings)
            process = ClusterProcess(
                settings,
                roles,
                workspace,
                services,
                MetricMeasures(metrics),
                JobMeasures(metrics).ended,
                pipeline,
            )
            stack.push_async_callback(process.stop)
            await process.start()
        except ElanusError as error:
            raise CannotStart(error.message) from error
        report = Report(process, None, None)
        observe_url = start_observing(stack, settings, process, metrics, report)
        client_address = _start_front(stack, settings, process, metrics) if "proxy" in roles else ""
        report.addresses = {"proxy": client_address}
        announce(
            workspace.root,
            Announcement(
                version=__version__, pid=os.getpid(), address=client_address, observe_url=observe_url
            ),
        )
        stack.callback(withdraw, workspace.root)
        clients = f", clients at {client_address}" if client_address else ""
        sys.stdout.write(f"Elanus {__version__} runs {', '.join(roles)} at {process.address}{clients}\n")
        sys.stdout.flush()
        if pipeline is None:
            await stopping.wait()
            return 0
        # Without Spark a data node can do nothing: whoever started the process starts it again.
        return 0 if await first_of(stopping, pipeline.ended()) else 1


async def _start_pipeline(
    stack: AsyncExitStack, settings: Settings, workspace: Workspace, stopping: asyncio.Event
) -> SparkPipeline:
    from elanus.server.cluster.datanode import SparkPipeline, start_spark  # no other role loads Spark

    os.nice(settings.pipeline.nice)
    starting = asyncio.ensure_future(asyncio.to_thread(start_spark, settings, workspace.scratch))
    if await first_of(stopping, starting):
        # Spark's start cannot be interrupted; its JVM ends with the pipe that this process holds.
        os._exit(0)
    stack.push_async_callback(asyncio.to_thread, starting.result().stop)
    return SparkPipeline(settings, starting.result())


async def _open(stack: AsyncExitStack, settings: Settings) -> Services:
    """Raises `ElanusError`."""
    paths = paths_of(settings.data_dir)
    store = await asyncio.to_thread(open_objects, settings, paths)
    owner = f"{os.uname().nodename}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    meta = open_meta(settings, owner)
    stack.push_async_callback(meta.close)
    await check_format(meta)
    leases = LeaseKeeper(partial(open_meta, settings, f"{owner}-leases"), SystemClock().elapsed_s)
    stack.push_async_callback(leases.close)
    leases.start()
    log = await open_log(settings, paths)
    stack.push_async_callback(log.close)
    channels = await open_channels(settings)
    stack.push_async_callback(channels.close)
    return Services(meta, leases, log, store, channels)


def _start_front(stack: AsyncExitStack, settings: Settings, process: ClusterProcess, metrics: Metrics) -> str:
    """The address that clients use."""
    connector = Connector(process.current_proxy, process.snapshots, process.import_url)
    server = MilvusServer(
        ProxyFront(process.current_proxy, process.pressure(), process.components),
        settings.proxy.host,
        settings.proxy.port,
        max_workers=settings.proxy.workers,
        deploy_mode="DISTRIBUTED",
        observe=RequestMeasures(metrics).observe,
        others=[ThreadedHandler(ConnectorApi, connector, asyncio.get_running_loop())],
        security=front_security(settings.proxy),
    )
    try:
        port = server.start()
    except Unavailable as error:
        raise PortTaken(f"{error.message}; choose another with --port PORT (0: any free one)") from None
    # In a thread: requests under way may still need the event loop.
    stack.push_async_callback(asyncio.to_thread, server.stop, _STOP_GRACE_S)
    return f"{settings.proxy.host}:{port}"
