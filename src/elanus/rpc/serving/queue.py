"""The part of grpcio's private API that the loop uses: completion queue, server below it, and operations.

An operation holds memory of the C library and belongs to one batch: it is made for each call, never kept. The
events of a batch keep its call alive, so a reader of the queue drops each event before it asks for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from grpc import _common, _server
from grpc._cython import cygrpc

TESTED_RELEASE = "1.85.1"
"""The release of grpcio that the loop was written for and tested with: the one that Elanus requires."""
Tag = Callable[[Any], Any]
"""Called with the event that ends what it was passed to."""
StreamEnd = tuple[object, Sequence[Callable[[], None]]]
"""A call of grpcio's own code that ended, or None, and what to call then."""
_CODES: dict[grpc.StatusCode, int] = dict(_common.STATUS_CODE_TO_CYGRPC_STATUS_CODE)


class CompletionQueue:
    """A gRPC server of the library below grpcio, and its only queue.

    `poll` waits for the next event. All others may be called from any thread. After `destroy` nothing may be.
    """

    def __init__(
        self, options: Sequence[tuple[str, Any]], handlers: Sequence[grpc.GenericRpcHandler]
    ) -> None:
        self._queue = cygrpc.CompletionQueue()
        self._server = cygrpc.Server(tuple(options), False)
        self._server.register_completion_queue(self._queue)
        self._streams = _server._GenericMethod(list(handlers))
        self.poll: Callable[[], Any] = self._queue.poll

    def open(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        """Listen and return the port. Raises `RuntimeError`."""
        listen = () if credentials is None else (credentials._credentials,)
        port = self._server.add_http2_port(address.encode(), *listen)
        return int(_common.validate_port_binding_result(address, port))

    def start(self) -> None:
        self._server.start()

    def ask(self, tag: Tag) -> None:
        """Have ``tag`` called with the next call, or without one when the server shuts down."""
        self._server.request_call(self._queue, self._queue, tag)

    def shut_down(self, tag: Tag) -> None:
        """Refuse further calls. ``tag`` is called when the last one has ended."""
        self._server.shutdown(self._queue, tag)

    def cancel_all_calls(self) -> None:
        self._server.cancel_all_calls()

    def destroy(self) -> None:
        self._server.destroy()

    def stream(self, arrival: Any, workers: ThreadPoolExecutor) -> object:
        """Let grpcio serve the call with its own code. Its tags return a `StreamEnd`."""
        state, _ = _server._handle_call(arrival, self._streams, None, workers, False)
        return state


def path_of(arrival: Any) -> bytes:
    """Return the method of an arrived call: whatever the client sent, which may be empty or no text."""
    method: bytes = arrival.call_details.method
    return method


def message_of(event: Any) -> bytes | None:
    """Return the message that `receive` received; None if the client sent nothing or is gone."""
    data: bytes | None = event.batch_operations[0].message()
    return data


def receive(call: Any, tag: Tag) -> None:
    """Receive the request."""
    _check(call.start_server_batch((cygrpc.ReceiveMessageOperation(0),), tag))


def watch(call: Any, tag: Tag) -> None:
    """Have ``tag`` called when the call is over: answered, or given up by the client."""
    _check(call.start_server_batch((cygrpc.ReceiveCloseOnServerOperation(0),), tag))


def answer(
    call: Any,
    code: grpc.StatusCode | None,
    details: bytes,
    message: bytes | None,
    trailing_metadata: Any,
    is_watched: bool,
    tag: Tag,
) -> None:
    """End the call. ``code``: None for success. ``is_watched``: `watch` was called for it."""
    status = 0 if code is None else _CODES.get(code, cygrpc.StatusCode.unknown)
    operations = [
        cygrpc.SendInitialMetadataOperation(None, 0),
        cygrpc.SendStatusFromServerOperation(trailing_metadata, status, details, 0),
    ]
    if message is not None:
        operations.append(cygrpc.SendMessageOperation(message, 0))
    if not is_watched:
        operations.append(cygrpc.ReceiveCloseOnServerOperation(0))
    _check(call.start_server_batch(operations, tag))


def _check(error: int | None) -> None:
    if error:
        raise RuntimeError(f"the gRPC library refused an operation with error {error}")
