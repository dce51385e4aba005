"""`elanus doctor` over a whole simulated system: a healthy hour has no findings, planted faults are named."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from elanus.api.ledger import JobLedgerApi
from elanus.api.querynode import NodeSearch
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.expr import compile_filter
from elanus.index import VectorIndex, build, resolve_index
from elanus.querynode.block import Block
from elanus.querynode.recall import Measured, RecallSampler
from elanus.querynode.search import search
from elanus.querynode.snapshot import Snapshot, SnapshotSegment
from elanus.querynode.vectors import VectorColumn
from elanus.server.doctor import Finding, diagnose
from elanus.server.report import Report
from elanus.server.status import PipelineStatus
from elanus.sim.chance import Chance
from elanus.sim.judge import Judge
from elanus.sim.loop import VirtualLoop
from elanus.sim.net import client
from elanus.sim.plan import COLLECTIONS, PROXIES, draw
from elanus.sim.run import _undisturbed
from elanus.sim.system import System
from elanus.sim.trace import Trace
from elanus.sim.workload import Client

pytestmark = [pytest.mark.sim, pytest.mark.slow]

NAME = min(COLLECTIONS)
HEALTHY_PIPELINE = PipelineStatus("Healthy", 1, 0)
DAY_MS = 24 * 3_600_000
ROWS, DIM, SAMPLES = 3000, 32, 40
VECTOR = FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=DIM)
POOR = {"index_type": "IVF_PQ", "m": "8", "nbits": "4", "nlist": "16", "metric_type": "L2"}


class Patient:
    """A simulated system without faults, with one loaded collection, and the report about it."""

    def __init__(self, loop: VirtualLoop, scratch: Path) -> None:
        trace = Trace(loop.time)
        chance = Chance(replace(draw(1), faults=(), operations=()), loop.time, trace.met)
        chance.quiet()
        self.loop = loop
        self.system = System(chance, trace, scratch)
        judge = Judge(self.system.truth, self.system.imports, times_reads=False)
        self.user = Client(0, self.system, judge, chance.stream("user"))
        self.recalls: list[Measured] = []

    async def start(self) -> None:
        system, roles = self.system, self.system.roles_of_clients
        await system.start()
        await self.user.set_up(NAME)
        self.report = Report(
            SimpleNamespace(
                roles=SimpleNamespace(
                    names=lambda: list(system.handles), state=self._state, why_not=lambda _: ""
                ),
                clock=system.clocks["rootcoord"],
                log=SimpleNamespace(size_bytes=lambda _: 0),
                root=roles.root,
                data=roles.data,
                query=roles.query,
                ledger=client(system.outside, system.handles["datacoord"], JobLedgerApi),
                recall=SimpleNamespace(target=0.9, measured=lambda: self.recalls),
                elsewhere=list,
            ),  # type: ignore[arg-type]
            None,
            None,
        )

    def _state(self, name: str) -> str:
        return "Initializing" if name in self.system.waiting_for() else "Healthy"

    async def findings(self) -> list[Finding]:
        status = await self.report._status()
        assert [c.name for c in status.collections if c.loaded_percent == 100] == [NAME]
        assert status.channels
        assert status.garbage.state != "unknown"
        return diagnose(replace(status, uptime_s=self.loop.time(), pipeline=HEALTHY_PIPELINE))

    async def collection_id(self) -> CollectionID:
        cached = await self.system.ask(PROXIES[0], "look", lambda verbs: verbs.collection(NAME))
        return cached.collection_id

    async def collect_garbage(self) -> None:
        data = self.system.roles_of_clients.data
        before = (await data.gc_status()).rounds
        await data.collect_garbage(True)
        await asyncio.sleep(20)
        assert (await data.gc_status()).rounds > before


def measured_of_bad_index(collection_id: CollectionID) -> list[Measured]:
    """Search an index of very short codes, and let the sampler measure each search."""
    vectors = np.random.default_rng(1).standard_normal((ROWS, DIM), dtype=np.float32)
    schema = CollectionSchema("c", (FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True), VECTOR))
    spec = resolve_index(POOR, DataType.FLOAT_VECTOR, DIM)
    index = build(spec, vectors, 1)
    assert isinstance(index, VectorIndex)
    ids = {"id": pa.array(np.arange(ROWS))}
    column = VectorColumn(VECTOR, index, lambda rows: vectors[rows], lambda: None)
    rows = Block(schema, ids, {VECTOR.field_id: column}, np.full(ROWS, 1))
    segment = SnapshotSegment(SegmentID(1), PartitionID(1), True, (rows,), Timestamp(0))
    snapshot = Snapshot(collection_id, schema, {VECTOR.field_id: spec}, 1, Timestamp(5), None, (segment,))
    sampler = RecallSampler(0.01, 0.9)
    sampler._thread = threading.current_thread()  # none is started: this one measures
    for query in vectors[:SAMPLES] + np.float32(0.1):
        request = NodeSearch(
            collection_id,
            (),
            VECTOR.field_id,
            query[None],
            10,
            "L2",
            {"nprobe": 16},
            compile_filter("", schema),
            (),
            Timestamp(5),
        )
        sampler.take_next()
        sampler.offer(snapshot, request, search(snapshot, request, 1))
        sampler.measure_one()
    return sampler.measured()


def simulated(test: Callable[[Patient], Awaitable[None]]) -> Callable[[Path], None]:
    async def play(loop: VirtualLoop, scratch: Path) -> None:
        patient = Patient(loop, scratch)
        await patient.start()
        await test(patient)

    def run(tmp_path: Path) -> None:
        loop = VirtualLoop()
        with _undisturbed(), asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(play(loop, tmp_path))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def healthy(patient: Patient, seconds: float) -> None:
    while patient.loop.time() < seconds:
        for kind in ("insert", "upsert", "delete", "search", "query", "flush"):
            assert await patient.user.operate(kind, NAME), kind
        for _ in range(2):
            await asyncio.sleep(100)
            assert await patient.findings() == []


@simulated
async def test_a_healthy_time_has_no_findings(patient: Patient) -> None:
    await healthy(patient, 150)


@pytest.mark.long
@simulated
async def test_a_healthy_hour_has_no_findings(patient: Patient) -> None:
    await healthy(patient, 3600)


@simulated
async def test_a_bad_index_a_held_back_tick_and_a_leaking_pin_are_named(patient: Patient) -> None:
    system, data = patient.system, patient.system.roles_of_clients.data
    assert await patient.user.operate("insert", NAME)
    collection_id = await patient.collection_id()
    pin = await data.hold_backup(collection_id, NO_TIMESTAMP, 7 * DAY_MS)
    await patient.collect_garbage()
    assert await patient.findings() == [], "a pin is no fault by itself"

    system.step_clocks(DAY_MS + 3_600_000)
    await asyncio.sleep(30)
    await patient.collect_garbage()
    patient.recalls = measured_of_bad_index(collection_id)
    for proxy in PROXIES:
        system.hold_appends(proxy)
    writing = asyncio.create_task(patient.user.operate("insert", NAME))
    await asyncio.sleep(8)
    found = {one.rule: one for one in await patient.findings()}
    assert found.keys() == {"recall-below-target", "tick-held-back", "files-held"}
    assert "IVF_PQ" in found["recall-below-target"].evidence
    assert "the index compares codes" in found["recall-below-target"].evidence
    assert "by proxy" in found["tick-held-back"].finding
    assert "25 h" in found["files-held"].evidence

    for proxy in PROXIES:
        system.log.let_go(proxy)
    await writing
    await data.release_snapshot(pin.snapshot_id)
    patient.recalls = []
    await asyncio.sleep(5)
    await patient.collect_garbage()
    assert await patient.findings() == [], "and nothing is left when the faults are gone"
