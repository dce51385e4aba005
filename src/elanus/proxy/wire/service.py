"""Every RPC of the Milvus service, from the service descriptor to a gRPC handler.

The handlers come from the descriptor, so that no RPC is forgotten: one that a family implements is
called, every other answers that it is not supported. Here a request's trace begins (`elanus.rpc.tracing`),
and whatever a method raises becomes a status here, and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc
from google.protobuf import message_factory

from elanus.core.errors import ElanusError, NotSupported
from elanus.proxy.wire.requests import Context, is_rpc, refuse_unknown_fields, understood_fields
from elanus.proxy.wire.status import defect, status_field, status_of
from elanus.proxy.wire.stubs import SERVICE, Message
from elanus.proxy.wire.unsupported import unsupported_rpc
from elanus.rpc.tracing import end_trace, new_trace, set_trace, trace_of

Handler = Callable[[Message, Context], Message]

Observer = Callable[[str, int, float], None]
"""Told after each answer: the RPC's name, the status code (0 is success), the seconds it took."""


def milvus_handlers(families: Iterable[object], observe: Observer) -> grpc.GenericRpcHandler:
    """The handler of the whole service; RPCs that no family has answer `NotSupported`.

    A method of a family marked with `elanus.proxy.wire.requests.rpc` answers the RPC of its name.
    Raises `ValueError` when two families have the same RPC, or one has an RPC that the service lacks.
    """
    implemented = _implemented(families)
    known = {method.name for method in SERVICE.methods}
    if strangers := implemented.keys() - known:
        raise ValueError(f"the Milvus service has no RPC {', '.join(sorted(strangers))}")
    handlers = {
        method.name: _grpc_handler(method, implemented.get(method.name), observe)
        for method in SERVICE.methods
    }
    return grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)


def _implemented(families: Iterable[object]) -> dict[str, Handler]:
    found: dict[str, Handler] = {}
    for family in families:
        for name in dir(type(family)):
            if not is_rpc(getattr(type(family), name)):
                continue
            if name in found:
                raise ValueError(f"two families implement the RPC {name}")
            found[name] = getattr(family, name)
    return found


def _grpc_handler(method: Message, implementation: Handler | None, observe: Observer) -> Any:
    request_type = message_factory.GetMessageClass(method.input_type)
    response_type = message_factory.GetMessageClass(method.output_type)
    status = status_field(method.output_type)
    if implementation is None:
        if status is None or method.client_streaming:
            return _refusing_handler(method, request_type, response_type)
        implementation = _refusal(method.name)
    answer = _answering(method.name, implementation, response_type, status or "", observe)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(
            _once(answer), request_type.FromString, response_type.SerializeToString
        )
    return grpc.unary_unary_rpc_method_handler(
        answer, request_type.FromString, response_type.SerializeToString
    )


def _answering(
    name: str, implementation: Handler, response_type: Callable[..., Message], status: str, observe: Observer
) -> Handler:
    """Calls the implementation; an error becomes a response whose ``status`` field tells it."""
    understood = understood_fields(implementation)

    def answer(request: Message, context: Context) -> Message:
        started = time.perf_counter()
        trace = set_trace(trace_of(context.invocation_metadata()) or new_trace())
        code = 0
        try:
            if understood is not None:
                refuse_unknown_fields(request, understood, name)
            response = implementation(request, context)
        except ElanusError as error:
            code = error.code
            response = _failed(response_type, status, error)
        except Exception as error:  # noqa: BLE001 - a defect: logged in full, told in general
            told = defect(name, error)
            code = told.code
            response = _failed(response_type, status, told)
        finally:
            end_trace(trace)
        observe(name, code, time.perf_counter() - started)
        return response

    return answer


def _failed(response_type: Callable[..., Message], status: str, error: ElanusError) -> Message:
    told = status_of(error)
    return response_type(**{status: told}) if status else told


def _refusal(name: str) -> Handler:
    error = unsupported_rpc(name)

    def refuse(request: Message, context: Context) -> Message:
        raise NotSupported(error.message)

    return refuse


def _once(answer: Handler) -> Callable[[Message, Context], Iterator[Message]]:
    def stream(request: Message, context: Context) -> Iterator[Message]:
        yield answer(request, context)

    return stream


def _refusing_handler(
    method: Message, request_type: Callable[..., Message], response_type: Callable[..., Message]
) -> Any:
    """For RPCs whose response has no status: a gRPC error, of a kind that clients do not repeat."""
    error = unsupported_rpc(method.name)

    def refuse(request: Message, context: Context) -> None:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)

    make = (
        grpc.stream_stream_rpc_method_handler
        if method.client_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(refuse, request_type.FromString, response_type.SerializeToString)  # type: ignore[attr-defined]
