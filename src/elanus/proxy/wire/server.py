"""The gRPC server of a client port.

It uses threads, not asyncio: reads are synchronous functions over an immutable snapshot, and a threaded
server answers twice as many small requests per second as ``grpc.aio``. Reads that were short so far are
answered without a change of threads (`elanus.rpc.serving`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc

from elanus.api.backups import BackupApi
from elanus.api.connector import ConnectorApi
from elanus.api.keys import KeysApi
from elanus.core.errors import Unavailable
from elanus.core.limits import GRPC_MESSAGE_MAX_BYTES
from elanus.proxy.calls import Calls
from elanus.proxy.wire.connection_limit import ConnectionLimit, accepted_max, connected_ports
from elanus.proxy.wire.interfaces import interface_handler, interface_paths
from elanus.proxy.wire.message_limit import LimitedHandler, received_max_bytes
from elanus.proxy.wire.passing import MainProcess, PassingHandler, passing_kind_of
from elanus.proxy.wire.service import milvus_handlers
from elanus.proxy.wire.short_reads import kind_of
from elanus.rpc.security import FrontSecurity
from elanus.rpc.serving.choice import Serving, grpc_server
from elanus.rpc.serving.held import Held

REQUEST_MAX_BYTES = 64 * 1024 * 1024
"""The reference's default."""
_INTERFACES = (ConnectorApi, BackupApi, KeysApi)
"""The interfaces that Elanus' own clients call."""
STREAMS_MAX = 1024
"""Unfinished calls of one connection; a client keeps further ones until others have ended. gRPC itself has no
limit: 200,000 heads of calls, of one client, took 2.2 GB, and the others waited for half a minute."""
_OPTIONS = (
    ("grpc.max_send_message_length", GRPC_MESSAGE_MAX_BYTES),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    # Clients ping every 10 to 55 s even when idle; that must not end a connection. A flood of pings does: one
    # client with millions a second delayed the calls of others by two seconds.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 100),
)


def address_of(host: str, port: int) -> str:
    if host.startswith("unix:"):
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class MilvusServer:
    """Serves the operations of ``calls`` to Milvus clients and to Elanus' own. Not started until `start`.

    ``port`` 0 takes a free one. ``serving``: the kind of server. ``max_workers`` limits the requests
    handled at a time outside the serving loop, including those that wait for a tick or a load; further
    requests queue. ``request_max_bytes``: larger requests are refused before they are decoded, with the
    status RESOURCE_EXHAUSTED (see `elanus.proxy.wire.message_limit`). ``connections_max``: the
    calls of further connections get the status RESOURCE_EXHAUSTED (see `elanus.proxy.wire.connection_limit`);
    None for no limit. ``held``: counts the bytes of large requests and answers, with limits for them.
    ``security``: the certificate presented to clients; None serves without TLS.

    ``host`` may also be a local socket, ``unix:PATH``; then ``port`` means nothing. ``shares_port``: the
    server's other processes listen on the port too, and the kernel shares the connections out. Without it a
    second server on the port fails. ``main``: the process to which everything is passed on that is no
    operation of ``calls``.
    """

    def __init__(
        self,
        calls: Calls,
        host: str,
        port: int,
        *,
        max_workers: int = 64,
        request_max_bytes: int = REQUEST_MAX_BYTES,
        connections_max: int | None = None,
        held: Held | None = None,
        security: FrontSecurity | None = None,
        serving: Serving = "loop",
        shares_port: bool = False,
        main: MainProcess | None = None,
    ) -> None:
        self._address = address_of(host, port)
        self._port = port
        self._security = security
        self.workers = ThreadPoolExecutor(max_workers, thread_name_prefix="milvus-rpc")
        """The threads that answer requests. Other fronts of the same operations share them."""
        limits = [("grpc.max_receive_message_length", received_max_bytes(request_max_bytes))]
        connections: ConnectionLimit | None = None
        if connections_max is not None:
            limits.append(("grpc.max_allowed_incoming_connections", accepted_max(connections_max)))
            connections = ConnectionLimit(connections_max, lambda: connected_ports(self._port))
        limits.append(("grpc.so_reuseport", int(shares_port)))
        handlers: tuple[grpc.GenericRpcHandler, ...]
        if main is None:
            handlers = (milvus_handlers(calls), *(interface_handler(api, calls) for api in _INTERFACES))
        else:
            others = (path for api in _INTERFACES for path in interface_paths(api))
            handlers = (PassingHandler(calls, main, others),)
        limited = tuple(LimitedHandler(handler, request_max_bytes, connections) for handler in handlers)
        options = (*limits, *_OPTIONS)
        kinds = kind_of if main is None else passing_kind_of
        self._server = grpc_server(serving, limited, self.workers, options, kinds, request_max_bytes, held)

    def start(self) -> int:
        """Start serving and return the port. Raises `Unavailable` if the address cannot be listened on."""
        credentials = None if self._security is None else self._security.server_credentials()
        try:
            port = self._server.open(self._address, credentials)
        except RuntimeError as error:
            raise Unavailable(
                f"cannot listen on {self._address}: another server uses the port, "
                "or the host is none of this machine's"
            ) from error
        self._port = port  # before calls arrive
        self._server.start()
        return port

    def stop(self, grace_s: float) -> None:
        """Refuse new requests, give the current ones ``grace_s`` seconds, then cancel them."""
        self._server.stop(grace_s)
        self.workers.shutdown(wait=False, cancel_futures=True)
