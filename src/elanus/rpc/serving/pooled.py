"""The interface of a gRPC server to its owner, and grpcio's own server in that form.

grpcio's server receives a request when a thread of the pool takes the call, and says nothing about it before
all of its bytes are there. So the bytes of requests are counted from then on, and those being received are at
most as many requests as the pool has threads. It does not say when an answer has gone out, so answers are not
counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import grpc

from elanus.rpc.serving.held import Held, HeldHandler


class Server(Protocol):
    """A gRPC server of unary calls and streams."""

    def open(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        """Listen and return the port. Raises `RuntimeError`."""

    def start(self) -> None: ...

    def stop(self, grace_s: float) -> None:
        """Refuse new calls, give the current ones ``grace_s`` seconds, cancel them, return when all are
        over."""


class PooledServer:
    """grpcio's own. Implements `Server`. ``held``: counts the bytes of large requests; None: nothing does."""

    def __init__(
        self,
        handlers: Sequence[grpc.GenericRpcHandler],
        workers: ThreadPoolExecutor,
        options: Sequence[tuple[str, Any]],
        held: Held | None = None,
    ) -> None:
        if held is not None:
            handlers = [HeldHandler(handler, held.requests) for handler in handlers]
        self._server = grpc.server(workers, handlers=handlers, options=options)

    def open(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        if credentials is None:
            return int(self._server.add_insecure_port(address))
        return int(self._server.add_secure_port(address, credentials))

    def start(self) -> None:
        self._server.start()

    def stop(self, grace_s: float) -> None:
        self._server.stop(grace_s).wait()
