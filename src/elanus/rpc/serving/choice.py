"""Which gRPC server serves: the loop, or grpcio's own where the loop is not wanted or cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import grpc
import structlog

from elanus.rpc.serving.held import Held
from elanus.rpc.serving.loop import SHORT_REQUEST_MAX_BYTES, KindOf, LoopServer
from elanus.rpc.serving.pooled import PooledServer, Server
from elanus.rpc.serving.selftest import loop_fault

_log = structlog.get_logger("rpc")

Serving = Literal["loop", "grpc"]
"""``loop``: short calls are answered in the thread that reads the queue; ``grpc``: all in the pool."""


def grpc_server(
    serving: Serving,
    handlers: Sequence[grpc.GenericRpcHandler],
    workers: ThreadPoolExecutor,
    options: Sequence[tuple[str, Any]],
    kind_of: KindOf,
    request_max_bytes: int,
    held: Held | None = None,
) -> Server:
    """Return a server that is not started. ``request_max_bytes``: larger requests are not decoded. ``held``:
    counts the bytes of large requests and answers.
    """
    if serving == "loop":
        fault = loop_fault()
        if not fault:
            short_max_bytes = min(SHORT_REQUEST_MAX_BYTES, request_max_bytes)
            return LoopServer(handlers, workers, options, kind_of, short_max_bytes, held=held)
        _log.warning("serving loop not used, grpcio's server serves", reason=fault)
    return PooledServer(handlers, workers, options, held)
