"""The caller of a gRPC call: what its headers and its deadline say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn, Protocol

import grpc

from elanus.proxy.calls import Caller
from elanus.rpc.tracing import trace_of

_DATABASE_HEADER = "dbname"
_IDENTIFIER_HEADER = "identifier"
_ENDLESS_S = 1e9
"""gRPC's threaded server reports centuries for a call without a deadline."""


class Context(Protocol):
    """The part of a ``grpc.ServicerContext`` that the wire code uses."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]]:
        """The headers of the request."""

    def peer(self) -> str:
        """The address of the client's connection."""

    def time_remaining(self) -> float | None:
        """Seconds until the client gives up; ``None`` when it set no deadline."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with a gRPC error."""


def caller_of(context: Context) -> Caller:
    """Return who calls.

    The client is the identifier that it received from Connect if it sends that, else its connection.
    """
    headers = context.invocation_metadata()
    database = client = ""
    for key, value in headers:
        if key == _DATABASE_HEADER:
            database = database or str(value)
        elif key == _IDENTIFIER_HEADER:
            client = client or str(value)
    left_s = context.time_remaining()
    if left_s is not None and left_s > _ENDLESS_S:
        left_s = None
    return Caller(
        database=database,
        client=client or str(context.peer()),
        time_left_s=left_s,
        trace=trace_of(headers),
    )
