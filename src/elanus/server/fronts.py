"""The front of a proxy, from its running role to the port for clients: the same in all kinds of servers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from elanus.api.backups import BackupApi
from elanus.api.connector import ConnectorApi, SnapshotApi
from elanus.api.keys import KeysApi
from elanus.core.errors import Unavailable
from elanus.metrics import Metrics
from elanus.proxy.api import ComponentView
from elanus.proxy.calls import Audit, Calls
from elanus.proxy.role.proxy import Proxy
from elanus.proxy.verbs.backups import Backups
from elanus.proxy.verbs.front import ProxyFront
from elanus.proxy.verbs.pressure import Pressure
from elanus.proxy.verbs.snapshots import Snapshots
from elanus.proxy.watch import ReadWatch
from elanus.proxy.wire.backups import BackupService
from elanus.proxy.wire.connector import Connector
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.interfaces import interface_operations
from elanus.proxy.wire.keys import Keys
from elanus.proxy.wire.operations import milvus_operations
from elanus.proxy.wire.server import MilvusServer
from elanus.rpc.security import FrontSecurity
from elanus.rpc.serving.held import HeldBytes
from elanus.server.access import port_access
from elanus.server.counters import RequestMeasures
from elanus.server.http_front import HttpFront
from elanus.server.open_files import connections_for, open_files_limit
from elanus.server.settings import ProxySettings
from elanus.server.startup import PortTaken

_STOP_GRACE_S = 2.0


class Process(Protocol):
    """The process whose proxies are offered to clients."""

    snapshots: SnapshotApi

    @property
    def import_url(self) -> str: ...
    def pressure(self) -> Pressure: ...
    def components(self) -> Sequence[ComponentView]: ...


def start_front(
    stack: AsyncExitStack,
    settings: ProxySettings,
    port: int,
    process: Process,
    current: Callable[[], Proxy],
    metrics: Metrics,
    deploy_mode: str,
    security: FrontSecurity | None,
    audit: Audit | None = None,
    http: HttpFront | None = None,
    watch: ReadWatch | None = None,
    local: str = "",
) -> str:
    """Open a port for clients (0: any free one) and return its address. Closed with the stack.

    ``current`` returns the running instance of the proxy that answers. ``deploy_mode``: ``STANDALONE`` or
    ``DISTRIBUTED``. ``audit``: the process's audit log. ``http``: opened too, for the same operations.
    ``watch``: which reads are explained. ``local``: the address of a local socket; other processes of this
    server listen on the port too, and pass on there what they do not answer. Raises `PortTaken`.
    """
    access = port_access(settings, current)
    front = ProxyFront(current, process.pressure(), process.components)
    connector = Connector(front, Snapshots(current, process.snapshots), process.import_url)
    calls = Calls(
        (
            *milvus_operations(milvus_families(front, deploy_mode, access.visible)),
            *interface_operations(ConnectorApi, connector),
            *interface_operations(BackupApi, BackupService(front, Backups(current))),
            *interface_operations(KeysApi, Keys(front)),
            *(() if http is None else http.operations(front)),
        ),
        access.guard,
        RequestMeasures(metrics).observe,
        access.sign_in,
        audit,
        watch,
    )

    held = HeldBytes(settings.requests_max_bytes)

    def server_at(host: str, port: int, security: FrontSecurity | None) -> MilvusServer:
        return MilvusServer(
            calls,
            host,
            port,
            max_workers=settings.workers,
            request_max_bytes=settings.message_max_mb * 1024 * 1024,
            connections_max=settings.connections_max or connections_for(open_files_limit(), settings.count),
            held=held,
            security=security,
            serving=settings.serving,
            shares_port=bool(local),
        )

    try:
        if local:
            check_free(settings.host, port)
            passed_on = server_at(local, 0, None)
            passed_on.start()
            stack.push_async_callback(asyncio.to_thread, passed_on.stop, _STOP_GRACE_S)
        server = server_at(settings.host, port, security)
        port = server.start()
    except Unavailable as error:
        raise PortTaken(f"{error.message}; choose another with --port PORT (0: any free one)") from None
    # In a thread: requests in progress may still need the event loop.
    stack.push_async_callback(asyncio.to_thread, server.stop, _STOP_GRACE_S)
    if http is not None:
        http.start(stack, calls, server.workers, settings, held)
    return f"{settings.host}:{port}"


def check_free(host: str, port: int) -> None:
    """Raises `Unavailable` if any server listens on the port, also one that would share it (0: never)."""
    if not port:
        return
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror}") from error
