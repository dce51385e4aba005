"""The limits of a client port, in front of its handlers: the largest request, and the connections.

A request that is too large is refused with a text that names the setting.

gRPC has a limit too, but its refusal names no setting, and no handler sees it. So gRPC's limit is twice ours:
a request in between is read, but not decoded, and refused here. gRPC refuses larger ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from elanus.core.limits import GRPC_MESSAGE_MAX_BYTES
from elanus.proxy.wire.connection_limit import ConnectionLimit
from elanus.proxy.wire.message_parts import TooManyParts

Deserializer = Callable[[bytes], Any]


def received_max_bytes(request_max_bytes: int) -> int:
    """Return gRPC's own limit for a limit of ours."""
    return max(request_max_bytes, min(2 * request_max_bytes, GRPC_MESSAGE_MAX_BYTES))


@dataclass(frozen=True, slots=True)
class _Refused:
    """In place of a request that is not decoded. ``text``: why."""

    text: str


class LimitedHandler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Refuses requests of more than ``request_max_bytes`` in place of ``handler``, and connections beyond
    a limit (None: there is none)."""

    def __init__(
        self,
        handler: grpc.GenericRpcHandler,
        request_max_bytes: int,
        connections: ConnectionLimit | None = None,
    ) -> None:
        self._handler = handler
        self._request_max_bytes = request_max_bytes
        self._connections = connections
        self._limited: dict[str, grpc.RpcMethodHandler] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        method = handler_call_details.method
        if method not in self._limited:
            found = self._handler.service(handler_call_details)
            if found is None or found.request_streaming:
                return found
            self._limited[method] = self._with_limit(found)
        return self._limited[method]

    def _with_limit(self, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        deserialize: Deserializer = handler.request_deserializer or (lambda data: data)

        def read(data: bytes) -> Any:
            if len(data) > self._request_max_bytes:
                return _Refused(
                    f"the request has {len(data)} bytes, proxy.message_max_mb allows "
                    f"{self._request_max_bytes}: insert fewer rows at a time, use `elanus import`, or raise "
                    "the setting"
                )
            try:
                return deserialize(data)
            except TooManyParts as error:
                return _Refused(str(error))

        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(handler.unary_stream), read, handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(handler.unary_unary), read, handler.response_serializer
        )

    def _unary(self, answer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def limited(request: Any, context: grpc.ServicerContext) -> Any:
            self._check(request, context)
            return answer(request, context)

        return limited

    def _stream(self, answer: Callable[[Any, Any], Iterator[Any]]) -> Callable[[Any, Any], Iterator[Any]]:
        def limited(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            self._check(request, context)
            yield from answer(request, context)

        return limited

    def _check(self, request: Any, context: grpc.ServicerContext) -> None:
        if self._connections is not None:
            self._connections.check(context)
        if isinstance(request, _Refused):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, request.text)
