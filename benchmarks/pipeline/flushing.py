"""From the log to Parquet: the flush job's task compared with a plain pyarrow loop.

Both read the same rows from one file in batches of a proxy's messages, and write them with the same schema,
encodings and compression into one durable Parquet file. The plain side reads an Arrow stream and writes it
batch by batch. The task also finds its messages among the log's frames, verifies their checksums, puts them
in order of time behind ticks, gives rows their ids and timestamps, and writes key statistics.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.pipeline.sides import Sides, in_turns
from elanus.core.catalog import Checkpoint
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.messages import InsertMessage, TimeTick
from elanus.core.packs import ORIGIN
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.log.codec import encode
from elanus.log.files import FileLog
from elanus.log.port import Position
from elanus.pipeline.flush import flush_task
from elanus.pipeline.ranges import FlushPlan
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.parquet import rows_per_group, writer_options

PCHANNEL = "by-dev-rootcoord-dml_0"
MESSAGE_BYTES = 3 * 1024 * 1024
KEY = SegmentKey(CollectionID(1), PartitionID(2), SegmentID(3), f"{PCHANNEL}_1v0")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of an INT64 key and a random vector, as messages; message i carries timestamp i + 1."""

    schema: CollectionSchema
    messages: tuple[InsertMessage, ...]

    @property
    def last_ts(self) -> Timestamp:
        return self.messages[-1].ts


def measure(directory: Path, rows: int, dim: int, turns: int) -> Sides:
    """Take so many turns on files below the directory."""
    made = make_rows(rows, dim)
    plan = write_log(directory, made)
    stream = directory / "rows.arrows"
    _write_stream(stream, made)
    return in_turns(
        rows,
        dim,
        turns,
        lambda number: _plain(stream, directory / f"plain-{number}.parquet", made.schema),
        lambda number: flush_task((replace(plan, attempt=f"{number}"),)),
    )


def make_rows(rows: int, dim: int) -> Rows:
    schema = CollectionSchema(
        "rows",
        (
            FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
            FieldSchema(FieldID(101), "vector", DataType.FLOAT_VECTOR, dim=dim),
        ),
    )
    random = np.random.default_rng(1)
    step = MESSAGE_BYTES // (4 * dim)
    vector_type = schema.arrow_schema.field("vector").type
    messages = []
    for number, start in enumerate(range(0, rows, step)):
        keys = np.arange(start, min(start + step, rows))
        vectors = random.standard_normal(len(keys) * dim, dtype=np.float32)
        columns = [pa.array(keys), pa.FixedSizeListArray.from_arrays(pa.array(vectors), type=vector_type)]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)
        ts = Timestamp(number + 1)
        messages.append(
            InsertMessage(ts, KEY.vchannel, KEY.collection_id, KEY.partition_id, KEY.segment_id, start, batch)
        )
    return Rows(schema, tuple(messages))


def write_log(directory: Path, made: Rows) -> FlushPlan:
    """Write the messages into a log of their own, with a tick behind each; returns how to flush them all."""
    return write_log_ranges(directory, made, 1)[0]


def write_log_ranges(directory: Path, made: Rows, ranges: int) -> list[FlushPlan]:
    """Write the messages so many times, at later timestamps each time; every time is one range to flush."""
    return asyncio.run(_append(directory, made, ranges))


async def _append(directory: Path, made: Rows, ranges: int) -> list[FlushPlan]:
    log = FileLog(directory / "log")
    plans: list[FlushPlan] = []
    start = ORIGIN
    try:
        for number in range(ranges):
            until = start.ts
            for message in made.messages:
                until = Timestamp(number * made.last_ts + message.ts)
                entry = encode(replace(message, ts=until))
                await log.append(PCHANNEL, [entry, encode(TimeTick(until, epoch=1))])
            stop = log.end(PCHANNEL)
            plans.append(_plan(directory, made.schema, start, until, stop))
            start = Checkpoint(until, stop, until, epoch=1)
    finally:
        await log.close()
    return plans


def _plan(
    directory: Path, schema: CollectionSchema, start: Checkpoint, until: Timestamp, stop: Position
) -> FlushPlan:
    return FlushPlan(
        attempt="0",
        collection_id=KEY.collection_id,
        schema=schema,
        vchannel=KEY.vchannel,
        pchannel=PCHANNEL,
        start=start,
        until=until,
        stop=stop,
        log_url=(directory / "log").as_uri(),
        store_url=(directory / "files").as_uri(),
        scratch_dir=str(directory / "scratch"),
    )


def _write_stream(file: Path, made: Rows) -> None:
    schema = insert_log_schema(made.schema, KEY)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for message in made.messages:
            writer.write_batch(with_system_columns(message.rows, message.row_id_start, message.ts, schema))


def _plain(source: Path, target: Path, schema: CollectionSchema) -> None:
    with pa.OSFile(str(source)) as file, pa.ipc.open_stream(file) as batches:
        group_rows = rows_per_group(schema.row_bytes_estimate)
        with pq.ParquetWriter(target, batches.schema, **writer_options(batches.schema)) as writer:
            for batch in batches:
                writer.write_batch(batch, row_group_size=group_rows)
    with target.open("rb") as written:
        os.fsync(written.fileno())
    target.unlink()
