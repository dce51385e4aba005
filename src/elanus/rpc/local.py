"""The in-process carrier: a handle to a role that may be stopped and started again meanwhile.

A call to a role that is down waits a little for its return, then fails with `Unavailable`; so a role
can be restarted alone inside a process without its peers noticing more than a pause.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from elanus.core.errors import Unavailable

Api = TypeVar("Api")

RESTART_WAIT_S = 10.0


class LocalRole:
    """Where a role's current instance is found. One per role, shared by all who call it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._instance: object | None = None
        self._up = asyncio.Event()

    @property
    def instance(self) -> object | None:
        return self._instance

    def up(self, instance: object) -> None:
        self._instance = instance
        self._up.set()

    def down(self) -> None:
        self._instance = None
        self._up.clear()

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self._instance is None:
            try:
                await asyncio.wait_for(self._up.wait(), RESTART_WAIT_S)
            except TimeoutError:
                raise Unavailable(f"{self.name} is not running; retry when it is back") from None
        return await getattr(self._instance, method)(*args, **kwargs)


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
