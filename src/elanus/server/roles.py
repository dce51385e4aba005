"""The roles of the online process: how each is made, started, and restarted alone.

A role is reached through its `LocalRole`, never directly, so a new instance can take the old one's place
while its peers wait for a moment. What a role knows it reads back from the metadata and the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from elanus.core.errors import InvalidParameter
from elanus.rpc.local import LocalRole

_log = structlog.get_logger("server")


class Role(Protocol):
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class RoleHost:
    """Starts roles in order, stops them in the opposite one, restarts each alone."""

    def __init__(self) -> None:
        self._builders: dict[str, Callable[[], Role]] = {}
        self._handles: dict[str, LocalRole] = {}
        self._running: dict[str, Role] = {}
        self._changing = asyncio.Lock()

    def add(self, handle: LocalRole, build: Callable[[], Role]) -> None:
        self._handles[handle.name] = handle
        self._builders[handle.name] = build

    def names(self) -> tuple[str, ...]:
        return tuple(self._builders)

    def is_running(self, name: str) -> bool:
        return name in self._running

    async def start(self) -> None:
        for name in self._builders:
            await self._start(name)

    async def stop(self) -> None:
        for name in reversed(tuple(self._running)):
            await self._stop(name)

    async def restart(self, name: str) -> None:
        """Raises `InvalidParameter` for a role that is not hosted here."""
        if name not in self._builders:
            raise InvalidParameter(f"no role {name!r} here: there are {', '.join(self._builders)}")
        async with self._changing:
            _log.warning("restarting a role", role=name)
            await self._stop(name)
            await self._start(name)

    async def _start(self, name: str) -> None:
        role = self._builders[name]()
        await role.start()
        self._running[name] = role
        self._handles[name].up(role)

    async def _stop(self, name: str) -> None:
        self._handles[name].down()
        role = self._running.pop(name, None)
        if role is not None:
            await role.stop()
