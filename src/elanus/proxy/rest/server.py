"""The HTTP port: uvicorn in a thread and an event loop of its own, so that it delays no role.

The loop only reads and writes; requests are answered in the pool of the gRPC server.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, cast

import orjson
import uvicorn
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from elanus.core.errors import Unavailable
from elanus.proxy.rest.accepting import Acceptor
from elanus.proxy.rest.app import application
from elanus.proxy.rest.front import RestFront
from elanus.proxy.rest.lingering import LingeringTransport
from elanus.proxy.rest.renewed import RenewedContext
from elanus.proxy.rest.sending import closes
from elanus.proxy.rest.unbegun import Unbegun
from elanus.proxy.wire.connection_limit import RefusalLog, spare_connections, too_many
from elanus.rpc.origins import is_local_name
from elanus.rpc.security import FrontSecurity
from elanus.rpc.serving.held import Held

HEAD_WAIT_S = 60.0
"""How long a new connection may stay without a request, and how long the head of any request may take."""
HEAD_MAX_BYTES = 128 * 1024
"""The most bytes of a request's line and headers, and of its trailers; what is read at once may exceed it."""
_KEEP_ALIVE_S = 75
_START_WAIT_S = 30.0
_BACKLOG = 1024
_TLS_HELLO_WAIT_S = 10.0
_TLS_GOODBYE_WAIT_S = 0.2


class _Loop(asyncio.SelectorEventLoop):
    """Has uvicorn's connections accepted by an `Acceptor`.

    Gives up TLS clients that do not say hello or goodbye in time; asyncio's own limits are 60 and 30 s.
    """

    def __init__(self, connected: Callable[[], int], most: int | None, refused: Callable[[], None]) -> None:
        super().__init__()
        self._connected = connected
        self._most = most
        self._refused = refused

    async def create_server(self, protocol_factory: Any, **options: Any) -> Any:  # type: ignore[override]
        return Acceptor(
            protocol_factory,
            options["sock"],
            tls=options["ssl"],
            hello_wait_s=_TLS_HELLO_WAIT_S,
            goodbye_wait_s=_TLS_GOODBYE_WAIT_S,
            connected=self._connected,
            most=self._most,
            refused=self._refused,
        )


class _Protocol(HttpToolsProtocol):
    """Closes connections on which the head of a request is too slow or too large, and those beyond the limit.

    Heads are kept in memory before anybody has signed in, so they need limits as bodies do. A few
    connections beyond ``limit_concurrency`` are kept, and their requests refused with a text. uvicorn itself
    would refuse the requests of all connections.

    A connection whose request is answered before all of it has arrived is closed, and with patience
    (`elanus.proxy.rest.lingering`).
    """

    config: _Config
    transport: LingeringTransport
    _head_bytes = 0
    """Those that arrived since the message began, or since the last piece of its body."""
    _is_arriving = False
    """Whether a request has begun to arrive, and its end has not."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(LingeringTransport(transport, self.loop, lambda: self._is_arriving))
        self._head_due = self.loop.call_later(HEAD_WAIT_S, self._give_up)
        self._unbegun = Unbegun()
        limit, self.limit_concurrency = self.limit_concurrency, None
        if limit is not None and len(self.connections) > limit:
            self.config.refusals.note()
            self.app = _Refusal(too_many(limit))
            if len(self.connections) > limit + spare_connections(limit):
                transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_due.cancel()
        self._unbegun.give_up()
        self.transport.close_now()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self.transport.lingers:
            self.transport.close_now()
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self.transport.lingers:
            self.transport.throw_away(data)
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > HEAD_MAX_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of the request is larger than {HEAD_MAX_BYTES // 1024} kB.")

    def on_message_begin(self) -> None:
        self._is_arriving = True
        self._head_bytes = 0
        if self._head_due.cancelled():  # not the first request of the connection
            self._head_due = self.loop.call_later(HEAD_WAIT_S, self._give_up)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_due.cancel()
        super().on_headers_complete()
        scope = cast(dict[str, Any], self.scope)  # the request's task has not run yet
        self._unbegun.attach(scope)
        closes(scope, self.transport.abort)

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_arriving = False
        super().on_message_complete()
        # uvicorn reads no further after a large body, and would not see that the client leaves.
        if not self.pipeline:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        if self._is_arriving and self.cycle.response_complete:  # else it is an earlier request's response
            self.transport.close()
        super().on_response_complete()

    def _give_up(self) -> None:
        self.transport.close_now()


class _Refusal:
    """Answers every request of a connection with the HTTP status 503, and closes it."""

    def __init__(self, text: str) -> None:
        self._body = orjson.dumps({"code": Unavailable.code, "message": text})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        headers.append((b"content-length", b"%d" % len(self._body)))
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": self._body})


class _Config(uvicorn.Config):
    def __init__(
        self, app: ASGIApp, connections_max: int | None, tls: FrontSecurity | None, **options: Any
    ) -> None:
        super().__init__(app, limit_concurrency=connections_max, **options)
        self.refusals = RefusalLog("http", connections_max or 0)
        self._context = None if tls is None else RenewedContext(tls)

    def load(self) -> None:
        super().load()
        self.ssl = self._context


class _Server(uvicorn.Server):
    """Waits for the end instead of looking for it ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._end: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        await self.on_tick(0)  # prepares the headers of all answers
        self.ready.set()
        if not self.should_exit:
            await self._end.wait()

    def end(self) -> None:
        """Stop serving. Called from another thread."""
        self.should_exit = True
        if self._loop is not None and self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)


class RestServer:
    """The port, open from `start` to `stop`. ``port`` 0 takes a free one.

    ``body_max_bytes``: larger bodies are refused. ``held``: counts the bytes of large ones, and of
    large answers; None: there is no limit for all of them. ``connections_max``: the requests of further
    connections get the HTTP status 503, with a text; None for no limit. ``tls``: None serves without TLS;
    raises `InvalidParameter` if its files are unusable.
    ``mounts``: routes of other applications on this port.
    """

    def __init__(
        self,
        front: RestFront,
        workers: Executor,
        host: str,
        port: int,
        *,
        body_max_bytes: int,
        held: Held | None = None,
        connections_max: int | None = None,
        tls: FrontSecurity | None = None,
        mounts: Sequence[BaseRoute] = (),
    ) -> None:
        self._host, self._port = host, port
        app = application(
            front,
            workers,
            body_max_bytes=body_max_bytes,
            is_local=is_local_name(host),
            mounts=mounts,
            held=held,
        )
        self._server = _Server(
            _Config(
                app,
                connections_max,
                tls,
                http=_Protocol,
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                log_level="error",  # what anybody sends must not fill the log: bad requests are warnings
                access_log=False,
                date_header=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
            )
        )
        self._has_tls = tls is not None
        self._scheme = "https" if self._has_tls else "http"
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Start serving and return the URL. Raises `Unavailable` if the address cannot be listened on."""
        listener = self._listen()
        port = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, args=(listener,), name="rest", daemon=True)
        self._thread.start()
        if not self._server.ready.wait(_START_WAIT_S):
            raise Unavailable(f"the HTTP port {self._host}:{port} did not start within {_START_WAIT_S:g} s")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{host}:{port}"

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        # asyncio switches Nagle's algorithm off only where the protocol is named: answers would wait 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, self._port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise Unavailable(
                f"cannot listen on {self._host}:{self._port}: {error.strerror or error}"
            ) from error
        listener.setblocking(False)
        return listener

    def _new_loop(self) -> _Loop:
        config, limit = self._server.config, self._server.config.limit_concurrency
        assert isinstance(config, _Config)
        most = None if limit is None else limit + spare_connections(limit)
        return _Loop(lambda: len(self._server.server_state.connections), most, config.refusals.note)

    def _serve(self, listener: socket.socket) -> None:
        with listener, asyncio.Runner(loop_factory=self._new_loop) as runner:
            runner.run(self._server.serve(sockets=[listener]))
            if self._has_tls:  # the loop must not end before its connections
                runner.run(asyncio.sleep(2 * _TLS_GOODBYE_WAIT_S))

    def stop(self, grace_s: float) -> None:
        """Refuse new requests, give the current ones ``grace_s`` seconds, then close their connections."""
        self._server.config.timeout_graceful_shutdown = max(1, round(grace_s))
        self._server.end()
        if self._thread is not None:
            self._thread.join(grace_s + _START_WAIT_S)
