"""Faults that strike at a set moment: roles crash, stall or are cut off, power is lost, clocks jump."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from elanus.sim.scenario import AT_ONCE, Fault, FaultKind
from elanus.sim.system import System


class Disasters:
    def __init__(self, system: System, faults: Iterable[Fault]) -> None:
        self._system = system
        self._faults = [fault for fault in faults if fault.kind in AT_ONCE]
        self._restarts: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for fault in self._faults:
            await asyncio.sleep(fault.at_s - loop.time())
            self._system.trace.met(fault)
            self._strike(fault)

    def _strike(self, fault: Fault) -> None:
        system, target = self._system, fault.target
        match fault.kind:
            case FaultKind.CRASH | FaultKind.CRASH_PIPELINE:
                system.crash(target)
            case FaultKind.CRASH_SOON:
                system.waylay(target, int(fault.amount))
            case FaultKind.CRASH_ALL:
                system.crash_all()
            case FaultKind.STALL_PIPELINE:
                system.stall(target, fault.amount)
            case FaultKind.PAUSE_PIPELINE:
                system.pause(target, fault.amount)
            case FaultKind.RESTART:
                self._restarts.append(asyncio.ensure_future(system.restart(target)))
            case FaultKind.LOSE_POWER:
                system.lose_power()
            case FaultKind.STEP_CLOCK:
                system.step_clocks(int(fault.amount))
            case FaultKind.SKEW_CLOCK:
                system.clocks[target].step_ms(int(fault.amount))
            case FaultKind.PARTITION:
                system.network.part(frozenset(target.split("|")), fault.amount)
            case FaultKind.REVOKE_LEASE:
                system.revoke(target)
            case FaultKind.REPLACE_ROOT:
                system.replace_root(fault.target.split("|"), fault.amount)
            case FaultKind.CHANNELS_LOST:
                system.channels.lose()
            case FaultKind.PCHANNEL_FULL:
                system.log.fill(target, fault.amount)
            case FaultKind.NODE_LAGS:
                system.log.delay(target, fault.amount)
            case _:
                raise AssertionError(f"{fault.kind} does not happen by itself")
