"""A serving process: a proxy that only reads, and the query node that it reads.

Its parent starts it, sends it the settings through its standard input, and has it open the port for clients
when the coordinators know it. When the parent ends, it ends too.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import AsyncExitStack
from typing import Any, NoReturn, cast

from elanus.api.datacoord import DataCoordApi
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.proxy import ProxyApi
from elanus.api.querycoord import QueryCoordApi
from elanus.api.querynode import QueryNodeApi
from elanus.api.rootcoord import RootCoordApi
from elanus.api.serving import ReadGrants, ServingFacts, ServingObserved, ServingProcessApi
from elanus.core.ids import NodeID
from elanus.log.port import Log, PollingFollower
from elanus.metrics import Metrics
from elanus.proxy.calls import Calls, Observer
from elanus.proxy.read_watch import ReadWatch
from elanus.proxy.role.proxy import Coordinators, Proxy
from elanus.proxy.role.stamps import RemoteStamps
from elanus.proxy.verbs.proxy_verbs import ProxyVerbs
from elanus.proxy.wire.operations import milvus_operations
from elanus.proxy.wire.passing import READS, MainProcess, PassingGuard, PassingOperation
from elanus.proxy.wire.reads import Reads
from elanus.proxy.wire.server import MilvusServer
from elanus.rpc.carrier import RpcChannel, RpcServer
from elanus.rpc.serving.held import Held
from elanus.server.access import open_audit, port_access
from elanus.server.backends import open_follower, open_objects_to_read
from elanus.server.builders import make_query_node, recall_sampler
from elanus.server.certificates import front_security
from elanus.server.counters import MetricMeasures, RequestMeasures
from elanus.server.data_dir import paths_of
from elanus.server.ending import end_process
from elanus.server.loop_lag import LoopLag
from elanus.server.open_files import connections_for, open_files_limit
from elanus.server.own_resources import resident_bytes
from elanus.server.parent import killed_with_parent, when_parent_ends
from elanus.server.policies import proxy_policy
from elanus.server.process_setup import set_up_process
from elanus.server.serving.reads import GrantedReads, Grants, PagesElsewhere, PassedWrites, reading_settings
from elanus.server.settings import Settings
from elanus.server.threads import ProcessThreads

_ONLINE_WAIT_S = 30.0
_LOG_POLL_MS = 50.0
"""Ticks that a read has asked for are looked for at once."""
_STOP_GRACE_S = 2.0


def run(online: str, front: str, address: str, number: int) -> NoReturn:
    """Run until the parent closes standard input. Ends the process with the exit code.

    ``online``: the address of the coordinators; ``front``: the main process's local front; ``address``: where
    this process is reached; ``number``: its own, from 2 on.
    """
    killed_with_parent()
    settings = Settings.model_validate_json(sys.stdin.buffer.readline())
    set_up_process(settings.logging, f"serving {number}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent, which then stops us
    asyncio.run(_run(settings, online, front, address, number))
    end_process(0)


async def _run(settings: Settings, online: str, front: str, address: str, number: int) -> None:
    ended = asyncio.Event()
    when_parent_ends(asyncio.get_running_loop(), ended)
    async with AsyncExitStack() as stack:
        channel = RpcChannel(online)
        stack.push_async_callback(channel.close)
        await channel.ready(_ONLINE_WAIT_S)
        process = await ServingProcess.started(stack, settings, channel, front, number)
        server = RpcServer(address, process.services())
        await server.start()
        stack.push_async_callback(server.stop)
        await ended.wait()


class _UntilKilled:
    """Implements `elanus.core.lease.Lease`: the parent ends this process before it does without it."""

    def __init__(self, node_id: NodeID) -> None:
        self.node_id = node_id

    def is_valid(self) -> bool:
        return True

    async def confirm(self) -> None:
        """It is held."""

    def give_up(self, why: str) -> None:
        """Never called: only a proxy that writes gives up its lease."""
        raise AssertionError(why)


class ServingProcess:
    """The roles of the process. Implements `elanus.api.serving.ServingProcessApi`. Use `started`."""

    def __init__(self, stack: AsyncExitStack, settings: Settings, number: int, front: str) -> None:
        self._stack = stack
        self._settings = settings
        self._number = number
        self._metrics = Metrics()
        self._reads = 0
        self._lag = LoopLag(time.monotonic, self._metrics.loop_lag_seconds.observe)
        self._writes = PassedWrites(settings.proxy.graceful_time_ms)
        self._main = MainProcess(front, self._writes.wrote)
        self._grants = Grants()
        self._recall = recall_sampler(settings)
        self._watch = ReadWatch(settings.proxy.slow_request_ms, process=number)

    @classmethod
    async def started(
        cls, stack: AsyncExitStack, settings: Settings, channel: RpcChannel, front: str, number: int
    ) -> ServingProcess:
        """Start the roles. They, and the port for clients, are closed with the stack."""
        process = cls(stack, settings, number, front)
        await process._start(channel)
        return process

    async def _start(self, channel: RpcChannel) -> None:
        settings, stack = self._settings, self._stack
        paths, threads = paths_of(settings.data_dir), ProcessThreads()
        stack.callback(threads.shutdown)
        stack.callback(self._main.close)
        log = await open_follower(settings, paths, poll_ms=_LOG_POLL_MS)
        stack.push_async_callback(log.close)
        node_id = NodeID(self._number)
        scratch = paths.scratch / f"querynode-{self._number}"
        store = open_objects_to_read(settings, paths)
        stack.push_async_callback(asyncio.to_thread, self._recall.close)
        self._node = make_query_node(
            settings, node_id, log, store, threads.pools, scratch, recall=self._recall
        )
        await self._node.start()
        stack.push_async_callback(self._node.stop)
        coordinators = Coordinators(
            channel.client(RootCoordApi),
            channel.client(DataCoordApi),
            channel.client(IndexCoordApi),
            channel.client(QueryCoordApi),
        )
        self._proxy = Proxy(
            _UntilKilled(node_id),
            coordinators,
            GrantedReads(self._node, self._grants),
            cast(Log, log),  # no write comes here, so nothing is appended
            RemoteStamps(coordinators.root.alloc_timestamp, settings.proxy.read_timeout_s),
            threads.pools.encoding,
            proxy_policy(settings),
            MetricMeasures(self._metrics),
            live_proxies=lambda: 0,
            is_reader=True,
            own_writes=self._writes,
            ticked=log.poll_now if isinstance(log, PollingFollower) else lambda: None,
        )
        self._proxy.reads.pages = PagesElsewhere()
        await self._proxy.start()
        stack.push_async_callback(self._proxy.stop)
        measuring = asyncio.create_task(self._lag.keep(), name="loop lag")
        stack.callback(measuring.cancel)

    def services(self) -> list[tuple[type[Any], Any]]:
        return [
            (QueryNodeApi, self._node),
            (ProxyApi, self._proxy),
            (ReadGrants, self._grants),
            (ServingProcessApi, self),
        ]

    # for the parent

    async def open(self, port: int) -> None:
        """Raises `Unavailable`, `CannotStart`."""
        settings = self._settings.proxy
        access = port_access(reading_settings(settings), lambda: self._proxy)
        no_pressure = cast(Any, None)  # no write comes here
        verbs = ProxyVerbs(lambda: self._proxy, no_pressure, list)
        reads = (o for o in milvus_operations((Reads(verbs),)) if o.name in READS)
        audit_name = f"audit-{self._number}.log"
        calls = Calls(
            map(PassingOperation, reads),
            PassingGuard(access.guard),
            self._observed(),
            access.sign_in,
            open_audit(self._stack, self._settings, self._settings.data_dir, self._metrics, audit_name),
            self._watch,
        )
        server = MilvusServer(
            calls,
            settings.host,
            port,
            max_workers=settings.workers,
            request_max_bytes=settings.message_max_mb * 1024 * 1024,
            connections_max=settings.connections_max or connections_for(open_files_limit(), 1),
            held=Held.up_to(settings.requests_max_bytes, settings.answers_max_bytes),
            security=front_security(settings),
            serving=settings.serving,
            shares_port=True,
            main=self._main,
        )
        server.start()
        # In a thread: requests in progress may still need the event loop.
        self._stack.push_async_callback(asyncio.to_thread, server.stop, _STOP_GRACE_S)

    def _observed(self) -> Observer:
        measures = RequestMeasures(self._metrics)

        def observed(rpc: str, code: int, seconds: float) -> None:
            self._reads += 1
            measures.observe(rpc, code, seconds)

        return observed

    async def facts(self) -> ServingFacts:
        return ServingFacts(
            len(self._grants),
            self._reads,
            self._main.passed_on,
            resident_bytes(),
            self._lag.longest_s,
            self._watch.slow_count,
        )

    async def observed(self) -> ServingObserved:
        return ServingObserved(tuple(self._watch.slow_requests()), tuple(self._recall.measured()))
