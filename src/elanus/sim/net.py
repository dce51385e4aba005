"""Calls between roles, as `elanus.rpc.local` makes them, over a network that delays, loses and duplicates.

A call travels, is executed in its callee's life, and its answer travels back. It may be lost on either way
(the caller gets `Unavailable` and cannot know which), later calls may overtake it, and a call that may be
repeated may be executed twice, the second time late. When the callee dies, the call ends for the caller but
for nobody else. Two roles may be partitioned for a while: no call or answer between them arrives.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from elanus.core.errors import ElanusError, Unavailable
from elanus.core.ids import NodeID
from elanus.rpc.parts import method_of
from elanus.sim.chance import Chance
from elanus.sim.incarnation import Life, working_for
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
        "return_allocations",
        "report_tick",
        "watch_channels",
        "drop_collection",
        "flush_segments",
        "report_soon",
        "report_ticks",
        "commit_range",
        "move_checkpoints",
        "channel_dropped",
        "load_collection",
        "watch_vchannel",
        "load_segment",
        "unload_segments",
        "announce",
        "forget_deletes",
        "recovery_info",
        "sweep",
        "alloc_timestamp",
        "allocate",
        "fence_gone",
    }
)
"""Calls that may arrive twice: they only report something, or request something that may be granted twice."""


_COUNTED = {"announce": "versions announced", "commit_range": "ranges committed"}


class Network:
    def __init__(self, chance: Chance, trace: Trace) -> None:
        self._trace = trace
        self._meets = chance.meets
        self._lies_in_wait = chance.lies_in_wait
        self._delays = chance.delays("network", _USUAL_S)
        self._parted: dict[frozenset[str], float] = {}
        self.has_remote_oracle = False
        """Whether proxies request their timestamps by calls, as in a cluster."""

    def part(self, roles: frozenset[str], seconds: float) -> None:
        """Partition the two roles: no call between them arrives for this many seconds."""
        until_s = asyncio.get_running_loop().time() + seconds
        self._parted[roles] = max(until_s, self._parted.get(roles, 0.0))

    def heal(self) -> None:
        """End all partitions."""
        self._parted.clear()

    def parts(self, one: str, other: str) -> bool:
        """Whether the two roles cannot reach each other now."""
        if not self._parted:
            return False
        until_s = self._parted.get(frozenset((one, other)))
        return until_s is not None and asyncio.get_running_loop().time() < until_s

    def disturbs(self, method: str, caller: str, callee: str) -> bool:
        """Whether any fault can affect such a call now. Usually none can, and other checks are skipped."""
        return self._lies_in_wait(method) or bool(self._parted and self.parts(caller, callee))

    def call_delay_s(self, method: str) -> float:
        if not self._lies_in_wait(method):
            return self._delays.next_s()
        late = self._meets(FaultKind.DELAY_CALL, method)
        return self._delays.next_s() + (late.amount if late else 0.0)

    def answer_delay_s(self, method: str) -> float:
        """Return the delay of an answer, usually 0: varying the delays of calls is enough."""
        late = self._meets(FaultKind.DELAY_ANSWER, method)
        return late.amount if late else 0.0

    def loses_call(self, method: str) -> bool:
        return self._meets(FaultKind.LOSE_CALL, method) is not None

    def loses_answer(self, method: str) -> bool:
        return self._meets(FaultKind.LOSE_ANSWER, method) is not None

    def doubles_after_s(self, method: str) -> float | None:
        """When the call arrives a second time; None if it does not."""
        if method not in REPEATABLE:
            return None
        doubled = self._meets(FaultKind.DOUBLE_CALL, method)
        return None if doubled is None else doubled.amount

    def may_strike(self, method: str, caller: Life, callee: Life) -> None:
        """Kill one of the two soon: before the call arrives, during it, or while the answer travels back."""
        for kind, life in ((FaultKind.CRASH_CALLER, caller), (FaultKind.CRASH_CALLEE, callee)):
            if not life.is_outside and (fault := self._meets(kind, method)) is not None:
                asyncio.get_running_loop().call_later(fault.amount, self._kill, life, method)

    def may_pause(self, method: str, callee: Life) -> None:
        """Pause the callee at its first observable step, perhaps until after its lease has expired."""
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


class _Call:
    """One pending call. Its caller waits for ``answer``; ``running`` carries it out.

    ``life``: the callee's, once there is one; ``meant_for``: the session that the callee must have;
    ``caller``: the caller's role.
    """

    __slots__ = ("answer", "caller", "life", "meant_for", "method", "running", "work")

    def __init__(
        self,
        method: str,
        work: Callable[[Any], Awaitable[Any]],
        answer: asyncio.Future[Any],
        meant_for: NodeID | None,
        caller: str = "",
    ) -> None:
        self.caller = caller
        self.meant_for = meant_for
        self.method = method
        self.work = work
        self.answer = answer
        self.life: Life | None = None
        self.running: asyncio.Task[None] | None = None

    @property
    def has_no_effect(self) -> bool:
        """Whether it was called off, or the life that carries it out has ended: it has no effect any more."""
        was_called_off = self.running is not None and self.running.done()
        return was_called_off or (self.life is not None and self.life.is_over)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def succeed(self, result: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(result)

    def call_off(self) -> None:
        """Cancel the call because the caller gave up; a callee that is still alive stops its work."""
        if self.running is not None and not self.has_no_effect:
            self.running.cancel()


class Handle:
    """Where the running instance of a role is found."""

    def __init__(self, name: str, network: Network) -> None:
        self.name = name
        self.role = name.partition("#")[0]
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._instance: object | None = None
        self._life: Life | None = None
        self._node_id: NodeID | None = None
        self._former: tuple[object, Life] | None = None
        self._behind: frozenset[str] = frozenset()
        self._behind_until_s = 0.0
        self._up = asyncio.Event()
        self._calls: dict[_Call, None] = {}
        self._late: list[asyncio.Task[None]] = []
        self._under_way: dict[_Call, str] = {}
        """By method: the calls that travel, are carried out, or are to be carried out a second time."""

    @property
    def instance(self) -> object | None:
        return self._instance

    def is_under_way(self, method: str) -> bool:
        """Whether a call of the method may yet have an effect, perhaps for the second time."""
        calls = (call for call, name in self._under_way.items() if name == method)
        return any(not call.has_no_effect for call in calls)

    def up(self, instance: object, life: Life, node_id: NodeID | None = None) -> None:
        """Register a running instance. ``node_id``: for a role with a session."""
        self._instance, self._life, self._node_id = instance, life, node_id
        life.ended.add_done_callback(functools.partial(self._life_ended, life))
        self._up.set()

    def down(self) -> None:
        """Mark the instance as gone or stopping: running calls are cancelled, as in `LocalRole.down`."""
        self._instance = None
        self._up.clear()
        if self._life is not None and not self._life.is_over:
            for call in tuple(self._calls):
                call.call_off()

    def replace(self, behind: frozenset[str], seconds: float) -> None:
        """Have the instance replaced while it goes on: for a while these callers do not know of another."""
        if self._instance is not None and self._life is not None:
            self._former = (self._instance, self._life)
        self._instance, self._behind = None, behind
        self._behind_until_s = self._loop.time() + seconds
        self._up.clear()

    def _known_to(self, caller: str) -> tuple[object | None, Life | None]:
        """Return the instance that calls of this role reach."""
        is_behind = caller in self._behind and self._loop.time() < self._behind_until_s
        if is_behind and self._former is not None and not self._former[1].is_over:
            return self._former
        return self._instance, self._life

    def _life_ended(self, life: Life, _: asyncio.Future[None]) -> None:
        for call in self._calls:
            if call.life is life:
                call.fail(Unavailable(f"{self.name} went down during {call.method}"))

    def call(
        self, caller: Life, meant_for: NodeID | None, method: str, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Call a method of the role. Raises `Unavailable`, and what the method raises."""
        return self.perform(caller, method, lambda role: method_of(role, method)(*args, **kwargs), meant_for)

    async def perform(
        self,
        caller: Life,
        what: str,
        work: Callable[[Any], Awaitable[T]],
        meant_for: NodeID | None = None,
    ) -> T:
        """Like `call`, but ``work`` receives the instance, and runs in its life."""
        if caller.is_held:
            await caller.gate()
        network = self._network
        call = _Call(what, work, self._loop.create_future(), meant_for, caller.role)
        self._under_way[call] = what
        self._loop.call_later(network.call_delay_s(what), self._arrive, call, caller)
        try:
            answer: T = await call.answer
        except asyncio.CancelledError:
            call.call_off()
            raise
        except ElanusError:
            if call.running is not None:
                await self._travel_back(caller, what)
            raise
        if caller.is_held or network.disturbs(what, caller.role, self.role):
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

    def _arrive(self, call: _Call, caller: Life) -> None:
        if call.answer.done():  # the caller gave up while the call travelled
            del self._under_way[call]
            return
        network, what = self._network, call.method
        is_disturbed = network.disturbs(what, caller.role, self.role)
        if is_disturbed:
            if network.loses_call(what) or network.parts(caller.role, self.role):
                call.fail(Unavailable(f"{what} did not reach {self.name}"))
                del self._under_way[call]
                return
            again_s = network.doubles_after_s(what)
            if again_s is not None:
                again = _Call("a repeated call", call.work, self._loop.create_future(), call.meant_for)
                self._under_way[again] = what
                with working_for(None):  # nobody waits for it
                    self._late.append(self._loop.create_task(self._again(again, again_s)))
        call.running = self._loop.create_task(self._carry_out(call, caller if is_disturbed else None))

    async def _carry_out(self, call: _Call, struck_caller: Life | None) -> None:
        """Run the call in the callee's life.

        ``struck_caller``: the caller, if a fault may kill it or the callee meanwhile; None: no such fault.
        """
        try:
            instance, life = self._known_to(call.caller)
            if instance is None or life is None or life.is_over:
                instance, life = await self._current()
            if call.meant_for is not None and self._node_id != call.meant_for:
                raise Unavailable(f"{self.name} {call.meant_for} is gone: {self._node_id} has replaced it")
            call.life = life
            self._calls[call] = None
            if struck_caller is not None:
                self._network.may_strike(call.method, struck_caller, life)
            if life.is_held:
                await life.gate()
            self._network.may_pause(call.method, life)
            with working_for(life):
                answer = await call.work(instance)
        except asyncio.CancelledError:
            call.fail(Unavailable(f"{self.name} went down during {call.method}; retry when it is back"))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
            call.fail(error)
        else:
            if life.is_over:
                call.fail(Unavailable(f"{self.name} went down during {call.method}"))
            else:
                self._network.executed(call.method)
                call.succeed(answer)
        finally:
            self._calls.pop(call, None)
            self._under_way.pop(call, None)

    async def _again(self, call: _Call, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._carry_out(call, None)
        try:
            await call.answer
        except (ElanusError, ObjectMissing, CorruptObject):
            return  # nobody waits for the answer; the request may be long outdated

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


class _Client:
    def __init__(self, caller: Life, handle: Handle, meant_for: NodeID | None) -> None:
        self._caller = caller
        self._handle = handle
        self._meant_for = meant_for

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if method.startswith("_"):
            raise AttributeError(method)
        call = functools.partial(self._handle.call, self._caller, self._meant_for, method)
        self.__dict__[method] = call
        return call


def client(caller: Life, handle: Handle, api: type[Api], meant_for: NodeID | None = None) -> Api:
    """A client of the role for one caller. ``api`` only gives the type; ``meant_for``: as between
    processes."""
    return cast(Api, _Client(caller, handle, meant_for))
