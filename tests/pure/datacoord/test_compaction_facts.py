"""The facts for compaction plans are gathered in small steps, however many segments there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CID, DEFAULT, schema

from elanus.core.catalog import Checkpoint
from elanus.core.compaction import CompactionThresholds
from elanus.core.ids import SegmentID
from elanus.core.segments import BinlogFile, DeltaLog, SegmentInfo, SegmentManifest, SegmentState
from elanus.core.timestamps import Timestamp, compose
from elanus.datacoord.compaction_facts import FactGatherer
from elanus.datacoord.dead_rows import DeadRows
from elanus.datacoord.manifest_reader import Chosen, Contents
from elanus.datacoord.vchannel_table import Vchannel
from elanus.log.port import START
from elanus.storage.local import LocalStore

NAME = "v0"
SEGMENTS = 2000


class InMemory:
    """Segments of one vchannel and their manifests, all of which have been read before. Their rows are newer
    than the deletes."""

    def __init__(self, deltas: int) -> None:
        one = SegmentInfo(SegmentID(0), CID, DEFAULT, NAME, SegmentState.FLUSHED, 100, compose(1), compose(1))
        numbers = range(1, SEGMENTS + 1)
        self.infos = [replace(one, segment_id=SegmentID(n), rows=10, manifest=f"m{n}") for n in numbers]
        rows = BinlogFile("rows", 10, 10, compose(100), compose(100))
        manifests = {
            info.manifest: SegmentManifest(
                info.segment_id, CID, DEFAULT, NAME, (rows,), ("stats",), Timestamp(0)
            )
            for info in self.infos
        }
        self.deltas = tuple(
            DeltaLog(NAME, BinlogFile(f"d{n}", 1, 1, compose(50), compose(50))) for n in range(deltas)
        )
        self.contents = Contents(manifests)

    def segments_on(self, _vchannel: str) -> list[SegmentInfo]:
        return self.infos

    async def of_vchannel(self, _vchannel: Vchannel) -> Sequence[DeltaLog]:
        return self.deltas

    async def current(
        self, choose: Callable[[], Chosen], *, skip_damaged: bool = False
    ) -> tuple[Chosen, Contents]:
        return choose(), self.contents


@pytest.mark.parametrize("deltas", [0, 20])
async def test_others_run_while_many_segments_are_examined(deltas: int, tmp_path: Path) -> None:
    known = InMemory(deltas)
    store = LocalStore(tmp_path)
    thresholds = CompactionThresholds(0.2, 1000, 10)
    gatherer = FactGatherer(known, known, DeadRows(store, asyncio.to_thread), thresholds)  # type: ignore[arg-type]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    vchannel = Vchannel(NAME, CID, schema(), Checkpoint(compose(300), START, compose(300), 0))
    found = await gatherer.gather(vchannel, compose(200), Timestamp(0), frozenset(), force=False)
    other.cancel()
    assert len(found.candidates) == len(found.segments) == SEGMENTS
    assert found.superseded == {f"d{n}" for n in range(deltas)}
    assert turns >= 2 * SEGMENTS // 200 + deltas * SEGMENTS // 5000
