"""Calls between roles: as `elanus.rpc.local` carries them, over a network that delays, loses and doubles.

A call travels, is executed in its callee's life, and travels back. It may be lost on either way (the
caller gets `Unavailable` and cannot tell which), it may be overtaken by later ones, and a call that may be
repeated may be executed twice, the second time late. A callee that dies ends the call for the caller, and
for nobody else. Two roles may be parted for a while: no call between them arrives, and no answer.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from elanus.core.errors import ElanusError, Unavailable
from elanus.sim.chance import Chance
from elanus.sim.life import Life
from elanus.sim.scenario import FaultKind
from elanus.sim.trace import Trace
from elanus.storage.port import CorruptObject, ObjectMissing

Api = TypeVar("Api")
T = TypeVar("T")

UP_WAIT_S = 10.0
"""How long a call waits for a role that is down: `elanus.rpc.local.RESTART_WAIT_S`."""
_USUAL_S = 0.002
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
        "sweep",
        "alloc_timestamp",
        "assign_quota",
    }
)
"""Calls that may arrive twice: they only tell, or ask for what may be had twice."""


_COUNTED = {"announce": "versions announced", "commit_range": "ranges committed"}


class Network:
    def __init__(self, chance: Chance, trace: Trace) -> None:
        self._trace = trace
        self._meets = chance.meets
        self._delays = chance.delays("network", _USUAL_S)
        self._parted: dict[frozenset[str], float] = {}

    def part(self, roles: frozenset[str], seconds: float) -> None:
        """No call between the two arrives for so long."""
        until_s = asyncio.get_running_loop().time() + seconds
        self._parted[roles] = max(until_s, self._parted.get(roles, 0.0))

    def heal(self) -> None:
        """Everybody reaches everybody again."""
        self._parted.clear()

    def parts(self, one: str, other: str) -> bool:
        """Whether the two cannot reach one another now."""
        if not self._parted:
            return False
        until_s = self._parted.get(frozenset((one, other)))
        return until_s is not None and asyncio.get_running_loop().time() < until_s

    def call_delay_s(self, method: str) -> float:
        late = self._meets(FaultKind.DELAY_CALL, method)
        return self._delays.next_s() + (late.amount if late else 0.0)

    def answer_delay_s(self, method: str) -> float:
        """Mostly none: that calls differ is enough."""
        late = self._meets(FaultKind.DELAY_ANSWER, method)
        return late.amount if late else 0.0

    def loses_call(self, method: str) -> bool:
        return self._meets(FaultKind.LOSE_CALL, method) is not None

    def loses_answer(self, method: str) -> bool:
        return self._meets(FaultKind.LOSE_ANSWER, method) is not None

    def doubles_after_s(self, method: str) -> float | None:
        """When the call arrives a second time; None: it does not."""
        if method not in REPEATABLE:
            return None
        doubled = self._meets(FaultKind.DOUBLE_CALL, method)
        return None if doubled is None else doubled.amount

    def may_strike(self, method: str, caller: Life, callee: Life) -> None:
        """Kill one of the two, soon: before the call is there, within it, or on its way back."""
        for kind, life in ((FaultKind.CRASH_CALLER, caller), (FaultKind.CRASH_CALLEE, callee)):
            if not life.is_outside and (fault := self._meets(kind, method)) is not None:
                asyncio.get_running_loop().call_later(fault.amount, self._kill, life, method)

    def may_pause(self, method: str, callee: Life) -> None:
        """Have the callee stand still from the first step on that others could see, perhaps until after its
        lease is over."""
        if method == "write" and (fault := self._meets(FaultKind.PAUSE_CALLEE, method)) is not None:
            self._trace.note(f"PAUSE of {callee.name}")
            callee.pause()
            asyncio.get_running_loop().call_later(fault.amount, self._resume, callee)

    def _resume(self, life: Life) -> None:
        self._trace.note(f"{life.name} goes on")
        life.release()

    def executed(self, method: str) -> None:
        if method in _COUNTED:
            self._trace.count(_COUNTED[method])

    def _kill(self, life: Life, method: str) -> None:
        self._trace.note(f"CRASH of {life.name} during {method}")
        life.kill()


class Handle:
    """Where the running instance of a role is found."""

    def __init__(self, name: str, network: Network) -> None:
        self.name = name
        self.role = name.partition("#")[0]
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
        network = self._network
        if caller.is_held:
            await caller.gate()
        await asyncio.sleep(network.call_delay_s(what))
        if network.loses_call(what) or network.parts(caller.role, self.role):
            raise Unavailable(f"{what} did not reach {self.name}")
        again_s = network.doubles_after_s(what)
        if again_s is not None:
            self._late.append(asyncio.ensure_future(self._again(work, again_s)))
        try:
            answer = await self._executed(what, work, caller)
        except ElanusError:
            await self._travel_back(caller, what)
            raise
        await self._travel_back(caller, what)
        return answer

    async def _travel_back(self, caller: Life, what: str) -> None:
        network = self._network
        if delay_s := network.answer_delay_s(what):
            await asyncio.sleep(delay_s)
        if caller.is_held:
            await caller.gate()
        if network.loses_answer(what) or network.parts(caller.role, self.role):
            raise Unavailable(f"the answer of {self.name} to {what} was lost")

    async def _executed(
        self, what: str, work: Callable[[Any], Awaitable[T]], caller: Life | None = None
    ) -> T:
        instance, life = self._instance, self._life
        if instance is None or life is None or life.is_over:
            instance, life = await self._current()
        if caller is not None:
            self._network.may_strike(what, caller, life)
        running = asyncio.ensure_future(self._executing(what, work, instance, life))
        self._calls[running] = None
        try:
            await _first_of(running, life.ended)
        except asyncio.CancelledError:
            if not life.is_over:
                running.cancel()
            raise
        finally:
            del self._calls[running]
        if life.is_over:
            running.add_done_callback(_seen)
            raise Unavailable(f"{self.name} went down during {what}")
        self._network.executed(what)
        if running.cancelled():
            raise Unavailable(f"{self.name} went down during {what}; retry when it is back")
        return running.result()

    async def _executing(
        self, what: str, work: Callable[[Any], Awaitable[T]], instance: object, life: Life
    ) -> T:
        if life.is_held:
            await life.gate()
        self._network.may_pause(what, life)
        return await work(instance)

    async def _again(self, work: Callable[[Any], Awaitable[Any]], after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            await self._executed("a repeated call", work)
        except (ElanusError, ObjectMissing, CorruptObject):
            return  # nobody waits for the answer; what it asks for may be long gone

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


async def _first_of(running: asyncio.Future[Any], ended: asyncio.Future[None]) -> None:
    """As `asyncio.wait` for the first of the two; there are too many calls for that."""
    if running.done() or ended.done():
        return
    waiter = asyncio.get_running_loop().create_future()

    def wake(_: asyncio.Future[Any]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    running.add_done_callback(wake)
    ended.add_done_callback(wake)
    try:
        await waiter
    finally:
        running.remove_done_callback(wake)
        ended.remove_done_callback(wake)


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
