"""The in-process carrier: a handle to a role that may be stopped and started again meanwhile.

A call to a role that is down waits a little for its return, then fails with `Unavailable`; so a role
can be restarted alone inside a process, and its peers notice only a pause. If its starts fail meanwhile, the
error says why. Calls that run when the role goes down end there, as they would if its process died: an
instance that has been replaced must not go on writing next to its successor.

A call from another process to a node is meant for one session. A node that has joined again since, under
another id, or was restarted at the same address, refuses the call. Otherwise the caller would attribute the
old instance's state to the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from elanus.core.errors import NotStarted, Unavailable
from elanus.core.ids import NodeID
from elanus.rpc.calls import Calls
from elanus.rpc.parts import method_of

Api = TypeVar("Api")

RESTART_WAIT_S = 10.0


class LocalRole:
    """A reference to a role's current instance. One per role, shared by all its callers.

    ``fails_at_once``: whether a failed start ends the calls that wait. For callers that send them again, as
    `elanus.rpc.remote.RemoteRole` does: the connection to a role that failed to start ends with its session,
    and with it the chance to say why.
    """

    def __init__(self, name: str, *, fails_at_once: bool = False) -> None:
        self.name = name
        self._fails_at_once = fails_at_once
        self._failure = ""
        self._instance: object | None = None
        self._node_id: NodeID | None = None
        self._changed = asyncio.Event()
        self._calls = Calls(name)

    @property
    def instance(self) -> object | None:
        return self._instance

    def up(self, instance: object, node_id: NodeID | None = None) -> None:
        """``node_id``: the instance's session; None: it answers calls meant for any session."""
        self._instance, self._node_id, self._failure = instance, node_id, ""
        self._changed.set()

    def down(self) -> None:
        """Take the instance down: its callers get `Unavailable`. Whether a call had its effect is unknown."""
        self._instance = None
        self._calls.end()

    def not_started(self, why: str) -> None:
        """A start has failed, and another one follows."""
        self._failure = why
        self._changed.set()

    async def call(self, meant_for: NodeID | None, method: str, *args: Any, **kwargs: Any) -> Any:
        """Raises `Unavailable`, also `NotStarted`, and what the method raises."""
        instance = await self._current()
        self.check(meant_for)
        return await self._calls.run(method, method_of(instance, method)(*args, **kwargs))

    def check(self, meant_for: NodeID | None) -> None:
        """Raises `Unavailable` for a call that is meant for a session other than the current one."""
        if meant_for is not None and self._node_id not in (None, meant_for):
            raise Unavailable(f"{self.name} {meant_for} is gone: {self._node_id} has replaced it")

    async def _current(self) -> object:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESTART_WAIT_S):
                while self._instance is None:
                    self._changed.clear()
                    await self._changed.wait()
                    if self._failure and self._fails_at_once:
                        break
        if self._instance is not None:
            return self._instance
        if self._failure:
            raise NotStarted(f"{self.name} does not start: {self._failure}")
        raise Unavailable(f"{self.name} is not running; retry when it is back")


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
    """Return a client of the role, typed as its interface. ``api`` is only the type."""
    return cast(Api, _LocalClient(role))
