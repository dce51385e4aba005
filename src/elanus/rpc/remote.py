"""Roles in other processes, as the sessions tell of them.

A `Peer` is a process behind one session. When the session ends, so do the calls to it that are under way:
whoever waits for an answer hears of it then, and not at the end of a deadline.

A `RemoteRole` is a coordinator's role, whoever is the active one. A call waits for one to be there, and
goes to it. If that goes away during the call, nobody knows what became of it: a call that may be sent again
(`elanus.rpc.repeat`) is, to the one that follows; any other is its caller's to decide on.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from elanus.core.errors import DeadlineExceeded, LeaseLost, Unavailable
from elanus.core.ids import NodeID
from elanus.core.nodes import Nodes
from elanus.rpc.calls import Calls
from elanus.rpc.carrier import RpcChannel
from elanus.rpc.repeat import is_repeatable

Api = TypeVar("Api")

TAKEOVER_WAIT_S = 20.0
"""How long a call waits for an active coordinator: a lease runs out, and another one starts."""
_PAUSE_S = 0.1


class Peer:
    """A connection to a process that serves roles, until `end`. ``name`` says whose, in errors.

    ``node_id``: of a node, for whose session the calls are meant; None: for whoever is there.
    """

    def __init__(self, name: str, channel: RpcChannel, node_id: NodeID | None = None) -> None:
        self._calls = Calls(name)
        self._node_id = node_id
        self._channel = channel
        self._clients: dict[tuple[type[Any], float | None, NodeID | None], Any] = {}
        self.gone = False

    def client(
        self, api: type[Api], timeout_s: float | None = None, *, issued_by: NodeID | None = None
    ) -> Api:
        """As of the channel, with calls that end when the peer does."""
        return cast(Api, _PeerClient(self, api, timeout_s, issued_by))

    async def call(
        self,
        api: type[Any],
        method: str,
        timeout_s: float | None,
        issued_by: NodeID | None,
        *args: Any,
        **named: Any,
    ) -> Any:
        key = (api, timeout_s, issued_by)
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = self._channel.client(
                api, timeout_s, issued_by=issued_by, meant_for=self._node_id
            )
        if self.gone:
            raise Unavailable(f"{self._calls.name} is gone")
        return await self._calls.run(method, getattr(client, method)(*args, **named))

    async def connected(self, timeout_s: float) -> bool:
        """Whether there is a connection now, or comes to be one in time. Ends with the peer.

        Raises `Unavailable` for a peer that is there and will never be understood (`RpcChannel.reachable`).
        """
        try:
            await self._calls.run("connecting", self._channel.ready(timeout_s))
        except DeadlineExceeded:
            return False
        except Unavailable:
            if self.gone:
                return False
            raise
        return True

    async def end(self) -> None:
        self.gone = True
        self._calls.end()
        await self._channel.close()


class _PeerClient:
    def __init__(self, peer: Peer, api: type[Any], timeout_s: float | None, issued_by: NodeID | None) -> None:
        self._peer = peer
        self._api = api
        self._timeout_s = timeout_s
        self._issued_by = issued_by

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if method.startswith("_"):
            raise AttributeError(method)
        call = functools.partial(self._peer.call, self._api, method, self._timeout_s, self._issued_by)
        setattr(self, method, call)
        return call


class RemoteRole:
    """``active``: the peer that is the role's active one, when there is one. ``wait_s``: how long a call
    waits for that, and goes on to repeat itself."""

    def __init__(self, name: str, active: Nodes[Peer], *, wait_s: float = TAKEOVER_WAIT_S) -> None:
        self.name = name
        self._active = active
        self._wait_s = wait_s
        self._changed = asyncio.Event()
        active.on_change(self._changed.set)

    def client(self, api: type[Api], timeout_s: float | None = 30.0) -> Api:
        """``timeout_s``: of a single call, once it is sent."""
        return cast(Api, _RoleClient(self, api, timeout_s))

    async def call(
        self, api: type[Any], method: str, timeout_s: float | None, *args: Any, **named: Any
    ) -> Any:
        """Raises `Unavailable` when nobody is the active one for too long, and what the method raises."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._wait_s
        while True:
            peer = await self._find(deadline_s)
            if not await peer.connected(max(_PAUSE_S, deadline_s - loop.time())):
                if loop.time() >= deadline_s:
                    raise Unavailable(f"{self.name} cannot be reached; retry when it is back")
                continue  # nothing was sent
            try:
                return await peer.call(api, method, timeout_s, None, *args, **named)
            except (Unavailable, LeaseLost):
                if not is_repeatable(api, method) or loop.time() + _PAUSE_S > deadline_s:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _find(self, deadline_s: float) -> Peer:
        try:
            async with asyncio.timeout_at(deadline_s):
                while not self._active:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise Unavailable(f"{self.name} is not running; retry when it is back") from None
        return self._active[max(self._active)]


class _RoleClient:
    def __init__(self, role: RemoteRole, api: type[Any], timeout_s: float | None) -> None:
        self._role = role
        self._api = api
        self._timeout_s = timeout_s

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if method.startswith("_"):
            raise AttributeError(method)
        call = functools.partial(self._role.call, self._api, method, self._timeout_s)
        setattr(self, method, call)
        return call
