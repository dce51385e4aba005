"""The whole system under a small memory limit, on virtual time, with the limits that a proxy applies.

Rows are spread evenly over many segments, and none is ever full, old or idle. While the pipeline is up,
writes go on: segments are sealed for memory. While its jobs hang, they are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

import pytest

from elanus.core.errors import MemoryFull
from elanus.core.ids import CollectionID
from elanus.core.names import DEFAULT_DATABASE
from elanus.core.segments import SegmentState
from elanus.proxy.verbs.pressure import GrowingData, PressureLimits, admitted_after_s
from elanus.sim.chance import Chance
from elanus.sim.client_collections import rows_of
from elanus.sim.client_verbs import ClientVerbs
from elanus.sim.judge import Judge
from elanus.sim.loop import VirtualLoop
from elanus.sim.policies import USUAL
from elanus.sim.scenario import Fault, FaultKind, Scenario
from elanus.sim.system import System
from elanus.sim.trace import Trace
from elanus.sim.workload import Client

pytestmark = pytest.mark.sim

SOFT, HARD = 24_000, 96_000
PARTITIONS = tuple(f"p{n}" for n in range(8))
ROWS = 20
WORK_S = 25.0
"""Less than the 30 s at which a segment of a run is sealed for its age."""
_DENSITY = replace(USUAL, segment_size_max_bytes=1 << 20)


class World:
    def __init__(self, system: System, client: Client, chance: Chance) -> None:
        self.system = system
        self.chance = chance
        self.client = client
        self.acknowledged = 0
        self.refusals: list[str] = []
        self.limits = PressureLimits(SOFT, HARD, 0, 1)

    async def write_evenly(self, collection: str, partitions: tuple[str, ...]) -> None:
        """Write for `WORK_S`, a client for each partition, as fast as back-pressure lets them."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + WORK_S

        async def client(partition: str) -> None:
            while loop.time() < ends_s:
                await self._write(collection, partition)
                await asyncio.sleep(0.2)

        await asyncio.gather(*map(client, partitions))

    async def _write(self, collection: str, partition: str) -> None:
        first = self.acknowledged
        keys = list(range(first, first + ROWS))

        async def write(verbs: ClientVerbs) -> None:
            cached = await verbs.collection(collection)
            rows = rows_of(keys, keys, cached.view.schema)
            growing = await self._growing()
            delay_s = admitted_after_s(growing, cached.collection_id, rows.nbytes, self.limits)
            await asyncio.sleep(delay_s)
            await verbs.write(collection, partition, lambda schema: rows, replaces=False)

        try:
            await self.system.ask("proxy-1", "write", write)
            self.acknowledged += ROWS
        except MemoryFull as error:
            self.refusals.append(error.message)

    async def _growing(self) -> GrowingData:
        (node,) = self.system.query_nodes()
        peers = self.system.roles_of_clients
        collections = await peers.query.growing_collections()
        return GrowingData(node.growing_bytes, collections, await peers.data.flushing_bytes())

    async def flushed(self) -> int:
        segments = await self.system.roles_of_clients.data.segments(CollectionID(0))
        return sum(s.state is SegmentState.FLUSHED for s in segments)


def run(work: Callable[[World], Coroutine[None, None, None]], scratch: Path, *, seals: bool = True) -> World:
    """``seals``: whether segments are sealed for memory."""
    loop = VirtualLoop()

    async def whole() -> World:
        trace = Trace(loop.time)
        chance = Chance(Scenario(0, 0.0, (), ()), loop.time, trace.met)
        density = replace(_DENSITY, growing_soft_bytes=SOFT if seals else 0)
        system = System(chance, trace, scratch, density)
        judge = Judge(system.truth, system.imports)
        world = World(system, Client(-1, system, judge, chance.stream("keeper")), chance)
        await system.start()
        await system.all_up()
        await work(world)
        return world

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(whole())


async def partitions(world: World) -> None:
    await world.client.set_up("alpha")
    root = world.system.roles_of_clients.root
    for partition in PARTITIONS:
        await root.create_partition(DEFAULT_DATABASE, "alpha", partition)
    await world.write_evenly("alpha", PARTITIONS)


def test_with_the_pipeline_up_writes_go_on_however_many_segments_grow(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        await partitions(world)
        assert await world.flushed() >= 8

    world = run(work, tmp_path)
    assert world.refusals == []
    assert world.acknowledged * 40 > 2 * HARD, "more than memory holds"


def test_without_sealing_for_memory_the_same_writes_are_refused(tmp_path: Path) -> None:
    world = run(partitions, tmp_path, seals=False)
    assert world.refusals


def test_with_a_pipeline_that_hangs_writes_are_refused_and_the_refusal_says_what_is_waited_for(
    tmp_path: Path,
) -> None:
    async def work(world: World) -> None:
        for _ in range(100):
            world.chance.arm(Fault(0.0, FaultKind.JOB_SLOW, "", 1000.0))
        await partitions(world)
        assert await world.flushed() == 0

    world = run(work, tmp_path)
    assert "memory quota exceeded" in world.refusals[-1]
    assert "bytes are being flushed: retry when they are" in world.refusals[-1]
