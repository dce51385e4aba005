"""Writing imported rows as segments. Plain Arrow: no Spark here.

Rows wait in memory by shard. When a task holds as much as it may, and at its end, each shard's rows are
sorted by primary key and become one segment: an insert log and a stats log. Where rows go by a partition key,
a shard's rows become one segment for each of their partitions. Memory: the rows held, and one shard's once
more while they are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.api.imports import ImportedSegment
from elanus.core.channels import shard_of_keys
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.partition_keys import rows_of_partitions
from elanus.pipeline.import_plan import ImportPlan
from elanus.storage.binlog import SegmentKey, insert_log_schema, insert_log_writer, with_system_columns
from elanus.storage.parquet import rows_per_group
from elanus.storage.paths import insert_log_path, stats_log_path
from elanus.storage.port import ObjectStore
from elanus.storage.stats_log import KeyStatsBuilder, write_stats_log


class SegmentsWriter:
    """Collects rows by shard and writes them as segments whose files are all called ``name``."""

    def __init__(self, plan: ImportPlan, store: ObjectStore, scratch: Path, name: str) -> None:
        self._plan = plan
        self._store = store
        self._scratch = scratch
        self._name = name
        self._held: list[list[pa.RecordBatch]] = [[] for _ in plan.vchannels]
        self._held_rows = 0
        self._held_bytes = 0
        self._next_row_id = plan.first_id
        self._next_segment_id = plan.first_segment_id
        self.written: list[ImportedSegment] = []

    @property
    def rows(self) -> int:
        """The number of rows in the segments that have been written."""
        return sum(segment.insert_log.rows for segment in self.written)

    def add(self, rows: pa.RecordBatch) -> None:
        while rows.num_rows:
            room = self._plan.rows_max - self._held_rows
            self._hold(rows.slice(0, room))
            rows = rows.slice(room)
            if self._held_rows >= self._plan.rows_max or self._held_bytes >= self._plan.bytes_max:
                self.write_out()

    def write_out(self) -> None:
        """Everything held becomes segments."""
        for shard, batches in enumerate(self._held):
            if batches:
                self._held[shard] = []
                table = pa.Table.from_batches(batches).combine_chunks()
                batches.clear()
                for partition_id, rows in self._by_partition(table):
                    self.written.append(self._segment(self._plan.vchannels[shard], partition_id, rows))
        self._held_rows = self._held_bytes = 0

    def _by_partition(self, table: pa.Table) -> Iterator[tuple[PartitionID, pa.Table]]:
        key = self._plan.schema.partition_key
        if key is None:
            yield self._plan.partition_id, table
            return
        keys = table.column(key.name).combine_chunks()
        for partition_id, numbers in rows_of_partitions(keys, self._plan.key_partitions):
            yield partition_id, table.take(pa.array(numbers)).combine_chunks()

    def _hold(self, rows: pa.RecordBatch) -> None:
        shards = len(self._held)
        if shards == 1:
            self._held[0].append(rows)
        else:
            shard_of = shard_of_keys(rows.column(self._plan.schema.primary_field.name), shards)
            ordered = rows.take(pa.array(np.argsort(shard_of, kind="stable")))
            counts = np.bincount(shard_of, minlength=shards).tolist()
            start = 0
            for shard, count in enumerate(counts):
                if count:
                    self._held[shard].append(ordered.slice(start, count))
                start += count
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes

    def _segment(self, vchannel: str, partition_id: PartitionID, table: pa.Table) -> ImportedSegment:
        plan = self._plan
        segment_id = SegmentID(self._next_segment_id)
        self._next_segment_id += 1
        key = SegmentKey(plan.collection_id, partition_id, segment_id, vchannel)
        owner = (key.collection_id, key.partition_id, segment_id, self._name)
        file_schema = insert_log_schema(plan.schema, key)
        primary = plan.schema.primary_field.name
        order = pc.sort_indices(table, sort_keys=[(primary, "ascending")])
        stats = KeyStatsBuilder()
        group_rows = rows_per_group(plan.schema.row_bytes_estimate)
        path = insert_log_path(*owner)
        with insert_log_writer(self._store, path, plan.schema, key, self._scratch) as writer:
            for start in range(0, len(order), group_rows):
                taken = table.take(order.slice(start, group_rows)).combine_chunks()
                (rows,) = taken.to_batches()
                writer.write(with_system_columns(rows, self._next_row_id, plan.stamp, file_schema))
                stats.add(rows.column(primary))
                self._next_row_id += rows.num_rows
            file = writer.finish()
        stats_path = stats_log_path(*owner)
        write_stats_log(self._store, stats_path, stats.finish())
        return ImportedSegment(segment_id, vchannel, file, stats_path, partition_id)
