"""The gRPC server in front of a `Front`.

Threads, not asyncio: the reads they carry are synchronous functions over an immutable snapshot, and a
threaded server answers twice as many small requests a second as ``grpc.aio``.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

from elanus.core.errors import Unavailable
from elanus.core.limits import GRPC_MESSAGE_MAX_BYTES
from elanus.proxy.api import Front
from elanus.proxy.wire.admin import Admin
from elanus.proxy.wire.collections import Collections
from elanus.proxy.wire.compaction import Compaction
from elanus.proxy.wire.databases import Databases
from elanus.proxy.wire.imports import BulkImports
from elanus.proxy.wire.indexes import Indexes
from elanus.proxy.wire.loading import Loading
from elanus.proxy.wire.partitions import Partitions
from elanus.proxy.wire.reads import Reads
from elanus.proxy.wire.resource_groups import ResourceGroups
from elanus.proxy.wire.service import Observer, milvus_handlers
from elanus.proxy.wire.writes import Writes
from elanus.rpc.security import FrontSecurity

_OPTIONS = (
    ("grpc.max_receive_message_length", GRPC_MESSAGE_MAX_BYTES),
    ("grpc.max_send_message_length", GRPC_MESSAGE_MAX_BYTES),
    # A second server on the port must fail, not share its connections.
    ("grpc.so_reuseport", 0),
    # Clients ping every 10 to 55 s, also when nothing is under way; pings must not end a connection.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
)


def _observe_nothing(rpc: str, code: int, seconds: float) -> None:
    return


class MilvusServer:
    """Serves ``front`` to Milvus clients. Not started until `start`.

    ``port`` 0 takes a free one. ``max_workers`` bounds the requests answered at a time, also those that
    wait for a tick or a load: further ones queue. ``deploy_mode`` is what clients are told
    (``STANDALONE`` or ``DISTRIBUTED``). ``observe`` is called after each answer, for metrics.
    ``others``: further services on the same port. ``security``: the certificate that clients are shown; None
    serves without TLS.
    """

    def __init__(
        self,
        front: Front,
        host: str,
        port: int,
        *,
        max_workers: int = 64,
        deploy_mode: str = "STANDALONE",
        observe: Observer = _observe_nothing,
        others: Sequence[grpc.GenericRpcHandler] = (),
        security: FrontSecurity | None = None,
    ) -> None:
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._security = security
        self._workers = ThreadPoolExecutor(max_workers, thread_name_prefix="milvus-rpc")
        self._server = grpc.server(self._workers, options=_OPTIONS)
        families = (
            Databases(front),
            Collections(front),
            Partitions(front),
            Loading(front),
            Indexes(front),
            Writes(front),
            BulkImports(front),
            Compaction(front),
            Reads(front),
            Admin(front, deploy_mode),
            ResourceGroups(front),
        )
        self._server.add_generic_rpc_handlers((milvus_handlers(families, observe), *others))

    def start(self) -> int:
        """Begin to serve; the port. Raises `Unavailable` when the address cannot be listened on."""
        try:
            if self._security is None:
                port = self._server.add_insecure_port(self._address)
            else:
                port = self._server.add_secure_port(self._address, self._security.server_credentials())
        except RuntimeError as error:
            raise Unavailable(
                f"cannot listen on {self._address}: another server uses the port, "
                "or the host is none of this machine's"
            ) from error
        self._server.start()
        return int(port)

    def stop(self, grace_s: float) -> None:
        """Refuse new requests, give those under way ``grace_s`` seconds, then cancel them."""
        self._server.stop(grace_s).wait()
        self._workers.shutdown(wait=False, cancel_futures=True)
