"""How many bytes large requests that are being received or answered take together, and answers not yet sent.

Each has a limit of its own, but a client may send many at a time, and those that no thread answers yet wait
in memory. So do answers that their clients do not read. Beyond the limits further requests are refused, and
answers of reads withheld; the requests may be sent again. Requests and answers have a limit each: clients
that do not read must not keep others from writing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

SMALL_MAX_BYTES = 64 * 1024
"""Smaller requests and answers are not counted, and never refused for this."""
_MB = 1024 * 1024


class _Bytes:
    """A number of bytes with a limit. For any thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def remove(self, size_bytes: int) -> None:
        with self._lock:
            self._held_bytes -= size_bytes


class HeldBytes(_Bytes):
    """Of requests. ``max_bytes``: at least what one request may have."""

    def add(self, size_bytes: int) -> bool:
        """Hold so many more bytes. Returns False, and holds none of them, if they are too many."""
        with self._lock:
            if self._held_bytes + size_bytes > self._max_bytes:
                return False
            self._held_bytes += size_bytes
            return True

    def refusal(self) -> str:
        """Return the text for a client whose request is refused."""
        return (
            f"requests of {self._held_bytes // _MB} MB are being received or answered, and "
            f"proxy.requests_max_mb allows {self._max_bytes // _MB}: retry, or send smaller requests"
        )


class HeldAnswers(_Bytes):
    """Of answers. ``max_bytes``: of all together; one alone may be larger."""

    def add(self, size_bytes: int, *, may_withhold: bool) -> bool:
        """Hold an answer until it is sent. Returns False, and holds nothing, if it is withheld.

        ``may_withhold``: that of a read, which may be repeated. Others are held beyond the limit, too: what
        they answer is done.
        """
        with self._lock:
            if may_withhold and self._held_bytes and self._held_bytes + size_bytes > self._max_bytes:
                return False
            self._held_bytes += size_bytes
            return True

    def refusal(self) -> str:
        """Return the text for a client whose answer is withheld."""
        return (
            f"answers of {self._held_bytes // _MB} MB wait for their clients to read them, and "
            f"proxy.answers_max_mb allows {self._max_bytes // _MB}: retry, or ask for less at a time"
        )


@dataclass(frozen=True, slots=True)
class Held:
    """The counts of a process, over all its ports."""

    requests: HeldBytes
    answers: HeldAnswers

    @classmethod
    def up_to(cls, requests_max_bytes: int, answers_max_bytes: int) -> Held:
        return cls(HeldBytes(requests_max_bytes), HeldAnswers(answers_max_bytes))


class Holding:
    """The bytes that one request holds, from its first piece on until the end of the block."""

    def __init__(self, held: HeldBytes) -> None:
        self._held = held
        self._received_bytes = 0
        self._counted_bytes = 0

    def __enter__(self) -> Holding:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.remove(self._counted_bytes)
        self._counted_bytes = 0

    def add(self, size_bytes: int) -> bool:
        """Hold a further piece. Returns False if it is too much."""
        self._received_bytes += size_bytes
        more_bytes = max(0, self._received_bytes - SMALL_MAX_BYTES) - self._counted_bytes
        if not self._held.add(more_bytes):
            return False
        self._counted_bytes += more_bytes
        return True

    def refusal(self) -> str:
        return self._held.refusal()


class HeldHandler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Counts the bytes of large requests to ``handler``, for a server that does not: of grpcio's own.

    Each is decoded once it is counted, in the thread that answers it. A request beyond the limit is refused.
    """

    def __init__(self, handler: grpc.GenericRpcHandler, held: HeldBytes) -> None:
        self._handler = handler
        self._held = held

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        found = self._handler.service(handler_call_details)
        if found is None or found.request_streaming:
            return found
        deserialize = found.request_deserializer or bytes
        if found.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(found.unary_stream, deserialize), None, found.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(found.unary_unary, deserialize), None, found.response_serializer
        )

    def _unary(
        self, answer: Callable[[Any, Any], Any], deserialize: Callable[[bytes], Any]
    ) -> Callable[[bytes, Any], Any]:
        def held(data: bytes, context: grpc.ServicerContext) -> Any:
            counted_bytes = self._add(len(data), context)
            try:
                return answer(_decoded(data, deserialize, context), context)
            finally:
                self._held.remove(counted_bytes)

        return held

    def _stream(
        self, answer: Callable[[Any, Any], Iterator[Any]], deserialize: Callable[[bytes], Any]
    ) -> Callable[[bytes, Any], Iterator[Any]]:
        def held(data: bytes, context: grpc.ServicerContext) -> Iterator[Any]:
            counted_bytes = self._add(len(data), context)
            try:
                yield from answer(_decoded(data, deserialize, context), context)
            finally:
                self._held.remove(counted_bytes)

        return held

    def _add(self, size_bytes: int, context: grpc.ServicerContext) -> int:
        """Return how many bytes are held for a request. Ends the call if they are too many."""
        counted_bytes = size_bytes if size_bytes > SMALL_MAX_BYTES else 0
        if not self._held.add(counted_bytes):
            context.abort(grpc.StatusCode.UNAVAILABLE, self._held.refusal())
        return counted_bytes


def _decoded(data: bytes, deserialize: Callable[[bytes], Any], context: grpc.ServicerContext) -> Any:
    try:
        return deserialize(data)
    except Exception:  # noqa: BLE001 - the client's fault, in whatever form the codec reports it
        context.abort(grpc.StatusCode.INTERNAL, "Exception deserializing request!")  # as grpcio's server
