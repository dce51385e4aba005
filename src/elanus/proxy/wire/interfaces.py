"""Interfaces of `elanus.api` on a client port: their methods as operations, and their gRPC handler.

Elanus' own clients call an interface as roles call each other (`elanus.rpc.carrier`). Unlike a role, the port
answers in threads and its callers are outside the system. So a target's methods are synchronous, take the
caller as their first argument, and declare what they need with `elanus.proxy.access.permission.requires`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import msgspec

from elanus.core.errors import ElanusError, Internal, InvalidParameter
from elanus.core.names import DEFAULT_DATABASE
from elanus.proxy.access.permission import permission_of
from elanus.proxy.calls import Calls, Operation
from elanus.proxy.wire.context import Context, signed_in
from elanus.rpc.methods import Method, encoded_error, encoded_result, methods_of
from elanus.rpc.tracing import with_trace

_DATABASE = "database"
Find = Callable[[Any], tuple[str, tuple[str, ...]] | None]


def interface_operations(api: type[Any], target: object) -> Iterator[Operation]:
    """Yield the methods of the interface, as ``target`` implements them, as operations ``Interface.method``.

    Raises `ValueError` for a method that declares no permission, or one on a parameter that it lacks.
    """
    for name, method in methods_of(api).items():
        handler = getattr(target, name)
        permission = permission_of(handler)
        find = getattr(target, permission.found_by) if permission and permission.found_by else None
        yield InterfaceOperation(_operation_name(api, name), method, handler, find)


def _operation_name(api: type[Any], method: str) -> str:
    return f"{api.__name__}.{method}"


class InterfaceOperation:
    """Implements `elanus.proxy.calls.Operation`: messages are arguments, answers are replies.

    ``find``: the method that the permission names in ``found_by``, if any.
    """

    def __init__(
        self, name: str, method: Method, handler: Callable[..., Any], find: Find | None = None
    ) -> None:
        permission = permission_of(handler)
        if permission is None:
            raise ValueError(f"{name} declares no permission")
        parameters = method.parameters
        if permission.object_field and permission.object_field not in parameters:
            raise ValueError(f"{name} has no parameter {permission.object_field}")
        self.name = name
        self.permission = permission
        self._method = method
        self._handler = handler
        self._find = find
        self._database = parameters.index(_DATABASE) if _DATABASE in parameters else None
        self._object = parameters.index(permission.object_field) if permission.object_field else None

    def read(self, sent: bytes) -> tuple[Any, ...]:
        try:
            return self._method.arguments.decode(sent)
        except msgspec.DecodeError as error:
            raise InvalidParameter(
                f"the arguments of {self.name} are of other types: {error}; use a client of this release"
            ) from error

    def objects(self, request: tuple[Any, ...], caller: object) -> tuple[str, tuple[str, ...]]:
        database = DEFAULT_DATABASE if self._database is None else request[self._database]
        name = "" if self._object is None else request[self._object]
        if self._find is not None:
            return self._find(name) or (database, ())
        return database, (name,) if name else ()

    def run(self, request: tuple[Any, ...], caller: object) -> bytes:
        return encoded_result(self._handler(caller, *request))

    def failed(self, error: ElanusError) -> bytes:
        return encoded_error(Internal(with_trace(error.message)) if isinstance(error, Internal) else error)


def interface_handler(api: type[Any], calls: Calls) -> grpc.GenericRpcHandler:
    """The gRPC handler of an interface. Methods that are no operations of ``calls`` are unknown to it."""
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(_answering(operation, calls))
        for name in methods_of(api)
        if (operation := _operation_name(api, name)) in calls
    }
    return grpc.method_handlers_generic_handler(_service_name(api), handlers)


def interface_paths(api: type[Any]) -> Iterator[str]:
    """Yield the gRPC paths of all methods of the interface."""
    return (f"/{_service_name(api)}/{name}" for name in methods_of(api))


def _service_name(api: type[Any]) -> str:
    return f"elanus.{api.__name__}"


def _answering(operation: str, calls: Calls) -> Callable[[bytes, Context], bytes]:
    def answer(request: bytes, context: Context) -> bytes:
        try:
            reply: bytes = calls.answer(operation, request, signed_in(operation, context, calls))
        except ElanusError as error:
            return encoded_error(error)
        return reply

    return answer
