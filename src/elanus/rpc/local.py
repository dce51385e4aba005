"""The in-process carrier: a handle to a role that may be stopped and started again meanwhile.

A call to a role that is down waits a little for its return, then fails with `Unavailable`; so a role
can be restarted alone inside a process without its peers noticing more than a pause. Calls that run when
the role goes down end there, as they would if its process died: an instance that has been replaced must
not go on writing beside the next one.

A call from another process to a node is meant for one session. The node that has joined again since, under
another id, or was started anew at the same address, is not who was meant: it refuses the call. What the
caller knows of the one it would believe of the other.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from elanus.core.errors import Unavailable
from elanus.core.ids import NodeID
from elanus.rpc.calls import Calls

Api = TypeVar("Api")

RESTART_WAIT_S = 10.0


class LocalRole:
    """Where a role's current instance is found. One per role, shared by all who call it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._instance: object | None = None
        self._node_id: NodeID | None = None
        self._up = asyncio.Event()
        self._calls = Calls(name)

    @property
    def instance(self) -> object | None:
        return self._instance

    def up(self, instance: object, node_id: NodeID | None = None) -> None:
        """``node_id``: of the session it lives by; None: it is whoever is called."""
        self._instance, self._node_id = instance, node_id
        self._up.set()

    def down(self) -> None:
        """Whoever waits for an answer gets `Unavailable`; whether the call had its effect is not known."""
        self._instance = None
        self._up.clear()
        self._calls.end()

    async def call(self, meant_for: NodeID | None, method: str, *args: Any, **kwargs: Any) -> Any:
        """Raises `Unavailable`, and what the method raises."""
        instance = await self._current()
        self.check(meant_for)
        return await self._calls.run(method, getattr(instance, method)(*args, **kwargs))

    def check(self, meant_for: NodeID | None) -> None:
        """Raises `Unavailable` for a call that is meant for another session than the current one's."""
        if meant_for is not None and self._node_id not in (None, meant_for):
            raise Unavailable(f"{self.name} {meant_for} is gone: {self._node_id} is in its place")

    async def _current(self) -> object:
        try:
            async with asyncio.timeout(RESTART_WAIT_S):
                while self._instance is None:
                    await self._up.wait()
        except TimeoutError:
            raise Unavailable(f"{self.name} is not running; retry when it is back") from None
        return self._instance


class _LocalClient:
    def __init__(self, role: LocalRole, meant_for: NodeID | None = None) -> None:
        self._role = role
        self._meant_for = meant_for

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if method.startswith("_"):
            raise AttributeError(method)
        return functools.partial(self._role.call, self._meant_for, method)

    def meant_for(self, node_id: NodeID) -> _LocalClient:
        """Implements `elanus.rpc.carrier.Addressed`."""
        return _LocalClient(self._role, node_id)


def local_client(role: LocalRole, api: type[Api]) -> Api:
    """A client of the role, typed as its interface. ``api`` is only the type."""
    return cast(Api, _LocalClient(role))
