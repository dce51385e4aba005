"""The gRPC carrier: any role interface of this package, between processes, without code per method.

A method of an interface is the gRPC method ``/elanus.<Interface>/<method>``. Its arguments are sent as one
msgpack array, its result as msgpack; both are checked against the interface's type hints when they are
decoded (msgspec), so a peer of another release gets a clear error and not a wrong value. Errors of
`elanus.core.errors` are sent as their name and message and raised again with their original type; any other
error is sent as `Internal`.

In addition to its arguments a call carries its deadline (`elanus.rpc.deadlines`), the trace it belongs to
(`elanus.rpc.tracing`), the session of the coordinator that gives an order (`elanus.api.fencing`), and that of
the node it is meant for (`Addressed`). Between machines both ends present certificates
(`elanus.rpc.security`).

There are no protobuf messages of our own: the interfaces are typed dataclasses already, and a second
definition of each, with converters both ways, would be more code than everything it serves.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

import grpc
import msgspec
import structlog
from grpc import aio

from elanus.api.fencing import ISSUER_KEY, Gate, Orders
from elanus.core import errors
from elanus.core.ids import NodeID
from elanus.core.limits import GRPC_MESSAGE_MAX_BYTES
from elanus.rpc import deadlines, tracing
from elanus.rpc.methods import Method, encoded_error, encoded_result, methods_of
from elanus.rpc.security import DialSecurity, RpcSecurity
from elanus.rpc.tls_diagnosis import is_local, refusal

Api = TypeVar("Api")
_log = structlog.get_logger("rpc")
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", GRPC_MESSAGE_MAX_BYTES),
    ("grpc.max_receive_message_length", GRPC_MESSAGE_MAX_BYTES),
    ("grpc.enable_http_proxy", 0),
    # A peer that restarts is back within seconds; do not wait longer than that for it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # How long one attempt may take: a handshake takes a while on a busy machine.
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 500),
]
_SERVER_OPTIONS = [*_OPTIONS, ("grpc.so_reuseport", 0)]
"""A second server on a port must fail, not share its calls."""
_MEANT_FOR_KEY = "elanus-meant-for"
"""The metadata key for the session of the node that a call is meant for."""
_TIMEOUT_S = 30.0
_PROBE_PAUSE_S = 0.05
_LOOK_MAX_S = 0.25
"""The pause between two checks of a connection that has failed."""


class Addressed(Protocol):
    """A target that knows the session it belongs to: calls meant for another session do not reach it."""

    def meant_for(self, node_id: NodeID) -> Any:
        """The object that answers calls meant for this session. It, or this method, raises `Unavailable`."""
        ...


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, api: type[Any], target: Any, gate: Gate) -> None:
        self._prefix = f"/elanus.{api.__name__}/"
        self._methods = methods_of(api)
        self._target = target
        self._meant_for: Callable[[NodeID], Any] | None = getattr(target, "meant_for", None)
        self._orders = Orders(api, gate)

    def service(self, details: Any) -> Any:
        if not details.method.startswith(self._prefix):
            return None
        method = self._methods.get(details.method.removeprefix(self._prefix))
        if method is None:
            return None
        return grpc.unary_unary_rpc_method_handler(self._serve(method))

    def _serve(self, method: Method) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def serve(request: bytes, context: Any) -> bytes:
            try:
                target = self._begin(method.name, context)
                result = await getattr(target, method.name)(*method.arguments.decode(request))
                return encoded_result(result)
            except errors.ElanusError as error:
                return encoded_error(error)
            except Exception as error:  # noqa: BLE001 - any error must reach the caller
                _log.exception("rpc failed", method=method.name)
                return encoded_error(errors.Internal(f"{method.name}: {type(error).__name__}: {error}"))

        return serve

    def _begin(self, method: str, context: Any) -> Any:
        """Apply what the call carries in addition to its arguments. Returns the object that answers it.

        Raises `CoordinatorReplaced`, `Unavailable`.
        """
        metadata = context.invocation_metadata() or ()
        tracing.set_trace(tracing.trace_of(metadata))
        deadlines.bind(context.time_remaining())
        self._orders.admit(method, _session(metadata, ISSUER_KEY))
        node_id = None if self._meant_for is None else _session(metadata, _MEANT_FOR_KEY)
        return self._target if self._meant_for is None or node_id is None else self._meant_for(node_id)


def _session(metadata: Any, key: str) -> NodeID | None:
    return next((NodeID(int(value)) for name, value in metadata if name == key), None)


class RpcServer:
    """Serves role interfaces on one address (``unix:PATH`` or ``host:port``; port 0 takes a free one).

    Without ``security``, any client that reaches the address may call everything. Raises `Unavailable` when
    it cannot listen on the address.
    """

    def __init__(
        self,
        address: str,
        services: Sequence[tuple[type[Any], Any]],
        *,
        security: RpcSecurity | None = None,
    ) -> None:
        self._server = aio.server(options=_SERVER_OPTIONS)
        gate = Gate()
        self._server.add_generic_rpc_handlers(tuple(_Handler(api, target, gate) for api, target in services))
        try:
            if security is None:
                self.port: int = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, security.server_credentials())
        except RuntimeError as error:
            raise errors.Unavailable(
                f"cannot listen on {address}: another process uses it, or it is no address of this machine"
            ) from error
        if security is None and not is_local(address):
            _log.warning(
                "calls between processes are neither encrypted nor authenticated: anyone who reaches this "
                "address can read, change and delete all data; set cluster.tls_cert, cluster.tls_key and "
                "cluster.tls_ca, or keep others away from the network",
                address=address,
            )

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace_s: float = 1.0) -> None:
        await self._server.stop(grace_s)


class _RemoteClient:
    def __init__(
        self,
        channel: RpcChannel,
        api: type[Any],
        timeout_s: float | None,
        issued_by: NodeID | None,
        meant_for: NodeID | None,
    ) -> None:
        self._channel = channel
        self._service = f"/elanus.{api.__name__}/"
        self._methods = methods_of(api)
        self._timeout_s = timeout_s
        sessions = ((ISSUER_KEY, issued_by), (_MEANT_FOR_KEY, meant_for))
        self._sessions = (
            *channel.credentials,
            *((key, str(session)) for key, session in sessions if session is not None),
        )
        self._peer = api.__name__.removesuffix("Api").lower()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = self._methods.get(name)
        if method is None:
            raise AttributeError(name)
        remote = self._channel.method(self._service + name)

        async def call(*args: Any, **named: Any) -> Any:
            request = msgspec.msgpack.encode(method.bound(args, named))
            timeout_s = deadlines.within(self._timeout_s)
            try:
                if not self._channel.is_reachable():
                    async with asyncio.timeout(timeout_s) as waiting:
                        await self._channel.reachable()
                    timeout_s = deadlines.left(waiting)
                reply = await remote(
                    request, timeout=timeout_s, metadata=self._metadata(), wait_for_ready=True
                )
            except aio.AioRpcError as error:
                raise _typed(error, self._peer, name) from error
            except asyncio.CancelledError:
                caller = asyncio.current_task()
                if caller is not None and caller.cancelling():
                    raise
                # gRPC cancels the calls of a channel that is closed.
                raise _closed(self._peer, name) from None
            except aio.UsageError as error:
                raise _closed(self._peer, name) from error
            except TimeoutError as error:
                raise _late(self._peer, name) from error
            except errors.Unavailable as error:
                raise errors.Unavailable(f"{self._peer} cannot be reached: {error.message}") from error
            return method.result_of(reply, self._peer)

        setattr(self, name, call)
        return call

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        trace = tracing.trace_id()
        return (*self._sessions, (tracing.TRACE_KEY, trace)) if trace else self._sessions


def _late(peer: str, method: str) -> errors.DeadlineExceeded:
    return errors.DeadlineExceeded(f"{peer} did not answer {method} in time")


def _closed(peer: str, method: str) -> errors.Unavailable:
    return errors.Unavailable(f"{peer} cannot be reached: the connection was closed during {method}")


def _typed(error: aio.AioRpcError, peer: str, method: str) -> errors.ElanusError:
    match error.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return _late(peer, method)
        case grpc.StatusCode.UNIMPLEMENTED:
            return errors.Internal(f"{peer} does not know {method}: is it of another release?")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return errors.Internal(f"a message of {method} is too large for {peer}: {error.details()}")
        case _:
            return errors.Unavailable(f"{peer} cannot be reached: {error.details()}")


class RpcChannel:
    """A connection to a process that serves role interfaces, made when it is first needed.

    With ``security``, each side refuses the other unless it presents a certificate that it accepts.
    ``token``: what a port for clients is sent to sign in (``user:password``).
    """

    def __init__(self, address: str, *, security: DialSecurity | None = None, token: str = "") -> None:
        self._address = address
        self._security = security
        header = base64.b64encode(token.encode()).decode()
        self.credentials = (("authorization", header),) if token else ()
        if security is None:
            self._channel = aio.insecure_channel(address, options=_OPTIONS)
        else:
            options = [*_OPTIONS]
            if security.server_name:
                options.append(("grpc.ssl_target_name_override", security.server_name))
            self._channel = aio.secure_channel(address, security.channel_credentials(), options=options)
        self._connecting: asyncio.Task[None] | None = None

    def client(
        self,
        api: type[Api],
        timeout_s: float | None = _TIMEOUT_S,
        *,
        issued_by: NodeID | None = None,
        meant_for: NodeID | None = None,
    ) -> Api:
        """Return a client typed as the interface. ``timeout_s`` None: calls may take as long as they need.

        A call waits for a peer that is starting, within its own timeout and the time left of the call that
        its caller answers; a call that breaks off is not repeated. ``issued_by``: the session of the
        coordinator whose orders go through the client (`elanus.api.fencing`). ``meant_for``: the session of
        the node that is called: a later node at the same address refuses the call.
        """
        return cast(Api, _RemoteClient(self, api, timeout_s, issued_by, meant_for))

    def method(self, path: str) -> Any:
        return self._channel.unary_unary(path)

    def is_reachable(self) -> bool:
        """Whether a call waits only for its answer, or for a peer that has not started yet."""
        return self._address.startswith("unix:") or self._is_ready()

    async def reachable(self) -> None:
        """Return when there is a connection.

        Raises `Unavailable` when the peer and this process can never connect, however long the wait.
        """
        if self.is_reachable():
            return
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect(), name=f"connect to {self._address}")
            self._connecting.add_done_callback(_seen)
        await asyncio.shield(self._connecting)

    async def ready(self, timeout_s: float) -> None:
        """Wait for the peer. Raises `DeadlineExceeded`, and what `reachable` does."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.reachable()
                await self._channel.channel_ready()
        except TimeoutError:
            raise errors.DeadlineExceeded(
                f"no server answers at {self._address} within {timeout_s:g} s: is a server running there?"
            ) from None

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        await self._channel.close()

    def _is_ready(self) -> bool:
        return self._channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY

    async def _connect(self) -> None:
        suspected, pause_s = "", _PROBE_PAUSE_S
        while True:
            # Read once: it may change meanwhile, and the wait below must be for the end of this state.
            state = self._channel.get_state(try_to_connect=True)
            if state in (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.SHUTDOWN):
                return  # after a shutdown the call itself raises
            if state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                await self._channel.wait_for_state_change(state)
                continue
            # Twice: a peer that is shutting down closes connections too.
            why = await refusal(self._address, self._security)
            if why and why == suspected:
                raise errors.Unavailable(f"{self._address}: {why}")
            suspected = why
            # The state does not change while gRPC retries and fails again.
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LOOK_MAX_S)


def _seen(connecting: asyncio.Task[None]) -> None:
    if not connecting.cancelled():
        connecting.exception()
