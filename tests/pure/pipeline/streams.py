"""A pchannel in memory, and the messages the flush tests put into it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from elanus.core.ids import ALL_PARTITIONS, CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.messages import DeleteMessage, InsertMessage, Message, TimeTick, UpsertMessage
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.log.codec import encode
from elanus.log.port import LogEntry, Position

PCHANNEL = "by-dev-rootcoord-dml_0"
MINE = f"{PCHANNEL}_7v0"
OTHER = f"{PCHANNEL}_8v0"
STEP = 10
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=2),
        FieldSchema(FieldID(102), "tags", DataType.ARRAY, element_type=DataType.INT16, max_capacity=3),
    ),
)


def rows(*keys: int) -> pa.RecordBatch:
    """One row per key, whose vector is (key, -key); its tags are key % 3, as often as that."""
    matrix = np.array([[key, -key] for key in keys], dtype=np.float32)
    item = pa.field("item", pa.float32(), nullable=False)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), type=pa.list_(item, 2))
    tags = pa.array([[key % 3] * (key % 3) for key in keys], SCHEMA.field("tags").arrow_type)
    return pa.record_batch([pa.array(keys, pa.int64()), vectors, tags], schema=SCHEMA.arrow_schema)


def insert(ts: int, segment: int, *keys: int, vchannel: str = MINE, row_id: int = 0) -> InsertMessage:
    return InsertMessage(
        Timestamp(ts), vchannel, CollectionID(7), PartitionID(1), SegmentID(segment), row_id, rows(*keys)
    )


def upsert(ts: int, segment: int, *keys: int) -> UpsertMessage:
    return UpsertMessage(
        Timestamp(ts), MINE, CollectionID(7), PartitionID(1), SegmentID(segment), 0, rows(*keys)
    )


def delete(
    ts: int, *keys: int, partition: PartitionID = ALL_PARTITIONS, vchannel: str = MINE
) -> DeleteMessage:
    return DeleteMessage(Timestamp(ts), vchannel, CollectionID(7), partition, pa.array(keys, pa.int64()))


def tick(ts: int, epoch: int = 1) -> TimeTick:
    return TimeTick(Timestamp(ts), epoch)


def stream(*messages: Message) -> list[LogEntry]:
    """The entries of a pchannel; message number i stands at position ``i * STEP``."""
    entries = []
    for number, message in enumerate(messages):
        entry = encode(message)
        payload = memoryview(b"".join(bytes(part) for part in entry.payload))
        here = Position(number * STEP)
        entries.append(LogEntry(here, Position(here + STEP), entry.header, payload, len(payload)))
    return entries
