"""The gRPC carrier: any role interface of this package, between processes, without code per method.

A method of an interface is the gRPC method ``/elanus.<Interface>/<method>``. Its arguments travel as one
msgpack array, its result as msgpack; both are checked against the interface's type hints when they are
decoded (msgspec), so a peer of another release meets a clear error and not a wrong value. Errors of
`elanus.core.errors` cross as their name and message and are raised again as what they were; any other
error crosses as `Internal`.

Why not protobuf messages of our own: the interfaces are typed dataclasses already, and a second
definition of each, with converters both ways, would be more code than everything it serves.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast, get_type_hints

import grpc
import msgspec
import structlog
from grpc import aio

from elanus.core import errors
from elanus.core.limits import GRPC_MESSAGE_MAX_BYTES

Api = TypeVar("Api")
_log = structlog.get_logger("rpc")
_OPTIONS = [
    ("grpc.max_send_message_length", GRPC_MESSAGE_MAX_BYTES),
    ("grpc.max_receive_message_length", GRPC_MESSAGE_MAX_BYTES),
    ("grpc.enable_http_proxy", 0),
    # A peer that restarts is back within seconds; do not wait longer than that for it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
_OK, _ERROR = b"\x00", b"\x01"


@dataclass(frozen=True, slots=True)
class _Method:
    name: str
    arguments: msgspec.msgpack.Decoder[tuple[Any, ...]]
    result: msgspec.msgpack.Decoder[Any]
    signature: inspect.Signature

    def bound(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments in their order, those left out with their defaults. Raises `TypeError`."""
        if not named and len(args) == len(self.signature.parameters):
            return args
        bound = self.signature.bind(*args, **named)
        bound.apply_defaults()
        return bound.args


def _methods(api: type[Any]) -> dict[str, _Method]:
    methods = {}
    for name, function in inspect.getmembers(api, inspect.iscoroutinefunction):
        hints = get_type_hints(function)
        result = hints.pop("return", type(None))
        whole = inspect.signature(function)
        signature = whole.replace(parameters=[p for n, p in whole.parameters.items() if n != "self"])
        parameters = [hints[name] for name in signature.parameters]
        arguments = tuple[tuple(parameters)] if parameters else tuple[()]  # type: ignore[misc]
        decoder = msgspec.msgpack.Decoder(arguments)
        methods[name] = _Method(name, decoder, msgspec.msgpack.Decoder(result), signature)
    return methods


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, api: type[Any], target: Any) -> None:
        self._prefix = f"/elanus.{api.__name__}/"
        self._methods = _methods(api)
        self._target = target

    def service(self, details: Any) -> Any:
        if not details.method.startswith(self._prefix):
            return None
        method = self._methods.get(details.method.removeprefix(self._prefix))
        if method is None:
            return None
        return grpc.unary_unary_rpc_method_handler(self._serve(method))

    def _serve(self, method: _Method) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def serve(request: bytes, _context: Any) -> bytes:
            try:
                result = await getattr(self._target, method.name)(*method.arguments.decode(request))
                return _OK + msgspec.msgpack.encode(result)
            except errors.ElanusError as error:
                return _ERROR + msgspec.msgpack.encode((type(error).__name__, error.message))
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller must hear of it
                _log.exception("rpc failed", method=method.name)
                text = f"{method.name}: {type(error).__name__}: {error}"
                return _ERROR + msgspec.msgpack.encode(("Internal", text))

        return serve


class ThreadedHandler(_Handler):
    """An interface on a gRPC server that answers in threads: its calls run on the event loop ``loop``."""

    def __init__(self, api: type[Any], target: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(api, target)
        self._loop = loop

    def _serve(self, method: _Method) -> Callable[[bytes, Any], Any]:
        serve = super()._serve(method)

        def answer(request: bytes, context: Any) -> bytes:
            work = cast(Coroutine[Any, Any, bytes], serve(request, context))
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()

        return answer


class RpcServer:
    """Serves role interfaces on one address (``unix:PATH`` or ``host:port``)."""

    def __init__(self, address: str, services: Sequence[tuple[type[Any], Any]]) -> None:
        self._server = aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers(tuple(_Handler(api, target) for api, target in services))
        self.port = self._server.add_insecure_port(address)
        """Where it listens; 0 for a socket in the file system."""

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace_s: float = 1.0) -> None:
        await self._server.stop(grace_s)


class _RemoteClient:
    def __init__(self, channel: aio.Channel, api: type[Any], timeout_s: float | None) -> None:
        self._channel = channel
        self._service = f"/elanus.{api.__name__}/"
        self._methods = _methods(api)
        self._timeout_s = timeout_s
        self._peer = api.__name__.removesuffix("Api").lower()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = self._methods.get(name)
        if method is None:
            raise AttributeError(name)
        remote = self._channel.unary_unary(self._service + name)

        async def call(*args: Any, **named: Any) -> Any:
            request = msgspec.msgpack.encode(method.bound(args, named))
            try:
                reply = await remote(request, timeout=self._timeout_s, wait_for_ready=True)
            except aio.AioRpcError as error:
                raise _typed(error, self._peer, name) from error
            return _result(method, reply, self._peer)

        setattr(self, name, call)
        return call


def _typed(error: aio.AioRpcError, peer: str, method: str) -> errors.ElanusError:
    match error.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.DeadlineExceeded(f"{peer} did not answer {method} in time")
        case grpc.StatusCode.UNIMPLEMENTED:
            return errors.Internal(f"{peer} does not know {method}: is it of another release?")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return errors.Internal(f"a message of {method} is too large for {peer}: {error.details()}")
        case _:
            return errors.Unavailable(f"{peer} cannot be reached: {error.details()}")


def _result(method: _Method, reply: bytes, peer: str) -> Any:
    if reply[:1] != _OK:
        kind, message = msgspec.msgpack.decode(reply[1:], type=tuple[str, str])
        raise errors.all_error_types().get(kind, errors.Internal)(message)
    try:
        return method.result.decode(reply[1:])
    except msgspec.DecodeError as error:
        raise errors.Internal(f"what {peer} answered to {method.name} is of another type: {error}") from error


class RpcChannel:
    """A connection to a process that serves role interfaces."""

    def __init__(self, address: str) -> None:
        self._channel = aio.insecure_channel(address, options=_OPTIONS)

    def client(self, api: type[Api], timeout_s: float | None = 30.0) -> Api:
        """A client typed as the interface. ``timeout_s`` None: calls may take as long as they need.

        A call waits for a peer that is starting, within its time; one that breaks off is not repeated.
        """
        return cast(Api, _RemoteClient(self._channel, api, timeout_s))

    async def ready(self, timeout_s: float) -> None:
        """Wait for the peer. Raises `DeadlineExceeded`."""
        try:
            await asyncio.wait_for(self._channel.channel_ready(), timeout_s)
        except TimeoutError:
            raise errors.DeadlineExceeded("the peer did not come up in time") from None

    async def close(self) -> None:
        await self._channel.close()
