"""One run: takes a scenario and returns what happened.

A run has three parts. First clients work while faults strike. Then the faults end and everything must come to
rest: reads, a flush, the handoff. Finally the power is lost once more, and the system must come back with the
same contents.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from elanus.core.invariants import InvariantBroken
from elanus.sim.auto_ids import AutoIdClient
from elanus.sim.chance import Chance
from elanus.sim.client_plans import CLONED, OF_IMPORTERS, PARTLY, WIDENED, is_undisturbed
from elanus.sim.clone_client import CloneClient
from elanus.sim.disasters import Disasters
from elanus.sim.import_client import ImportClient
from elanus.sim.judge import Judge
from elanus.sim.loop import VirtualLoop
from elanus.sim.lost_errors import Tasks
from elanus.sim.partly_client import PartlyClient
from elanus.sim.plan import AUTO_IDS, Reading, collections_of, draw, draw_pipelines, draw_reading
from elanus.sim.policies import draw_density
from elanus.sim.quiescence import Rest
from elanus.sim.scenario import FaultKind, Operation, Scenario
from elanus.sim.system import System
from elanus.sim.trace import Trace
from elanus.sim.widening_client import WideningClient
from elanus.sim.workload import Client

_MEMORY_DIR = Path("/dev/shm")
_CANCEL_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run. ``broken``: the invariant that failed, "" for none. ``story``: what led to it.

    ``counts``: how often each kind of event happened; ``faults``: which faults struck. ``cpu_s``: processor
    time.
    """

    seed: int
    broken: str
    message: str
    story: tuple[str, ...]
    digest: str
    counts: Mapping[str, int]
    faults: Mapping[str, int]
    virtual_s: float
    cpu_s: float


def run_seed(seed: int) -> Outcome:
    """Draw the scenario of a seed, and run it."""
    return run(draw(seed))


def run(scenario: Scenario, reading: Reading | None = None) -> Outcome:
    """Run a scenario to its end. Running the same scenario again gives the same run, bit for bit.

    ``reading``: None: that of the scenario's seed.
    """
    began_s = time.process_time()
    with _undisturbed(), tempfile.TemporaryDirectory(prefix="elanus-sim-", dir=_scratch_parent()) as scratch:
        course = _Run(scenario, Path(scratch), reading or draw_reading(scenario.seed))
        with asyncio.Runner(loop_factory=lambda: course.loop) as runner:
            broken = runner.run(course.whole())
    message = "" if broken is None else f"{type(broken).__name__}: {broken}"
    name = broken.name if isinstance(broken, InvariantBroken) else "LIVE2" if broken else ""
    keys = broken.keys if isinstance(broken, InvariantBroken) else ()
    return Outcome(
        scenario.seed,
        name,
        message,
        tuple(course.trace.story(keys)) if broken else (),
        course.trace.digest(),
        dict(course.trace.counts),
        dict(course.trace.faults),
        course.loop.time(),
        time.process_time() - began_s,
    )


def _scratch_parent() -> Path | None:
    """A memory-backed directory, if the machine has one: temporary files are small and many."""
    return _MEMORY_DIR if os.access(_MEMORY_DIR, os.W_OK) else None


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Silence the roles' logs and disable garbage collection.

    A run has its trace instead of logs. Garbage collection would run ``finally`` blocks at moments that
    depend on memory use.
    """
    before, collecting = structlog.get_config(), gc.isenabled()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    gc.disable()
    try:
        yield
    finally:
        structlog.configure(**before)
        if collecting:
            gc.enable()


class _Run:
    def __init__(self, scenario: Scenario, scratch: Path, reading: Reading) -> None:
        self._reading = reading
        self.loop = VirtualLoop()
        self.trace = Trace(self.loop.time)
        self._scenario = scenario
        self._chance = Chance(scenario, self.loop.time, self.trace.met)
        self._scratch = scratch
        self._tasks = Tasks()

    async def whole(self) -> BaseException | None:
        """Carry out the run. Returns the error that was found, or None. Cancels all tasks at the end."""
        self.loop.made = self._tasks.made
        self.loop.set_exception_handler(lambda loop, context: None)
        seed = self._scenario.seed
        system = System(
            self._chance,
            self.trace,
            self._scratch,
            draw_density(seed),
            draw_pipelines(seed),
            self._reading,
        )
        system.log.is_fencing = any(f.kind is FaultKind.REVOKE_LEASE for f in self._scenario.faults)
        replaced = any(f.kind is FaultKind.REPLACE_ROOT for f in self._scenario.faults)
        system.network.has_remote_oracle = replaced
        course = asyncio.ensure_future(self._course(system))
        ends: list[asyncio.Future[None]] = [course, system.failure]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        ended = system.failure if system.failure.done() else course
        found = ended.exception() or self._tasks.lost()
        await self._cancel_all()
        system.turns.close()
        return found

    async def _course(self, system: System) -> None:
        scenario = self._scenario
        judge = Judge(system.truth, system.imports, times_reads=is_undisturbed(scenario))
        names = collections_of(scenario)
        kinds = {n: _client_of(operations) for n, operations in _by_client(scenario).items()}
        clients = {n: kinds[n](n, system, judge, self._chance.stream(f"client {n}")) for n in sorted(kinds)}
        keeper = WideningClient(-1, system, judge, self._chance.stream("keeper"))
        await system.start()
        for name in names:
            await keeper.set_up(name)
        work = [
            client.run([o for o in scenario.operations if o.client == n], scenario.seed)
            for n, client in clients.items()
        ]
        await asyncio.gather(Disasters(system, scenario.faults).run(), *work)
        self._chance.quiet()
        system.network.heal()
        system.log.heal()
        self.trace.note("nothing goes wrong from here on")
        rest = Rest(system, judge, keeper, names)
        await rest.come()
        if scenario.power_cut:
            system.lose_power()
            await rest.come()

    async def _cancel_all(self) -> None:
        """Cancel all tasks, those of killed roles included: what their ``finally`` blocks do has no
        effect."""
        this = asyncio.current_task()
        for _ in range(_CANCEL_ROUNDS):
            left = [task for task in self._tasks.unfinished() if task is not this]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1.0)


def _by_client(scenario: Scenario) -> Mapping[int, list[Operation]]:
    operations: dict[int, list[Operation]] = {}
    for operation in scenario.operations:
        operations.setdefault(operation.client, []).append(operation)
    return operations


def _client_of(operations: Sequence[Operation]) -> type[Client]:
    if any(operation.collection == AUTO_IDS for operation in operations):
        return AutoIdClient
    if any(operation.collection == CLONED for operation in operations):
        return CloneClient
    if any(operation.collection == WIDENED for operation in operations):
        return WideningClient
    if any(operation.collection == PARTLY for operation in operations):
        return PartlyClient
    return ImportClient if any(operation.kind in OF_IMPORTERS for operation in operations) else Client
