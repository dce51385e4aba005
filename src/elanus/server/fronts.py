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
from elanus.proxy.access.audit import Audit
from elanus.proxy.api.introspection import ComponentView
from elanus.proxy.calls import Calls
from elanus.proxy.read_watch import ReadWatch
from elanus.proxy.role.proxy import Proxy
from elanus.proxy.verbs.backups import Backups
from elanus.proxy.verbs.pressure import Pressure
from elanus.proxy.verbs.proxy_verbs import ProxyVerbs
from elanus.proxy.verbs.snapshots import Snapshots
from elanus.proxy.wire.backups import BackupService
from elanus.proxy.wire.connector import Connector
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.interfaces import interface_operations
from elanus.proxy.wire.keys import Keys
from elanus.proxy.wire.operations import milvus_operations
from elanus.proxy.wire.server import MilvusServer
from elanus.rpc.security import FrontSecurity
from elanus.rpc.serving.held import Held
from elanus.server.access import port_access
from elanus.server.counters import RequestMeasures
from elanus.server.http_front import HttpFront
from elanus.server.open_files import connections_for, open_files_limit
from elanus.server.settings import ProxySettings
from elanus.server.startup import CannotStart, PortTaken

_STOP_GRACE_S = 2.0


class Process(Protocol):
    """The process whose proxies are offered to clients."""

    snapshots: SnapshotApi

    @property
    def import_url(self) -> str: ...
    def pressure(self) -> Pressure: ...
    def components(self) -> Sequence[ComponentView]: ...


class Fronts:
    """The ports for clients of one process.

    ``deploy_mode``: ``STANDALONE`` or ``DISTRIBUTED``. ``audit``: the process's audit log. ``watch``: which
    reads are explained.
    """

    def __init__(
        self,
        settings: ProxySettings,
        process: Process,
        metrics: Metrics,
        deploy_mode: str,
        security: FrontSecurity | None,
        audit: Audit | None = None,
        watch: ReadWatch | None = None,
    ) -> None:
        self._settings = settings
        self._process = process
        self._metrics = metrics
        self._deploy_mode = deploy_mode
        self._security = security
        self._audit = audit
        self._watch = watch

    def open(
        self,
        stack: AsyncExitStack,
        port: int,
        current: Callable[[], Proxy],
        http: HttpFront | None = None,
        local: str = "",
    ) -> str:
        """Open a port for clients (0: any free one) and return its address. Closed with the stack.

        ``current`` returns the running instance of the proxy that answers. ``http``: opened too, for the same
        operations. ``local``: the address of a local socket; other processes of this server listen on the
        port too, and pass on there what they do not answer. Raises `PortTaken`, and `CannotStart` for a host
        that is unknown.
        """
        calls, host = self._calls(current, http), self._settings.host
        check_known(host)
        held = Held.up_to(self._settings.requests_max_bytes, self._settings.answers_max_bytes)
        try:
            if local:
                check_free(host, port)
                passed_on = self._server(calls, held, local, 0, None, shares_port=True)
                passed_on.start()
                stack.push_async_callback(asyncio.to_thread, passed_on.stop, _STOP_GRACE_S)
            server = self._server(calls, held, host, port, self._security, shares_port=bool(local))
            port = server.start()
        except Unavailable as error:
            raise PortTaken(f"{error.message}; choose another with --port PORT (0: any free one)") from None
        # In a thread: requests in progress may still need the event loop.
        stack.push_async_callback(asyncio.to_thread, server.stop, _STOP_GRACE_S)
        if http is not None:
            http.start(stack, calls, server.workers, self._settings, held)
        return f"{host}:{port}"

    def _calls(self, current: Callable[[], Proxy], http: HttpFront | None) -> Calls:
        """Return all operations that clients may call."""
        process = self._process
        access = port_access(self._settings, current)
        passwords = access.sign_in.passwords
        verbs = ProxyVerbs(current, process.pressure(), process.components, passwords)
        connector = Connector(verbs, Snapshots(current, process.snapshots), process.import_url)
        return Calls(
            (
                *milvus_operations(
                    milvus_families(verbs, self._deploy_mode, access.visible), verbs.describe_collection
                ),
                *interface_operations(ConnectorApi, connector),
                *interface_operations(BackupApi, BackupService(verbs, Backups(current))),
                *interface_operations(KeysApi, Keys(verbs)),
                *(() if http is None else http.operations(verbs)),
            ),
            access.guard,
            RequestMeasures(self._metrics).observe,
            access.sign_in,
            self._audit,
            self._watch,
        )

    def _server(
        self,
        calls: Calls,
        held: Held,
        host: str,
        port: int,
        security: FrontSecurity | None,
        *,
        shares_port: bool,
    ) -> MilvusServer:
        settings = self._settings
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
            shares_port=shares_port,
        )


def check_known(host: str) -> None:
    """Raises `CannotStart` for a host name that no name service knows; "" stands for all addresses."""
    try:
        socket.getaddrinfo(host or None, 0)
    except OSError as error:
        raise CannotStart(
            f"cannot listen on {host}: the host name is unknown ({error.strerror}); name an address of this "
            "machine with --host, such as 127.0.0.1, or 0.0.0.0 for all of them"
        ) from None


def check_free(host: str, port: int) -> None:
    """Raises `Unavailable` if any server listens on the port, also one that would share it (0: never)."""
    if not port:
        return
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror}") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror}") from error
