"""The front of a serving process: it answers reads itself, and passes everything else on.

A serving process listens on the main process's port (`elanus.server.serving`). It has operations for reads
only. All other calls go to the main process as they came: the bytes of the request, the headers, the deadline
and the cancellation. So they are checked, authorized, audited and counted there, once, and this process needs
to know nothing about them.

A read that fails here, for whatever reason, is passed on too, and the main process's answer counts. This
process may not have the collection yet, may be behind, or may lack its share of a rate. So the two can never
differ in what they refuse, and a read that is passed on is counted and recorded where it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import structlog
from google.protobuf.message import Message

from elanus.core.errors import ElanusError
from elanus.core.limits import GRPC_MESSAGE_MAX_BYTES
from elanus.core.timestamps import Timestamp
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.guard import Guard
from elanus.proxy.access.permission import ObjectType, Permission
from elanus.proxy.calls import Calls, Operation, PassedOn
from elanus.proxy.wire.context import ORIGIN_HEADER, Context, caller_of, time_left_s, with_user
from elanus.proxy.wire.message_parts import decoder
from elanus.proxy.wire.short_reads import kind_of
from elanus.proxy.wire.stubs import SERVICE, milvus_pb2
from elanus.rpc.serving.waiting import about_to_wait

READS = ("Search", "HybridSearch", "Query")
"""The RPCs that a serving process answers itself."""
_WRITES = frozenset(f"/{SERVICE.full_name}/{rpc}" for rpc in ("Insert", "Upsert", "Delete"))
_OWN_HEADERS = ("grpc-", "user-agent", ORIGIN_HEADER)
"""The beginnings of the headers that gRPC sets, and of the one that this process sets."""
_OPTIONS = (
    ("grpc.max_send_message_length", GRPC_MESSAGE_MAX_BYTES),
    ("grpc.max_receive_message_length", GRPC_MESSAGE_MAX_BYTES),
    ("grpc.enable_http_proxy", 0),
)
_log = structlog.get_logger("proxy")


class PassingContext(Context, Protocol):
    """The part of a ``grpc.ServicerContext`` that a call is passed on with."""

    def add_callback(self, callback: Callable[[], None]) -> bool: ...
    def set_trailing_metadata(self, trailing_metadata: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class SentRead:
    """A read and the bytes that it came as. Answering consumes the message (`decode_search`), so what is
    passed on is the bytes."""

    message: Message
    data: bytes


class PassingOperation:
    """Implements `elanus.proxy.calls.Operation`: raises `PassedOn` where ``operation`` raises anything."""

    def __init__(self, operation: Operation) -> None:
        self.name = operation.name
        self._operation = operation

    @property
    def permission(self) -> Permission:
        return self._operation.permission

    def read(self, sent: Any) -> Any:
        return self._or_pass_on(self._operation.read, sent)

    def objects(self, request: Any, caller: Caller) -> tuple[str, tuple[str, ...]]:
        return self._operation.objects(request, caller)

    def run(self, request: Any, caller: Caller) -> Any:
        return self._or_pass_on(self._operation.run, request, caller)

    def failed(self, error: ElanusError) -> Any:
        raise PassedOn(error.message)

    def _or_pass_on(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except ElanusError as error:
            raise PassedOn(error.message) from None
        except Exception as error:
            _log.warning("read failed here, passed on", rpc=self.name, error=repr(error), exc_info=True)
            raise PassedOn(repr(error)) from error


class PassingGuard:
    """Implements `elanus.proxy.access.guard.Guard`: what ``guard`` refuses, the main process refuses."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def allow(
        self,
        caller: Caller,
        privilege: str,
        object_type: ObjectType,
        database: str,
        object_names: tuple[str, ...],
    ) -> None:
        try:
            self._guard.allow(caller, privilege, object_type, database, object_names)
        except ElanusError as error:
            raise PassedOn(error.message) from None


class MainProcess:
    """The main process, as a serving process passes calls on to it. Safe to call from any thread.

    ``address``: of its local front. ``wrote(client, ts)`` is called after each write that was passed on,
    before it is acknowledged, with the identity of the client (`Caller.client`) and the write's timestamp.
    """

    def __init__(self, address: str, wrote: Callable[[str, Timestamp], None]) -> None:
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._wrote = wrote
        self.passed_on = 0
        """How many calls were passed on, about: the count may miss some of threads that count together."""

    def close(self) -> None:
        self._channel.close()

    def answer(self, path: str, request: bytes, context: PassingContext) -> bytes:
        """Return the answer as it comes. Ends the call as the main process ends it."""
        self.passed_on += 1
        call = self._channel.unary_unary(path).future(
            request, timeout=time_left_s(context), metadata=_headers(context)
        )
        if not context.add_callback(call.cancel):
            call.cancel()
        about_to_wait()
        try:
            answer: bytes = call.result()
        except (grpc.RpcError, grpc.FutureCancelledError):
            self._end_as(call, context)
        context.set_trailing_metadata(call.trailing_metadata() or ())
        if path in _WRITES:
            written = milvus_pb2.MutationResult.FromString(answer)
            if written.timestamp:
                self._wrote(caller_of(context).client, Timestamp(written.timestamp))
        return answer

    def stream(self, path: str, requests: Iterator[bytes], context: PassingContext) -> Iterator[bytes]:
        """The same for a method that sends or receives several messages."""
        self.passed_on += 1
        call = self._channel.stream_stream(path)(
            requests, timeout=time_left_s(context), metadata=_headers(context)
        )
        if not context.add_callback(call.cancel):
            call.cancel()
        try:
            yield from call
        except grpc.RpcError:
            self._end_as(call, context)

    def _end_as(self, call: Any, context: PassingContext) -> Any:
        context.set_trailing_metadata(call.trailing_metadata() or ())
        context.abort(call.code(), call.details() or "")


def _headers(context: Context) -> list[tuple[str, str | bytes]]:
    sent = [(k, v) for k, v in context.invocation_metadata() if not k.startswith(_OWN_HEADERS)]
    return [*sent, (ORIGIN_HEADER, context.peer())]


class PassingHandler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Answers the operations of ``calls``, and passes on the others of the Milvus service and ``others``.

    ``others``: the paths of further methods that the main process may have. Names that are no method's are
    refused here: what is remembered by method could otherwise grow with every name that a client invents.
    """

    def __init__(self, calls: Calls, main: MainProcess, others: Iterable[str] = ()) -> None:
        self._calls = calls
        self._main = main
        self._own = f"/{SERVICE.full_name}/"
        self._paths = {*(self._own + method.name for method in SERVICE.methods), *others}
        self._streams = {
            self._own + method.name
            for method in SERVICE.methods
            if method.client_streaming or method.server_streaming
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        path: str = handler_call_details.method
        if path not in self._paths:
            return None
        if path in self._streams:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: self._main.stream(path, requests, context)
            )
        name = path.removeprefix(self._own)
        if name in self._calls:
            return self._reading(name, path)
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._main.answer(path, request, context)
        )

    def _reading(self, name: str, path: str) -> grpc.RpcMethodHandler:
        calls, main = self._calls, self._main

        def answer(request: SentRead, context: PassingContext) -> Message | bytes:
            try:
                caller = caller_of(context)
                if caller.explain is None:
                    found: Message = calls.answer(name, request.message, with_user(caller, context, calls))
                    return found
            except (PassedOn, ElanusError):
                pass
            return main.answer(path, request.data, context)

        decode = decoder(SERVICE.methods_by_name[name].input_type)
        return grpc.unary_unary_rpc_method_handler(
            answer, lambda data: SentRead(decode(data), data), _encoded
        )


def passing_kind_of(path: str) -> Callable[[Any], Hashable] | None:
    """Implements `elanus.rpc.serving.loop.KindOf`, for requests as `PassingHandler` has them decoded."""
    kind = kind_of(path)
    if kind is None:
        return None
    return lambda sent: kind(sent.message if isinstance(sent, SentRead) else sent)


def _encoded(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()
