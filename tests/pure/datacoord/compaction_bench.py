"""Compactions for this package's tests: segments with real files, plans and orders made from them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from data_bench import COMPACTION, Bench
from fakes import CID, DEFAULT, binlog, collection, schema
from insert_log_files import write_insert_log

from elanus.api.datacoord import CompactionCommit, SegmentOutput
from elanus.api.datanode import CompactionOrder
from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.ids import ALL_PARTITIONS, PartitionID, SegmentID
from elanus.core.segments import BinlogFile
from elanus.core.timestamps import Timestamp
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.stats_log import KeyStatsBuilder, write_stats_log

SCHEMA = schema()


def _batch(keys: range) -> pa.RecordBatch:
    vectors = SCHEMA.field("v0").vector.to_column(np.zeros((len(keys), 2), np.float32))
    columns = [pa.array(keys, pa.int64()), pa.array(np.zeros(len(keys))), vectors]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow_schema)


class Files:
    """Writes what a job would write, so that datacoord can look into it."""

    def __init__(self, bench: Bench, directory: Path) -> None:
        self.bench = bench
        self.directory = directory
        self.count = 0

    def rows(self, segment_id: SegmentID, keys: range, partition: PartitionID = DEFAULT) -> SegmentOutput:
        return self.rows_at(segment_id, [(self.bench.root.stamp(), keys)], partition)

    def rows_at(
        self, segment_id: SegmentID, writes: list[tuple[Timestamp, range]], partition: PartitionID = DEFAULT
    ) -> SegmentOutput:
        self.count += 1
        key = SegmentKey(CID, partition, segment_id, self.bench.vchannel)
        name = f"{segment_id}/{self.count}"
        logged = [
            with_system_columns(_batch(keys), 0, ts, insert_log_schema(SCHEMA, key)) for ts, keys in writes
        ]
        file = write_insert_log(self.bench.store, f"insert_log/{name}", SCHEMA, key, logged, self.directory)
        stats = KeyStatsBuilder()
        for batch in logged:
            stats.add(batch.column("pk"))
        write_stats_log(self.bench.store, f"stats_log/{name}", stats.finish())
        return SegmentOutput(segment_id, (file,), (f"stats_log/{name}",))

    def deletes(self, keys: range, partition: PartitionID = ALL_PARTITIONS) -> BinlogFile:
        return self.deletes_at([(self.bench.root.stamp(), keys)], partition)

    def deletes_at(
        self, made: list[tuple[Timestamp, range]], partition: PartitionID = ALL_PARTITIONS
    ) -> BinlogFile:
        self.count += 1
        of = delta_log_schema(SCHEMA.primary_field, CID, self.bench.vchannel)
        path = f"delta_log/{self.count}"
        with delta_log_writer(self.bench.store, path, of, self.directory) as writer:
            for ts, keys in made:
                writer.write(delete_rows(pa.array(keys, pa.int64()), ts, partition, of))
            return writer.finish()

    async def flushed(self, keys: range, partition: PartitionID = DEFAULT) -> SegmentID:
        segment_id = await self.bench.write(len(keys), partition)
        await self.bench.coord.flush(CID)
        await self.bench.report({segment_id: len(keys)})
        await self.bench.commit_files([self.rows(segment_id, keys, partition)], [segment_id])
        return segment_id


async def start(tmp_path: Path, partitions: int = 2, **policy: object) -> tuple[Bench, Files]:
    """``partitions``: from `DEFAULT` on, their ids follow each other."""
    made = tuple(PartitionID(DEFAULT + number) for number in range(partitions))
    bench = Bench(tmp_path / "store", collection(partitions=made))
    bench.compaction = replace(COMPACTION, **policy)
    await bench.watched()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return bench, Files(bench, scratch)


async def planned(bench: Bench) -> list[CompactionPlan]:
    """The answer to a request for compaction; the orders are given."""
    plans = await bench.coord.compaction_plans(await bench.coord.compact(CID))
    assert {plan.plan_id for plan in plans} <= {p.plan_id for p in await bench.coord.compactions_of(CID)}
    await asyncio.sleep(0.1)
    return list(plans)


def orders(bench: Bench) -> list[CompactionOrder]:
    return bench.node.calls.of("compact")


def answer(bench: Bench, order: CompactionOrder, rows: int = 10) -> CompactionCommit:
    files = (binlog(f"insert_log/{order.segment_id}", rows),) if rows else ()
    stats = (f"stats_log/{order.segment_id}",) if rows else ()
    return CompactionCommit(
        bench.epoch, order.attempt, order.plan_id, (SegmentOutput(order.segment_id, files, stats),)
    )


async def state_of(bench: Bench, plan: CompactionPlan) -> CompactionState:
    (found,) = [p for p in await bench.coord.compaction_plans(plan.trigger_id) if p.plan_id == plan.plan_id]
    return found.state


async def two_small(tmp_path: Path, **policy: object) -> tuple[Bench, Files, CompactionPlan, CompactionOrder]:
    bench, files = await start(tmp_path, **policy)
    await files.flushed(range(10))
    await files.flushed(range(10, 20))
    (plan,) = await planned(bench)
    (order,) = orders(bench)
    return bench, files, plan, order
