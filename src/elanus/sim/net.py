"""Calls between roles: as `elanus.rpc.local` carries them, over a network that delays, loses and doubles.

A call travels, is executed in its callee's life, and travels back. It may be lost on either way (the
caller gets `Unavailable` and cannot tell which), and a call that may be repeated may be executed twice,
the second time late. A callee that dies ends the call for the caller, and for nobody else.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from elanus.core.errors import ElanusError, Unavailable
from elanus.sim.chance import Chance, Delays
from elanus.sim.life import Life

Api = TypeVar("Api")
T = TypeVar("T")

UP_WAIT_S = 10.0
"""How long a call waits for a role that is down: `elanus.rpc.local.RESTART_WAIT_S`."""
_DOUBLED_AFTER_S = 2.0
REPEATABLE = frozenset(
    {
        "update_channel_time_tick",
        "invalidate_collection",
        "give_back_quota",
        "report_tick",
        "watch_channels",
        "drop_collection",
        "flush_segments",
        "report_ticks",
        "commit_range",
        "channel_dropped",
        "load_collection",
        "watch_vchannel",
        "load_segment",
        "announce",
        "forget_deletes",
        "recovery_info",
        "alloc_timestamp",
        "assign_quota",
    }
)
"""Calls that may arrive twice: they only tell, or ask for what may be had twice."""


STRUCK = frozenset(
    {
        "announce",
        "channel_dropped",
        "commit_range",
        "create_collection",
        "create_partition",
        "drop_collection",
        "drop_partition",
        "flush",
        "give_back_quota",
        "load",
        "load_segment",
        "register_datanode",
        "release",
        "watch_channels",
        "watch_vchannel",
    }
)
"""Calls that change something for good: the moments at which a crash is worth most."""
_STRIKE = 0.04
_STRIKE_AT_WRITE = 0.015
_STRIKE_WITHIN_S = 0.02


class Network:
    """``tell`` hears of the crashes it causes."""

    def __init__(self, chance: Chance, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._strikes = 0
        self._chance = chance
        self._random = chance.stream("network")
        self._delays = Delays(chance, "network delays", 0.002, 0.8)

    async def travel(self) -> None:
        await asyncio.sleep(self._delays.next_s())

    def loses(self) -> bool:
        return self._random.random() < self._chance.faults.lost

    def doubles(self, method: str) -> bool:
        return method in REPEATABLE and self._random.random() < self._chance.faults.doubled

    def may_strike(self, method: str, caller: Life, callee: Life) -> None:
        """Now and then kill one of the two, soon: before the call is there, within it, or on its way back."""
        chance = _STRIKE if method in STRUCK else _STRIKE_AT_WRITE if method == "write" else 0.0
        if not chance or self._strikes >= self._chance.faults.strikes or self._random.random() >= chance:
            return
        victims = [life for life in (caller, callee) if not life.is_outside]
        self._strikes += 1
        life = self._random.choice(victims)
        delay_s = self._random.random() * _STRIKE_WITHIN_S
        asyncio.get_running_loop().call_later(delay_s, self._kill, life, method)

    def _kill(self, life: Life, method: str) -> None:
        self._tell(f"CRASH of {life.name} during {method}")
        life.kill()

    def doubled_after_s(self) -> float:
        return self._random.random() * _DOUBLED_AFTER_S


class Handle:
    """Where the running instance of a role is found."""

    def __init__(self, name: str, network: Network) -> None:
        self.name = name
        self._network = network
        self._instance: object | None = None
        self._life: Life | None = None
        self._up = asyncio.Event()
        self._calls: dict[asyncio.Future[Any], None] = {}
        self._late: list[asyncio.Future[None]] = []

    @property
    def instance(self) -> object | None:
        return self._instance

    def up(self, instance: object, life: Life) -> None:
        self._instance, self._life = instance, life
        self._up.set()

    def down(self) -> None:
        """The instance is gone, or going: calls that run are ended, as `LocalRole.down` ends them."""
        self._instance = None
        self._up.clear()
        if self._life is not None and not self._life.is_over:
            for call in tuple(self._calls):
                call.cancel()

    async def call(self, caller: Life, method: str, *args: Any, **kwargs: Any) -> Any:
        """Raises `Unavailable`, and what the method raises."""
        return await self.perform(caller, method, lambda instance: getattr(instance, method)(*args, **kwargs))

    async def perform(self, caller: Life, what: str, work: Callable[[Any], Awaitable[T]]) -> T:
        """As `call`: ``work`` gets the instance, and runs in its life."""
        await caller.gate()
        await self._network.travel()
        if self._network.loses():
            raise Unavailable(f"{what} did not reach {self.name}")
        if self._network.doubles(what):
            self._late.append(asyncio.ensure_future(self._again(work)))
        try:
            answer = await self._executed(what, work, caller)
        except ElanusError:
            await self._travel_back(caller, what)
            raise
        await self._travel_back(caller, what)
        return answer

    async def _travel_back(self, caller: Life, what: str) -> None:
        await self._network.travel()
        await caller.gate()
        if self._network.loses():
            raise Unavailable(f"the answer of {self.name} to {what} was lost")

    async def _executed(
        self, what: str, work: Callable[[Any], Awaitable[T]], caller: Life | None = None
    ) -> T:
        instance, life = await self._current()
        if caller is not None:
            self._network.may_strike(what, caller, life)
        running = asyncio.ensure_future(work(instance))
        self._calls[running] = None
        running.add_done_callback(lambda done: self._calls.pop(done, None))
        try:
            ends: list[asyncio.Future[Any]] = [running, life.ended]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if not life.is_over:
                running.cancel()
            raise
        if life.is_over:
            running.add_done_callback(_seen)
            raise Unavailable(f"{self.name} went down during {what}")
        if running.cancelled():
            raise Unavailable(f"{self.name} went down during {what}; retry when it is back")
        return running.result()

    async def _again(self, work: Callable[[Any], Awaitable[Any]]) -> None:
        await asyncio.sleep(self._network.doubled_after_s())
        try:
            await self._executed("a repeated call", work)
        except ElanusError:
            return  # nobody waits for the answer

    async def _current(self) -> tuple[object, Life]:
        try:
            async with asyncio.timeout(UP_WAIT_S):
                while self._instance is None or self._life is None or self._life.is_over:
                    await self._up.wait()
                    if self._life is not None and self._life.is_over:
                        await asyncio.sleep(0.05)
        except TimeoutError:
            raise Unavailable(f"{self.name} is not running; retry when it is back") from None
        return self._instance, self._life


def _seen(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


class _Client:
    def __init__(self, caller: Life, handle: Handle) -> None:
        self._caller = caller
        self._handle = handle

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if method.startswith("_"):
            raise AttributeError(method)
        return functools.partial(self._handle.call, self._caller, method)


def client(caller: Life, handle: Handle, api: type[Api]) -> Api:
    """A client of the role, for one caller. ``api`` is only the type."""
    return cast(Api, _Client(caller, handle))
