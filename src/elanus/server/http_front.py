"""The REST API of a proxy and the console, opened next to its gRPC port.

The web framework and the endpoints are imported when it is opened: a server without it needs neither the time
nor the memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from elanus.core.errors import Unavailable
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.calls import Calls, Operation
from elanus.rpc.serving.held import Held
from elanus.server.certificates import front_security
from elanus.server.console_source import ConsoleSource
from elanus.server.open_files import http_connections_for, open_files_limit
from elanus.server.settings import ProxySettings
from elanus.server.settings_http import HttpSettings
from elanus.server.startup import PortTaken

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

_STOP_GRACE_S = 2.0
_MB = 1024 * 1024


def import_single_threaded(settings: HttpSettings) -> None:
    """Import what the REST API needs and must be imported before other threads run.

    anyio parses its own source when it is imported, and a thread that loads the first collection parses the
    literals of the filters' grammar. Where two threads parse at the same time, CPython 3.11 may raise
    SystemError ("AST constructor recursion depth mismatch").
    """
    if settings.enabled:
        import anyio.abc  # noqa: F401


def http_front(settings: HttpSettings, source: ConsoleSource | None = None) -> HttpFront | None:
    """Return the front to open; None if the settings switch it off. ``source``: what the console shows."""
    return HttpFront(settings, source) if settings.enabled else None


def url_of(front: HttpFront | None) -> str:
    """Return the URL of an open front, "" if there is none."""
    return front.url if front is not None else ""


class HttpFront:
    """``url``: set by `start`. ``source``: what the console shows; without one there is no console."""

    def __init__(self, settings: HttpSettings, source: ConsoleSource | None = None) -> None:
        self._settings = settings
        self._source = source if settings.console else None
        self.url = ""

    def operations(self, verbs: Verbs) -> Iterable[Operation]:
        """Return the operations that only the REST API has."""
        from elanus.proxy.rest.operations import rest_operations

        yield from rest_operations(verbs)
        if self._source is not None:
            from elanus.console.status import console_operations

            yield from console_operations(self._source, time.monotonic)

    def start(
        self, stack: AsyncExitStack, calls: Calls, workers: Executor, proxy: ProxySettings, held: Held
    ) -> None:
        """Open the port until the stack is closed. Raises `PortTaken`, `CannotStart`.

        ``held``: counts the bytes of large requests and answers, with those of the gRPC port.
        """
        from elanus.proxy.rest.front import RestFront
        from elanus.proxy.rest.server import RestServer

        # A proxy that has users, or asks clients for certificates, does so for this port too.
        front = RestFront(calls, strict=self._settings.strict_status)
        security = front_security(proxy)

        def opened(port: int) -> str:
            server = RestServer(
                front,
                workers,
                proxy.host,
                port,
                body_max_bytes=proxy.message_max_mb * _MB,
                held=held,
                connections_max=proxy.connections_max
                or http_connections_for(open_files_limit(), proxy.count),
                tls=security,
                mounts=self._console(calls, workers, proxy, held),
            )
            url = server.start()
            stack.push_async_callback(asyncio.to_thread, server.stop, _STOP_GRACE_S)
            return url

        try:
            self.url = opened(self._settings.port_for(proxy.port))
        except Unavailable as error:
            if self._settings.is_port_chosen:
                raise PortTaken(
                    f"{error.message}; choose another with --set http.port=PORT (0: any free one), "
                    "or switch the REST API off with --set http.enabled=false"
                ) from None
            self.url = opened(0)  # nobody asked for the port that is taken

    def _console(self, calls: Calls, workers: Executor, proxy: ProxySettings, held: Held) -> list[BaseRoute]:
        """Return the console's routes; none if there is no console."""
        if self._source is None:
            return []
        from elanus.console.app import Site, console_routes
        from elanus.console.sessions import Sessions
        from elanus.rpc.origins import is_local_name

        sessions = Sessions(calls.sign_in, time.monotonic)
        site = Site(proxy.message_max_mb * _MB, is_local_name(proxy.host), bool(proxy.tls_cert), held)
        return console_routes(calls, sessions, workers, site)
