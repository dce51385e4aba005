"""Roles in other processes, as their sessions announce them.

A `Peer` is a process behind one session. When the session ends, so do the running calls to it:
their callers learn of it then, and not at the end of a deadline.

A `RemoteRole` is a coordinator's role, whichever instance is active. A call waits until there is an active
one, and is sent to it. If that instance goes away during the call, the outcome is unknown: a repeatable call
(`elanus.api.idempotency`) is sent again to the successor; for any other, the caller decides. An instance that
cannot start says why before it goes away, and the caller gets this as the error when no other one starts.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from elanus.api.idempotency import is_repeatable
from elanus.core.errors import ChannelRewound, DeadlineExceeded, NotStarted, Unavailable
from elanus.core.ids import NodeID
from elanus.core.nodes import Nodes
from elanus.rpc.calls import Calls
from elanus.rpc.carrier import RpcChannel

Api = TypeVar("Api")

TAKEOVER_WAIT_S = 20.0
"""How long a call waits for an active coordinator: a lease has to expire, and another instance to start."""
_PAUSE_S = 0.1


class Peer:
    """A connection to a process that serves roles, until `end`. ``name`` identifies it in errors.

    ``node_id``: the node whose session the calls are meant for; None: any session at the address.
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
        """Return a client as of the channel; its calls end when the peer does."""
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
        """Whether there is a connection now, or there will be one in time. Ends with the peer.

        Raises `Unavailable` for a peer that runs but can never be connected to (`RpcChannel.reachable`).
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
    """``active``: contains the role's active peer, when there is one. ``wait_s``: how long a call
    waits for that, and keeps being repeated."""

    def __init__(self, name: str, active: Nodes[Peer], *, wait_s: float = TAKEOVER_WAIT_S) -> None:
        self.name = name
        self._active = active
        self._wait_s = wait_s
        self.refusal = ""
        """Why the latest instance that was asked does not start; "" if it answered, or none was asked."""
        self._changed = asyncio.Event()
        active.on_change(self._changed.set)

    def client(self, api: type[Api], timeout_s: float | None = 30.0) -> Api:
        """``timeout_s``: for each single call, once it is sent."""
        return cast(Api, _RoleClient(self, api, timeout_s))

    async def call(
        self, api: type[Any], method: str, timeout_s: float | None, *args: Any, **named: Any
    ) -> Any:
        """Raises `Unavailable` when no instance is active for too long, and what the method raises."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._wait_s
        why: NotStarted | None = None
        while True:
            peer = await self._find(deadline_s, why)
            if not await peer.connected(max(_PAUSE_S, deadline_s - loop.time())):
                if loop.time() >= deadline_s:
                    raise why or Unavailable(f"{self.name} cannot be reached; retry when it is back")
                continue  # nothing was sent
            try:
                answer = await peer.call(api, method, timeout_s, None, *args, **named)
                self.refusal = ""
                return answer
            except ChannelRewound:
                raise  # the role's answer, and the same one until an operator has acted
            except Unavailable as error:
                if isinstance(error, NotStarted):
                    why, self.refusal = error, error.message
                if not is_repeatable(api, method):
                    raise
                if loop.time() + _PAUSE_S > deadline_s:
                    raise (why or error) from None
            await asyncio.sleep(_PAUSE_S)

    async def _find(self, deadline_s: float, why: NotStarted | None) -> Peer:
        try:
            async with asyncio.timeout_at(deadline_s):
                while not self._active:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise why or Unavailable(f"{self.name} is not running; retry when it is back") from None
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
