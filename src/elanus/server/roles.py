"""The roles of a process: how each one joins, is built, started, and restarted on its own.

A role depends on a session (`elanus.meta.session`): it registers, and a coordinator also waits until it is
elected the active one; then a new instance is built. When the session is lost, other processes have already
continued without the role: the instance is stopped, its requests in progress end with an error, and the role
joins again under a new id. The process continues.

A role is reached through its `LocalRole`, never directly, so a new instance can take the old one's place
while its peers wait briefly. A new instance reads its state back from the metadata and the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from elanus.core.errors import ElanusError, InvalidParameter
from elanus.core.ids import NodeID
from elanus.meta.session import Session
from elanus.rpc.local import LocalRole

_PAUSE_S = 0.2
_log = structlog.get_logger("server")


class Role(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Stop, also after a start that failed half-way."""
        ...


@dataclass(slots=True)
class _Hosted:
    """A role of this process. ``session`` and ``instance`` are set while it runs."""

    handle: LocalRole
    join: Callable[[], Awaitable[Session]]
    build: Callable[[Session], Role]
    stands_by: bool = False
    waits_for: Callable[[], str] = str
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    session: Session | None = None
    instance: Role | None = None
    watch: asyncio.Task[None] | None = None
    why_not: str = ""
    """Why the last attempt to start it failed."""


class RoleHost:
    """Starts roles in order, stops them in reverse order, restarts each one on its own."""

    def __init__(self) -> None:
        self._hosted: dict[str, _Hosted] = {}
        self._is_stopping = False
        self._returning: set[asyncio.Task[None]] = set()

    def add(
        self,
        handle: LocalRole,
        join: Callable[[], Awaitable[Session]],
        build: Callable[[Session], Role],
        *,
        stands_by: bool = False,
        waits_for: Callable[[], str] = str,
    ) -> None:
        """``join`` registers the role, or (``stands_by``) waits until it is elected. ``waits_for``: why its
        start cannot go on, if that is known while it is under way; else ""."""
        self._hosted[handle.name] = _Hosted(handle, join, build, stands_by, waits_for)

    def names(self) -> tuple[str, ...]:
        return tuple(self._hosted)

    def is_running(self, name: str) -> bool:
        return self._hosted[name].instance is not None

    def state(self, name: str) -> str:
        """Healthy, Initializing, or Standby: ready to take over from the active one."""
        hosted = self._hosted[name]
        if hosted.instance is not None:
            return "Healthy"
        return "Standby" if hosted.stands_by and hosted.session is None else "Initializing"

    def why_not(self, name: str) -> str:
        """Return why the last attempt to start the role failed, or why the first one waits; "" if it runs, or
        that is not known."""
        hosted = self._hosted[name]
        return "" if hosted.instance is not None else hosted.why_not or hosted.waits_for()

    def node_id(self, name: str) -> NodeID:
        """Return the role's node id, 0 while it does not run."""
        session = self._hosted[name].session
        return session.node_id if session is not None else NodeID(0)

    async def start(self) -> None:
        """Start all roles in order. Raises whatever starting a role raises."""
        for hosted in self._hosted.values():
            async with hosted.changing:
                await self._start(hosted)

    async def start_when_possible(self) -> None:
        """Start each role independently, for a process whose peers may start later.

        A role that cannot start tries again; a role that stands by does not keep the others from starting.
        """
        await asyncio.gather(*(self._come_back(hosted) for hosted in self._hosted.values()))

    async def stop(self) -> None:
        """Stop all roles. One that loses its session meanwhile does not come back.

        One that fails to stop does not keep the others running: what it raised is raised at the end.
        """
        self._is_stopping = True
        for returning in tuple(self._returning):
            returning.cancel()
        await asyncio.gather(*self._returning, return_exceptions=True)
        async with AsyncExitStack() as stack:
            for hosted in self._hosted.values():
                stack.push_async_callback(self._stop, hosted)

    async def restart(self, name: str) -> None:
        """Restart a role. Raises `InvalidParameter` for a role that is not hosted here, and whatever starting
        it raises; it is then tried again until the role runs."""
        if name not in self._hosted:
            raise InvalidParameter(f"no role {name!r} here: there are {', '.join(self._hosted)}")
        hosted = self._hosted[name]
        async with hosted.changing:
            _log.warning("role restarting", role=name)
            try:
                await self._stop(hosted)
                await self._start(hosted)
            except BaseException:
                self._return(hosted)
                raise

    async def _come_back(self, hosted: _Hosted) -> None:
        """Stop what is left of the role, and retry starting it until that succeeds."""
        role, said = hosted.handle.name, ""
        while True:
            try:
                async with hosted.changing:
                    await self._stop(hosted)
                    await self._start(hosted)
                hosted.why_not = ""
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, a role that is gone is worse
                hosted.why_not = why = _text(error)
                if why != said:  # once for each cause: it may last for hours
                    said = why
                    _log.warning(
                        "role not started; trying again",
                        role=role,
                        error=why,
                        exc_info=not isinstance(error, ElanusError),
                    )
            await asyncio.sleep(_PAUSE_S)

    async def _when_lost(self, hosted: _Hosted, session: Session) -> None:
        await session.lost.wait()
        self._return(hosted)

    def _return(self, hosted: _Hosted) -> None:
        """Have the role come back, in a task of its own."""
        if self._is_stopping:
            return
        returning = asyncio.create_task(self._come_back(hosted), name=f"return of {hosted.handle.name}")
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)

    async def _start(self, hosted: _Hosted) -> None:
        session = await hosted.join()
        hosted.session = session
        try:
            instance = await self._started(hosted, session)
        except BaseException as error:
            if isinstance(error, Exception):
                hosted.handle.not_started(_text(error))  # before the session's end cuts off those who ask
            hosted.session = None
            await session.close()
            raise
        hosted.instance = instance
        hosted.watch = asyncio.create_task(self._when_lost(hosted, session))
        hosted.handle.up(instance, session.node_id)

    async def _started(self, hosted: _Hosted, session: Session) -> Role:
        """Build an instance and start it. One that fails is stopped: what it has begun would go on."""
        instance = hosted.build(session)
        try:
            await instance.start()
        except BaseException:
            try:
                await instance.stop()
            except Exception:  # noqa: BLE001 - why it did not start matters more
                _log.exception("role that did not start failed to stop", role=hosted.handle.name)
            raise
        return instance

    async def _stop(self, hosted: _Hosted) -> None:
        """Stop a role. The session ends last: until then others rely on the role."""
        instance, session = hosted.instance, hosted.session
        hosted.instance = hosted.session = None
        hosted.handle.down()
        if hosted.watch is not None:
            hosted.watch.cancel()
        try:
            if instance is not None:
                await instance.stop()
        finally:
            if session is not None:
                await session.close()


def _text(error: Exception) -> str:
    return str(error) or repr(error)
