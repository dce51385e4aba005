"""The carrier within one process: what `elanus.rpc.carrier` is between processes, without a socket.

A coordinator commands nodes at addresses. Where node and coordinator are in one process the calls are plain
calls, with what a call between processes has as well as its arguments: its timeout, the deadline of the call
that it helps to answer, the trace, and the session of the coordinator that gives an order. Errors that are
not of `elanus.core.errors` become `Internal` here too. Values are passed as they are: they are immutable.

A process without connections to others needs none of gRPC's asyncio threads, of which one would wait for
sockets next to the thread that serves clients, and be woken by their calls (`elanus.rpc.library_settings`).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import structlog

from elanus.api.fencing import Gate, Orders
from elanus.core.errors import DeadlineExceeded, ElanusError, Internal
from elanus.core.ids import NodeID
from elanus.rpc import deadlines
from elanus.rpc.calls import Calls

Api = TypeVar("Api")
_log = structlog.get_logger("rpc")
_TIMEOUT_S = 30.0


class LocalPort:
    """Serves role interfaces to this process, between `up` and `down`. Belongs to the event loop.

    ``name``: of the role, which is its address in this process.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._calls = Calls(name)
        self._services: Mapping[type[Any], tuple[Any, Orders]] = {}
        self._is_up = asyncio.Event()

    def up(self, services: Sequence[tuple[type[Any], Any]]) -> None:
        """Serve these interfaces, each by its target. A new instance knows no coordinator yet."""
        gate = Gate()
        self._services = {api: (target, Orders(api, gate)) for api, target in services}
        self._is_up.set()

    def down(self) -> None:
        """Serve nothing. Running calls end with `Unavailable`: whether they had their effect is unknown."""
        self._is_up.clear()
        self._services = {}
        self._calls.end()

    def client(
        self, api: type[Api], timeout_s: float | None = _TIMEOUT_S, *, issued_by: NodeID | None = None
    ) -> Api:
        """Return a client typed as the interface, as that of `elanus.rpc.carrier.RpcChannel`."""
        return cast(Api, _Client(functools.partial(self._call, api, timeout_s, issued_by)))

    async def _call(
        self,
        api: type[Any],
        timeout_s: float | None,
        issued_by: NodeID | None,
        name: str,
        *args: Any,
        **named: Any,
    ) -> Any:
        try:
            async with asyncio.timeout(deadlines.within(timeout_s)) as waiting:
                while not self._is_up.is_set():
                    await self._is_up.wait()
                target, orders = self._services[api]
                orders.admit(name, issued_by)
                answering = functools.partial(getattr(target, name), *args, **named)
                return await self._calls.run(name, _answered(name, answering, deadlines.left(waiting)))
        except TimeoutError:
            raise DeadlineExceeded(f"{self.name} did not answer {name} in time") from None


class _Client:
    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(self._call, name)


async def _answered(name: str, answering: Callable[[], Awaitable[Any]], left_s: float | None) -> Any:
    """Answer in a task of its own, whose calls may last as long as its caller waits."""
    deadlines.bind(left_s)
    try:
        return await answering()
    except ElanusError:
        raise
    except Exception as error:
        _log.exception("rpc failed", method=name)
        raise Internal(f"{name}: {type(error).__name__}: {error}") from error
