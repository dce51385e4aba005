"""What goes wrong at large: processes die, stall, are restarted; the power goes; the clock jumps."""

from __future__ import annotations

import asyncio
import random

from elanus.sim.system import ROLES, System

_STEPS_MS = (-86_400_000, -5_000, -200, 200, 2_000, 86_400_000)
WEIGHTS = {
    "crash": 6,
    "restart": 4,
    "crash_all": 2,
    "lose_power": 1.5,
    "crash_pipeline": 2,
    "stall_pipeline": 3,
    "step_clock": 2,
}


class Disasters:
    """``count`` of them, spread over the time from ``first_s`` to ``last_s``."""

    def __init__(
        self, system: System, random_: random.Random, count: int, first_s: float, last_s: float
    ) -> None:
        self._system = system
        self._random = random_
        self._times_s = sorted(random_.uniform(first_s, last_s) for _ in range(count))
        self._restarts: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for at_s in self._times_s:
            await asyncio.sleep(at_s - loop.time())
            (kind,) = self._random.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))
            self._strike(kind)

    def _strike(self, kind: str) -> None:
        system = self._system
        match kind:
            case "crash":
                system.crash(self._random.choice(ROLES))
            case "restart":
                restart = system.restart(self._random.choice(ROLES))
                self._restarts.append(asyncio.ensure_future(restart))
            case "crash_all":
                system.crash_all()
            case "lose_power":
                system.lose_power()
            case "crash_pipeline":
                system.crash_pipeline()
            case "stall_pipeline":
                system.stall_pipeline(self._random.uniform(2.0, 12.0))
            case "step_clock":
                step_ms = self._random.choice(_STEPS_MS)
                system.trace.note(f"CLOCK steps by {step_ms} ms")
                system.clock.step_ms(step_ms)
