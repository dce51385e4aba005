"""The in-process carrier: a handle to a role that may be stopped and started again meanwhile.

A call to a role that is down waits a little for its return, then fails with `Unavailable`; so a role
can be restarted alone inside a process without its peers noticing more than a pause. Calls that run when
the role goes down end there, as they would if its process died: an instance that has been replaced must
not go on writing beside the next one.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from elanus.core.errors import Unavailable
from elanus.rpc.calls import Calls

Api = TypeVar("Api")

RESTART_WAIT_S = 10.0


class LocalRole:
    """Where a role's current instance is found. One per role, shared by all who call it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._instance: object | None = None
        self._up = asyncio.Event()
        self._calls = Calls(name)

    @property
    def instance(self) -> object | None:
        return self._instance

    def up(self, instance: object) -> None:
        self._instance = instance
        self._up.set()

    def down(self) -> None:
        """Whoever waits for an answer gets `Unavailable`; whether the call had its effect is not known."""
        self._instance = None
        self._up.clear()
        self._calls.end()

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Raises `Unavailable`, and what the method raises."""
        instance = await self._current()
        return await self._calls.run(method, getattr(instance, method)(*args, **kwargs))

    async def _current(self) -> object:
        try:
            async with asyncio.timeout(RESTART_WAIT_S):
                while self._instance is None:
                    await self._up.wait()
        except TimeoutError:
            raise Unavailable(f"{self.name} is not running; retry when it is back") from None
        return self._instance


class _LocalClient:
    def __init__(self, role: LocalRole) -> None:
        self._role = role

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if method.startswith("_"):
            raise AttributeError(method)
        return functools.partial(self._role.call, method)


def local_client(role: LocalRole, api: type[Api]) -> Api:
    """A client of the role, typed as its interface. ``api`` is only the type."""
    return cast(Api, _LocalClient(role))
