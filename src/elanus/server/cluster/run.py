"""`elanus run ROLE ...`: a process of a cluster, from its start to its clean stop."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from elanus import __version__
from elanus.core.clock import SystemClock
from elanus.core.errors import ElanusError
from elanus.core.faults import JobFault, MetaFault
from elanus.datacoord.checkpoint_positions import CheckpointPositions
from elanus.meta.format import check_format
from elanus.meta.keeper import LeaseKeeper
from elanus.meta.tasks import cancel_and_wait
from elanus.metrics import Metrics
from elanus.server.access import check_openness, open_audit
from elanus.server.announce import Announcement, announce, withdraw
from elanus.server.backends import check_cluster, open_channels, open_log, open_meta, open_objects
from elanus.server.certificates import cluster_security, front_security
from elanus.server.cluster.identity import ClusterIdentity
from elanus.server.cluster.peers import ROLES
from elanus.server.cluster.process import ClusterProcess, Services
from elanus.server.cluster.workspace import Workspace
from elanus.server.console_source import ConsoleSource
from elanus.server.counters import JobMeasures, MetricMeasures
from elanus.server.data_dir import paths_of
from elanus.server.fronts import Fronts
from elanus.server.http_front import http_front, import_single_threaded, url_of
from elanus.server.monitoring import start_observing
from elanus.server.open_files import check_room_for_spark
from elanus.server.process_setup import set_up_process, stop_signals
from elanus.server.report import Report
from elanus.server.settings import Settings
from elanus.server.startup import CannotStart
from elanus.server.threads_allowed import check_room_for_threads
from elanus.server.waiting import first_of

if TYPE_CHECKING:
    from elanus.server.cluster.datanode import SparkPipeline


def run(settings: Settings, roles: tuple[str, ...]) -> int:
    """Run until SIGINT or SIGTERM; return the exit code. Raises `CannotStart`."""
    check(settings, roles)
    limit = set_up_process(settings.logging, "+".join(roles))
    if "datanode" in roles:
        check_room_for_spark(limit)
    check_room_for_threads(1, with_spark="datanode" in roles)
    if "proxy" in roles:
        import_single_threaded(settings.http)
    return asyncio.run(_run(settings, roles))


def check(settings: Settings, roles: tuple[str, ...]) -> None:
    """Raise `CannotStart` if these roles and settings cannot form a process of a cluster."""
    for role in roles:
        if role not in ROLES:
            raise CannotStart(f"no role {role!r}: there are {', '.join(ROLES)}")
    if len(set(roles)) < len(roles):
        raise CannotStart("a process runs each role once: start another process for a second one")
    if "datanode" in roles and len(roles) > 1:
        raise CannotStart("the role datanode runs Spark: give it a process of its own")
    check_cluster(settings)
    cluster_security(settings.cluster)
    if "proxy" in roles:
        check_openness(settings.proxy)
    front_security(settings.proxy)


async def _run(settings: Settings, roles: tuple[str, ...]) -> int:
    stopping = stop_signals()
    async with AsyncExitStack() as stack:
        workspace = Workspace(settings.data_dir, "-".join(roles))
        stack.callback(workspace.close)
        metrics = Metrics()
        pipeline = None
        if "datanode" in roles:
            pipeline = await _start_pipeline(stack, settings, workspace, stopping)
        starting = asyncio.create_task(_started(stack, settings, roles, workspace, metrics, pipeline))
        if await first_of(stopping, starting):
            await cancel_and_wait(starting)  # it may be waiting for a service that is down
            return 0
        process = starting.result()
        report = Report(process, None, None)
        observe_url = start_observing(stack, settings, process, metrics, report)
        client_address = ""
        http = None
        if "proxy" in roles:
            security = front_security(settings.proxy)
            audit = open_audit(stack, settings, workspace.root, metrics)
            source = ConsoleSource(report.status, report.slow_requests, metrics.registry, audit)
            http = http_front(settings.http, source)
            fronts = Fronts(settings.proxy, process, metrics, "DISTRIBUTED", security, audit, report.watch)
            client_address = fronts.open(stack, settings.proxy.port, process.current_proxy, http)
        report.addresses = {"proxy": client_address}
        announce(
            workspace.root,
            Announcement(
                version=__version__,
                pid=os.getpid(),
                address=client_address,
                observe_url=observe_url,
                http_url=url_of(http),
            ),
        )
        stack.callback(withdraw, workspace.root)
        reachable = [address for address in (client_address, url_of(http)) if address]
        clients = f", clients at {' and '.join(reachable)}" if reachable else ""
        sys.stdout.write(f"Elanus {__version__} runs {', '.join(roles)} at {process.address}{clients}\n")
        sys.stdout.flush()
        if pipeline is None:
            await stopping.wait()
            return 0
        # Without Spark a data node can do nothing: the process ends, to be restarted from outside.
        return 0 if await first_of(stopping, pipeline.ended()) else 1


async def _started(
    stack: AsyncExitStack,
    settings: Settings,
    roles: tuple[str, ...],
    workspace: Workspace,
    metrics: Metrics,
    pipeline: SparkPipeline | None,
) -> ClusterProcess:
    """Open the services, and start the process on them. Raises `CannotStart`."""
    measures, job_ended = MetricMeasures(metrics), JobMeasures(metrics).ended
    try:
        services = await _open(stack, settings)
        process = ClusterProcess(settings, roles, workspace, services, measures, job_ended, pipeline)
        stack.push_async_callback(process.stop)
        await process.start()
    except ElanusError as error:
        raise CannotStart(error.message) from error
    except MetaFault as error:
        raise CannotStart(str(error)) from error
    return process


async def _start_pipeline(
    stack: AsyncExitStack, settings: Settings, workspace: Workspace, stopping: asyncio.Event
) -> SparkPipeline:
    """Raises `CannotStart`."""
    from elanus.server.cluster.datanode import SparkOnDemand, SparkPipeline  # no other role has Spark

    spark = SparkOnDemand(settings, workspace.scratch)
    starting = asyncio.ensure_future(asyncio.to_thread(spark.start))
    if await first_of(stopping, starting):
        # Nothing else has begun; the process with Spark ends with the pipe that this one holds.
        os._exit(0)
    stack.push_async_callback(asyncio.to_thread, spark.close)
    try:
        return SparkPipeline(settings, starting.result())
    except JobFault as error:
        raise CannotStart(f"Spark does not start: {error}") from error


async def _open(stack: AsyncExitStack, settings: Settings) -> Services:
    """Open the services of the cluster. Raises `ElanusError`."""
    paths = paths_of(settings.data_dir)
    store = await asyncio.to_thread(partial(open_objects, settings, paths, shared=True))
    owner = f"{os.uname().nodename}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    meta = open_meta(settings, owner)
    stack.push_async_callback(meta.close)
    await check_format(meta)
    identity = await ClusterIdentity.open(
        meta, store, meta_url=settings.meta.url, store_url=settings.storage.url
    )
    leases = LeaseKeeper(partial(open_meta, settings, f"{owner}-leases"), SystemClock().elapsed_s)
    stack.push_async_callback(leases.close)
    leases.start()
    log = await open_log(settings, paths, CheckpointPositions(meta))
    stack.push_async_callback(log.close)
    channels = await open_channels(settings)
    stack.push_async_callback(channels.close)
    return Services(meta, leases, log, store, channels, identity)
