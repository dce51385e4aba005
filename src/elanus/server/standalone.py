"""`elanus serve`: the standalone server, from its start to its clean stop.

The online process answers clients as soon as its roles are running. The data node is started in the
background, with Spark in a process of its own. That may start, die and restart, and only work that needs
Spark waits for it.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from elanus import __version__
from elanus.api.datacoord import DataCoordApi
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.pipeline import PipelineApi
from elanus.api.querycoord import QueryCoordApi
from elanus.api.rootcoord import RootCoordApi
from elanus.core.clock import SystemClock
from elanus.core.errors import ElanusError
from elanus.core.faults import Fault, MetaFault
from elanus.datacoord.checkpoint_positions import CheckpointPositions
from elanus.meta.sqlite import SqliteMeta
from elanus.metrics import Metrics
from elanus.rpc.carrier import RpcServer
from elanus.server.access import check_openness, open_audit
from elanus.server.announce import Announcement, announce, withdraw
from elanus.server.backends import bind, open_log, open_objects
from elanus.server.certificates import front_security
from elanus.server.console_source import ConsoleSource
from elanus.server.counters import JobMeasures, MetricMeasures
from elanus.server.data_dir import DataDir
from elanus.server.fronts import Fronts
from elanus.server.http_front import HttpFront, http_front, import_single_threaded, url_of
from elanus.server.memory_limit import memory_limit_bytes, with_ample_memory, within_memory
from elanus.server.monitoring import start_observing
from elanus.server.online import Online
from elanus.server.open_files import check_room_for_spark
from elanus.server.process_setup import set_up_process, stop_signals
from elanus.server.report import Report
from elanus.server.serving.pool import ServingPool
from elanus.server.settings import Settings
from elanus.server.startup import CannotStart
from elanus.server.supervise import LatePipeline, PipelineSupervisor, Supervised
from elanus.server.threads_allowed import check_room_for_threads


def serve(settings: Settings) -> int:
    """Run until SIGINT or SIGTERM; return the exit code. Raises `CannotStart`."""
    limit = set_up_process(settings.logging, "online")
    if settings.pipeline.enabled:
        check_room_for_spark(limit)
    check_room_for_threads(settings.proxy.processes_wanted, with_spark=settings.pipeline.enabled)
    memory_bytes = memory_limit_bytes()
    import_single_threaded(settings.http)
    fitted = within_memory(with_ample_memory(settings, memory_bytes), memory_bytes)
    return asyncio.run(_serve(fitted))


async def _serve(settings: Settings) -> int:
    check_openness(settings.proxy)
    security = front_security(settings.proxy)
    stopping = stop_signals()
    async with AsyncExitStack() as stack:
        data_dir = DataDir(settings.data_dir)
        stack.callback(data_dir.close)
        metrics = Metrics()
        online = await open_online(settings, data_dir, metrics)
        stack.push_async_callback(online.stop)
        try:
            await online.start()
        except (ElanusError, MetaFault) as error:
            raise CannotStart(str(error)) from error
        online_address = await _open_coordinators(stack, settings, data_dir, online)
        supervisor = _start_pipeline(stack, settings, data_dir, online, metrics)
        pipeline = online.pipeline.client(PipelineApi, timeout_s=1.0)
        report = Report(online, supervisor, pipeline)
        observe_url = start_observing(stack, settings, online, metrics, report)
        audit = open_audit(stack, settings, data_dir.root, metrics)
        source = ConsoleSource(report.status, report.slow_requests, metrics.registry, audit)
        http = http_front(settings.http, source)
        local = data_dir.socket("front") if settings.proxy.processes_wanted > 1 else ""
        fronts = Fronts(settings.proxy, online, metrics, "STANDALONE", security, audit, report.watch)
        addresses = _open_fronts(stack, fronts, online, settings.proxy.ports, http, local)
        if local:
            pool = ServingPool(
                settings, data_dir, online.members, online_address, local, metrics.serving_reads.inc
            )
            pool.start(int(addresses[0].rpartition(":")[2]))
            stack.push_async_callback(pool.stop)
            report.serving = pool
        report.addresses = dict(zip(online.proxies, addresses, strict=True))
        stack.callback(withdraw, data_dir.root)
        _announce(data_dir, addresses, observe_url, url_of(http))
        await stopping.wait()
    return 0


def _announce(data_dir: DataDir, addresses: Sequence[str], observe_url: str, http_url: str) -> None:
    """Say where the server is: to tools in its directory, and to its operator in one line."""
    first, *others = addresses
    announce(
        data_dir.root,
        Announcement(
            version=__version__,
            pid=os.getpid(),
            address=first,
            other_addresses=tuple(others),
            observe_url=observe_url,
            http_url=http_url,
        ),
    )
    served = ", ".join((*addresses, *((http_url,) if http_url else ())))
    sys.stdout.write(f"Elanus {__version__} serves {served}, data in {data_dir.root}\n")
    sys.stdout.flush()


def _open_fronts(
    stack: AsyncExitStack,
    fronts: Fronts,
    online: Online,
    ports: Sequence[int],
    http: HttpFront | None,
    local: str,
) -> list[str]:
    """Open a port for each proxy; return their addresses. The first one has the REST API, and ``local``, for
    the serving processes."""
    first, *others = zip(online.proxies, ports, strict=True)
    name, port = first
    address = fronts.open(stack, port, functools.partial(online.current_proxy, name), http, local)
    return [address, *(fronts.open(stack, p, functools.partial(online.current_proxy, n)) for n, p in others)]


async def open_online(settings: Settings, data_dir: DataDir, metrics: Metrics) -> Online:
    """Open what the online process depends on, and make its roles; `Online.start` starts them.

    Raises `CannotStart`.
    """
    bind(settings, data_dir.paths)
    paths, measures = data_dir.paths, MetricMeasures(metrics)
    async with AsyncExitStack() as opened:
        try:
            store = await asyncio.to_thread(open_objects, settings, paths)
            meta = SqliteMeta(paths.meta, fsync=settings.log.fsync, monotonic_s=SystemClock().monotonic_s)
            opened.push_async_callback(meta.close)
            log = await open_log(settings, paths, CheckpointPositions(meta))
            opened.push_async_callback(log.close)
            online = Online(settings, data_dir, meta, log, store, measures, JobMeasures(metrics).ended)
        except (ElanusError, Fault) as error:
            raise CannotStart(str(error)) from error
        opened.pop_all()
        return online


async def _open_coordinators(
    stack: AsyncExitStack, settings: Settings, data_dir: DataDir, online: Online
) -> str:
    """Open the coordinators' socket, if there will be serving processes; return its address, or ""."""
    if settings.proxy.processes_wanted == 1:
        return ""
    address = data_dir.socket("online")
    services = [
        (RootCoordApi, online.root),
        (DataCoordApi, online.data),
        (IndexCoordApi, online.index),
        (QueryCoordApi, online.query),
    ]
    server = RpcServer(address, services)
    await server.start()
    stack.push_async_callback(server.stop)
    return address


def _start_pipeline(
    stack: AsyncExitStack,
    settings: Settings,
    data_dir: DataDir,
    online: Online,
    metrics: Metrics,
) -> PipelineSupervisor | None:
    """Start the data node, whose Spark is a process of its own."""
    if not settings.pipeline.enabled:
        return None

    def make() -> Supervised:
        from elanus.server.standalone_pipeline import Neighbors, StandalonePipeline

        neighbors = Neighbors(online.log, online.root, online.data, online.ledger, online.index)
        return StandalonePipeline(settings, data_dir.paths, neighbors, online.pipeline)

    supervisor = PipelineSupervisor(
        LatePipeline(online.query.loads, make),
        online.register_data_node,
        settings.pipeline.restart_backoff_ms,
        settings.pipeline.restart_backoff_max_ms,
        metrics.pipeline_restarts.inc,
    )
    supervisor.start()
    stack.push_async_callback(supervisor.stop)
    return supervisor
