"""A change feed loses nothing while compaction folds deletes in, files are collected and datacoord restarts.

Datacoord is real, its files are, and so are the merges. Retention is short: soon only the feed's name and its
leases keep anything.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from compaction_bench import SCHEMA, orders, planned
from data_bench import COMMIT_DEADLINE_S, COMPACTION
from fakes import CID, DEFAULT, settle
from insert_log_files import write_insert_log
from test_collecting import Store

from elanus.api.connector import SNAPSHOTS, SnapshotLease
from elanus.api.datacoord import CompactionCommit, RangeCommit, SegmentOutput
from elanus.core.attempts import stamped
from elanus.core.catalog import Checkpoint
from elanus.core.gc import GcPolicy
from elanus.core.ids import ALL_PARTITIONS
from elanus.core.path_digests import PathDigests
from elanus.core.segments import BinlogFile
from elanus.core.timestamps import MAX_TIMESTAMP, Timestamp, physical_ms
from elanus.datacoord import planner
from elanus.datacoord.pins import Pins
from elanus.pipeline.merge import compact
from elanus.spark.change_rows import change_reads, read_changes
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.paths import delta_log_path, insert_log_path, stats_log_path
from elanus.storage.port import ObjectMissing
from elanus.storage.snapshots import read_snapshot
from elanus.storage.stats_log import KeyStatsBuilder, write_stats_log

RETENTION_S, LEASE_MS = 60, 40_000_000
Row = tuple[int, int]
"""A key, and the row's timestamp."""


class Feed:
    """A collection that is written to, and a copy that is made from its changes.

    ``done``: how often what could lose changes has happened.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self.bench = Store(directory / "store")
        plan = replace(COMPACTION.plan, retention_s=RETENTION_S)
        self.bench.compaction = replace(COMPACTION, plan=plan)
        self.bench.gc_policy = GcPolicy(1, 1, COMMIT_DEADLINE_S, 10_000)
        self.scratch = directory
        self.chance = random.Random(seed)
        self.rows: list[Row] = []
        self.deletes: list[Row] = []
        self.copy: list[Row] = []
        self.read_until = Timestamp(0)
        self.done: Counter[str] = Counter()

    async def write(self) -> None:
        """Insert, upsert or delete some keys."""
        keys = self.chance.sample(range(8), self.chance.randint(1, 4))
        kind = self.chance.choice(("insert", "upsert", "delete"))
        ts = self.bench.root.stamp()
        attempt = await self.bench.coord.open_attempts(self.bench.epoch, 1)
        delta = None if kind == "insert" else self._deletes(attempt, keys, ts)
        outputs = [] if kind == "delete" else [await self._rows(attempt, keys, ts)]
        await self._commit(attempt, outputs, delta)

    async def _rows(self, attempt: int, keys: Sequence[int], ts: Timestamp) -> SegmentOutput:
        bench, name = self.bench, stamped(attempt, "x")
        segment_id = await bench.write(len(keys))
        await bench.coord.flush(CID)
        await bench.report({segment_id: len(keys)})
        vectors = SCHEMA.field("v0").vector.to_column(np.zeros((len(keys), 2), np.float32))
        columns = [pa.array(keys, pa.int64()), pa.array([0.0] * len(keys)), vectors]
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow_schema)
        key = SegmentKey(CID, DEFAULT, segment_id, bench.vchannel)
        logged = with_system_columns(batch, 0, ts, insert_log_schema(SCHEMA, key))
        path = insert_log_path(CID, DEFAULT, segment_id, name)
        file = write_insert_log(bench.store, path, SCHEMA, key, [logged], self.scratch)
        stats, keys_path = KeyStatsBuilder(), stats_log_path(CID, DEFAULT, segment_id, name)
        stats.add(batch.column("pk"))
        write_stats_log(bench.store, keys_path, stats.finish())
        self.rows += [(key, ts) for key in keys]
        return SegmentOutput(segment_id, (file,), (keys_path,))

    def _deletes(self, attempt: int, keys: Sequence[int], ts: Timestamp) -> BinlogFile:
        bench, name = self.bench, stamped(attempt, "x")
        of = delta_log_schema(SCHEMA.primary_field, CID, bench.vchannel)
        path = delta_log_path(CID, bench.vchannel, name)
        with delta_log_writer(bench.store, path, of, self.scratch) as writer:
            writer.write(delete_rows(pa.array(keys, pa.int64()), ts, ALL_PARTITIONS, of))
            self.deletes += [(key, ts) for key in keys]
            return writer.finish()

    async def _commit(self, attempt: int, outputs: Sequence[SegmentOutput], delta: BinlogFile | None) -> None:
        bench, now = self.bench, self.bench.root.stamp()
        checkpoint = Checkpoint(now, physical_ms(now), now, 1)
        flushed = tuple(output.segment_id for output in outputs)
        commit = RangeCommit(
            epoch=bench.epoch,
            vchannel=bench.vchannel,
            expected=await bench.recovery(),
            checkpoint=checkpoint,
            segments=tuple(outputs),
            delta=delta,
            flushed=flushed,
            attempt=attempt,
        )
        await bench.coord.commit_range(commit)

    async def compact(self) -> None:
        """Fold in what the feed does not keep, once retention has passed, and then forget its delta logs."""
        await self.bench.after(RETENTION_S + 1)
        for _ in range(2):
            before = len(orders(self.bench))
            await planned(self.bench)
            for order in orders(self.bench)[before:]:
                name = stamped(order.attempt, "x")
                output = compact(order, self.bench.store, self.scratch, name)
                made = CompactionCommit(self.bench.epoch, order.attempt, order.plan_id, (output,))
                await self.bench.coord.commit_compaction(made)
                self.done["compacted"] += 1

    async def collect(self) -> None:
        before = self.bench.left()
        await self.bench.after(COMMIT_DEADLINE_S + 1)
        await self.bench.collect()
        self.done["files collected"] += len(before - self.bench.left())

    async def restart(self) -> None:
        await self.bench.restart()
        await self.bench.register()
        self.done["restarts"] += 1

    async def disturb(self) -> None:
        """Do something that could lose changes, or write more."""
        await self.chance.choice((self.write, self.compact, self.compact, self.collect, self.restart))()

    async def take(self) -> SnapshotLease:
        """Take the changes since what the copy has, with a data node that does as it is ordered."""
        bench = self.bench
        taking = asyncio.ensure_future(bench.coord.take_changes(CID, self.read_until, "copy", LEASE_MS))
        await settle()
        await bench.report()
        while not taking.done():
            await asyncio.sleep(0.1)
            if bench.node.calls.of("sync"):
                bench.node.calls.asked.clear()
                await self._commit(await bench.coord.open_attempts(bench.epoch, 1), (), None)
        return await taking

    def replay(self, lease: SnapshotLease) -> None:
        """Bring the copy up to the snapshot."""
        snapshot = read_snapshot(self.bench.store, lease.path, SNAPSHOTS)
        deletes = []
        for read in change_reads(snapshot, lease.store_url, self.read_until, ("pk",)):
            for batch in read_changes(read, self.bench.store):
                for change in batch.to_pylist():
                    made = (change["pk"], change["_commit_ts"])
                    (self.copy if change["_change_type"] == "insert" else deletes).append(made)
        self.copy = survivors(self.copy, deletes)
        self.read_until = lease.read_ts
        self.done["changes"] += 1

    def alive(self) -> list[Row]:
        """Return the rows that the copy should have."""
        until = self.read_until
        return survivors([r for r in self.rows if r[1] <= until], [d for d in self.deletes if d[1] <= until])


def survivors(rows: Sequence[Row], deletes: Sequence[Row]) -> list[Row]:
    return sorted(row for row in rows if not any(d[0] == row[0] and d[1] > row[1] for d in deletes))


async def follow(directory: Path, seed: int) -> Counter[str]:
    """Keep a copy up to date while its changes are in danger. Raises `AssertionError` if it differs."""
    feed = Feed(directory, seed)
    await feed.bench.watched()
    try:
        await feed.write()
        feed.read_until = feed.bench.root.stamp()
        feed.copy = feed.alive()
        for _ in range(8):
            lease = await feed.take()
            for _ in range(4):
                await feed.disturb()
            feed.replay(lease)
            assert feed.copy == feed.alive()
            await feed.bench.coord.release_snapshot(lease.snapshot_id)
    finally:
        await feed.bench.coord.stop()
    return feed.done


@pytest.mark.parametrize("seed", range(2))
async def test_a_copy_made_from_changes_stays_the_same_as_the_collection(tmp_path: Path, seed: int) -> None:
    done = await follow(tmp_path, seed)
    assert min(done[what] for what in ("compacted", "files collected", "restarts")) > 0, done


async def test_it_differs_if_compaction_folds_in_what_the_feed_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "feed_start", lambda *_: MAX_TIMESTAMP)
    with pytest.raises(AssertionError):
        await follow(tmp_path, 1)


async def test_it_cannot_be_read_if_collection_takes_what_a_lease_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(self: Pins) -> PathDigests:
        return PathDigests()

    monkeypatch.setattr(Pins, "pinned_files", nothing)
    with pytest.raises(ObjectMissing):
        await follow(tmp_path, 1)
