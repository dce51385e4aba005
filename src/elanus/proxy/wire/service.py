"""The Milvus service on gRPC: a handler for every RPC of the service descriptor.

The handlers are derived from the descriptor, so that no RPC is forgotten. Each passes its request to
`elanus.proxy.calls.Calls`, where everything else happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from elanus.core.errors import AccessRefused, ElanusError
from elanus.proxy.access.caller import Caller
from elanus.proxy.calls import Calls
from elanus.proxy.wire.context import Context, end_refused, explanation_forms, signed_in
from elanus.proxy.wire.message_parts import decoder
from elanus.proxy.wire.status import add_explanation
from elanus.proxy.wire.stubs import SERVICE
from elanus.proxy.wire.unsupported import unsupported_rpc

Handler = Callable[[Message, Context], Message]


def milvus_handlers(calls: Calls) -> grpc.GenericRpcHandler:
    """Return the handler of the whole service. RPCs that are no operation of ``calls`` are refused."""
    handlers = {method.name: _grpc_handler(method, calls) for method in SERVICE.methods}
    return grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)


def _grpc_handler(method: MethodDescriptor, calls: Calls) -> grpc.RpcMethodHandler:
    response_type = message_factory.GetMessageClass(method.output_type)
    if method.name not in calls:
        return _refusing_handler(method, response_type, calls)
    answer, read = _answering(method.name, calls), decoder(method.input_type)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(_once(answer), read, response_type.SerializeToString)
    return grpc.unary_unary_rpc_method_handler(answer, read, response_type.SerializeToString)


def _answering(name: str, calls: Calls) -> Handler:
    def answer(request: Message, context: Context) -> Message:
        caller = _signed_in(name, context, calls)
        try:
            response: Message = calls.answer(name, request, caller)
        except AccessRefused as error:
            end_refused(context, error)
        if caller.explain:
            add_explanation(response, caller.explain[0], *explanation_forms(context))
        return response

    return answer


def _signed_in(name: str, context: Context, calls: Calls) -> Caller:
    try:
        return signed_in(name, context, calls)
    except ElanusError as error:
        end_refused(context, error)


def _once(answer: Handler) -> Callable[[Message, Context], Iterator[Message]]:
    def stream(request: Message, context: Context) -> Iterator[Message]:
        yield answer(request, context)

    return stream


def _refusing_handler(
    method: MethodDescriptor, response_type: type[Message], calls: Calls
) -> grpc.RpcMethodHandler:
    """For RPCs whose response has no status: a gRPC error of a kind that clients do not retry.

    They do nothing, not even decode, but a caller that does not sign in does not even learn that.
    """
    error = unsupported_rpc(method.name)

    def refuse(request: bytes, context: Context) -> None:
        _signed_in(method.name, context, calls)
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)

    make = (
        grpc.stream_stream_rpc_method_handler
        if method.client_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(refuse, None, response_type.SerializeToString)
