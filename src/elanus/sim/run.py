"""One run: a seed goes in, what happened comes out.

A run has three parts. First clients work while things go wrong. Then nothing goes wrong any more, and
everything must come to rest: reads, a flush, the handoff. At last the power goes once more, and what
comes back must be the same. All that is random comes from the seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import tempfile
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from elanus.core.invariants import InvariantBroken
from elanus.sim.chance import Chance, Faults
from elanus.sim.disasters import Disasters
from elanus.sim.judge import Judge
from elanus.sim.loop import VirtualClock, VirtualLoop
from elanus.sim.rest import Rest
from elanus.sim.system import System
from elanus.sim.trace import Trace
from elanus.sim.workload import SHARDS, Client

CLIENTS = 4
PAUSE_S = 0.55
WORK_S = 45.0
_FIRST_DISASTER_S = 3.0
_CANCEL_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """``broken``: the invariant that did not hold, "" when all did. ``story``: what led to it."""

    seed: int
    broken: str
    message: str
    story: tuple[str, ...]
    digest: str
    operations: int
    virtual_s: float
    wall_s: float


def run_seed(seed: int, faults: Faults | None = None) -> Outcome:
    """Run one seed to its end."""
    began_s = time.perf_counter()
    collecting = gc.isenabled()
    gc.disable()  # nothing may be freed, and run its ``finally``, at a moment that memory decides
    try:
        with tempfile.TemporaryDirectory(prefix="elanus-sim-") as scratch, _quiet():
            run = _Run(seed, faults or Faults(), Path(scratch))
            with asyncio.Runner(loop_factory=lambda: run.loop) as runner:
                broken = runner.run(run.whole())
    finally:
        if collecting:
            gc.enable()
    message = "" if broken is None else f"{type(broken).__name__}: {broken}"
    name = broken.name if isinstance(broken, InvariantBroken) else "LIVE2" if broken else ""
    keys = broken.keys if isinstance(broken, InvariantBroken) else ()
    return Outcome(
        seed,
        name,
        message,
        tuple(run.trace.story(keys)) if broken else (),
        run.trace.digest(),
        run.operations,
        run.loop.time(),
        time.perf_counter() - began_s,
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The roles' logs say nothing: a run has its trace."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


class _Run:
    def __init__(self, seed: int, faults: Faults, scratch: Path) -> None:
        self.loop = VirtualLoop()
        self.trace = Trace(self.loop)
        self._chance = Chance(seed, faults)
        self._scratch = scratch
        self._clients: list[Client] = []
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def operations(self) -> int:
        return sum(client.operations for client in self._clients)

    async def whole(self) -> BaseException | None:
        """What was found, or None. Ends with everything cancelled."""
        self.loop.set_task_factory(self._new_task)  # type: ignore[arg-type] # typeshed lacks the options
        self.loop.set_exception_handler(lambda loop, context: None)
        system = System(self._chance, self.trace, VirtualClock(self.loop), self._scratch)
        course = asyncio.ensure_future(self._course(system))
        ends: list[asyncio.Future[None]] = [course, system.failure]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        ended = system.failure if system.failure.done() else course
        found = ended.exception() or self._lost_task()
        await self._cancel_all()
        return found

    async def _course(self, system: System) -> None:
        judge = Judge(system.truth)
        values = itertools.count(1)
        self._clients += [
            Client(f"client {n}", system, judge, self._chance.stream(f"client {n}"), lambda: next(values))
            for n in range(CLIENTS)
        ]
        first = self._clients[0]
        await system.start()
        for name in SHARDS:
            await first.set_up(name)
        count = self._chance.faults.disasters
        disasters = Disasters(system, self._chance.stream("disasters"), count, _FIRST_DISASTER_S, WORK_S)
        await asyncio.gather(disasters.run(), *(c.run(WORK_S, PAUSE_S) for c in self._clients))
        self._chance.quiet()
        self.trace.note("nothing goes wrong from here on")
        rest = Rest(system, judge, first)
        await rest.come()
        system.lose_power()
        await rest.come()

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **options)
        self._tasks.append(task)
        return task

    def _lost_task(self) -> BaseException | None:
        """An error that some task died of, and that nobody has asked for."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and getattr(task, "_log_traceback", False):
                error = task.exception()
                if error is not None:
                    return InvariantBroken("LIVE2", f"{task.get_coro()}: {type(error).__name__}: {error}")
        return None

    async def _cancel_all(self) -> None:
        """Killed roles too: what they would still like to do in their ``finally`` comes to nothing."""
        this = asyncio.current_task()
        for _ in range(_CANCEL_ROUNDS):
            left = [task for task in self._tasks if not task.done() and task is not this]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1.0)
