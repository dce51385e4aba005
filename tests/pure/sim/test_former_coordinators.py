"""A coordinator that has been replaced changes nothing any more, in runs as in servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from elanus.core.errors import LeaseLost
from elanus.meta.election import FencedMeta
from elanus.meta.port import Put
from elanus.sim.chance import Chance
from elanus.sim.loop import VirtualLoop
from elanus.sim.plan import CALM, COORDINATORS, draw
from elanus.sim.system import System
from elanus.sim.trace import Trace

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("name", COORDINATORS)
@pytest.mark.parametrize("ends", ["restart", "crash"])
def test_what_a_former_coordinator_still_writes_is_refused(name: str, ends: str, tmp_path: Path) -> None:
    loop = VirtualLoop()

    async def course() -> None:
        trace = Trace(loop.time)
        system = System(Chance(draw(1, CALM), loop.time, trace.met), trace, tmp_path)
        await system.start()
        await system.all_up()
        former = FencedMeta(system.meta.handle(system.outside), system._sessions[name])
        await former.txn([Put("written in time", b"")])
        if ends == "restart":
            await system.restart(name)
        else:
            system.crash(name)
        await asyncio.sleep(5)
        await system.all_up()
        with pytest.raises(LeaseLost, match="no longer the active one"):
            await former.txn([Put("written too late", b"")])
        assert await system.meta.store.get("written too late") is None
        assert not system.failure.done()
        system.turns.close()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(course())
