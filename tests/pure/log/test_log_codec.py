"""Messages through the codec: equal on the other side, and no column copied on the way."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from elanus.core.ids import ALL_PARTITIONS, CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.messages import (
    DdlMessage,
    DeleteMessage,
    EpochMark,
    InsertMessage,
    Message,
    MsgKind,
    TimeTick,
    UpsertMessage,
)
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.log import codec
from elanus.log.codec import decode, encode
from elanus.log.port import CorruptLog, LogEntry, NewEntry, Position

DIM = 8
SCHEMA = CollectionSchema(
    "things",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "flag", DataType.BOOL),
        FieldSchema(FieldID(102), "name", DataType.VARCHAR, max_length=20, nullable=True),
        FieldSchema(FieldID(103), "extra", DataType.JSON),
        FieldSchema(FieldID(104), "vector", DataType.FLOAT_VECTOR, dim=DIM),
        FieldSchema(FieldID(105), "bits", DataType.BINARY_VECTOR, dim=DIM),
    ),
)


def rows(count: int) -> pa.RecordBatch:
    vectors = np.arange(count * DIM, dtype=np.float32)
    vector_type = SCHEMA.field("vector").arrow_type
    return pa.record_batch(
        [
            pa.array(range(count), pa.int64()),
            pa.array([i % 2 == 0 for i in range(count)]),
            pa.array([None if i % 3 == 0 else f"näme {i}" for i in range(count)], pa.string()),
            pa.array([f'{{"a":{i}}}' for i in range(count)]),
            pa.FixedSizeListArray.from_arrays(pa.array(vectors), type=vector_type),
            pa.array([bytes([i % 256]) for i in range(count)], pa.binary(1)),
        ],
        schema=SCHEMA.arrow_schema,
    )


def stored(new: NewEntry, payload: bytes | None = None) -> LogEntry:
    data = b"".join(new.payload) if payload is None else payload
    return LogEntry(Position(8), Position(16), new.header, memoryview(data), len(data))


IDS = (CollectionID(7), PartitionID(8))

MESSAGES: list[Message] = [
    InsertMessage(Timestamp(5), "dml_0_7v0", *IDS, SegmentID(9), 1000, rows(10)),
    InsertMessage(Timestamp(5), "dml_0_7v0", *IDS, SegmentID(9), 1000, rows(1)),
    InsertMessage(Timestamp(5), "dml_0_7v0", *IDS, SegmentID(9), 1000, rows(20).slice(5, 9)),
    UpsertMessage(Timestamp(6), "dml_0_7v1", *IDS, SegmentID(9), 2000, rows(3)),
    DeleteMessage(
        Timestamp(7), "dml_0_7v0", CollectionID(7), ALL_PARTITIONS, pa.array([1, 2, 3], pa.int64())
    ),
    DeleteMessage(Timestamp(7), "dml_0_7v0", CollectionID(7), PartitionID(4), pa.array(["a", "ö"])),
    DdlMessage(MsgKind.CREATE_COLLECTION, Timestamp(1), "dml_0_7v0", CollectionID(7), ALL_PARTITIONS),
    DdlMessage(MsgKind.DROP_PARTITION, Timestamp(8), "dml_0_7v0", CollectionID(7), PartitionID(8)),
    TimeTick(Timestamp(9), epoch=3),
    EpochMark(Timestamp(10), epoch=4),
    UpsertMessage(
        Timestamp(6), "dml_0_7v1", *IDS, SegmentID(9), 2000, rows(3), pa.array([4, 5, 6], pa.int64())
    ),
    UpsertMessage(Timestamp(6), "dml_0_7v1", *IDS, SegmentID(9), 2000, rows(3), deletes_in=PartitionID(8)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_equal(message: Message) -> None:
    new = encode(message)
    assert new.header.ts == message.ts
    assert decode(stored(new)) == message


def test_the_rows_of_an_upsert_do_not_keep_what_the_log_says_about_them() -> None:
    """They are joined with others, and written to files."""
    message = decode(stored(encode(MESSAGES[-1])))
    assert isinstance(message, UpsertMessage)
    assert message.rows.schema.metadata is None


def test_an_upsert_that_names_no_partition_concerns_all_of_them() -> None:
    """As those of releases that did not name it, whatever else their schemas say."""
    older = rows(3).replace_schema_metadata({"pandas": "{}"})
    message = decode(stored(encode(UpsertMessage(Timestamp(6), "v", *IDS, SegmentID(9), 0, older))))
    assert isinstance(message, UpsertMessage)
    assert message.deletes_in == ALL_PARTITIONS


def test_the_header_has_what_readers_of_headers_need() -> None:
    insert, delete, tick, mark = (encode(MESSAGES[i]).header for i in (0, 4, 8, 9))
    assert (insert.kind, insert.rows, insert.row_id_start, insert.segment_id) == (MsgKind.INSERT, 10, 1000, 9)
    assert (insert.vchannel, insert.collection_id, insert.partition_id) == ("dml_0_7v0", 7, 8)
    assert (delete.kind, delete.rows) == (MsgKind.DELETE, 3)
    assert (tick.kind, tick.epoch, tick.vchannel) == (MsgKind.TIME_TICK, 3, "")
    assert (mark.kind, mark.epoch) == (MsgKind.EPOCH, 4)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_few_bytes_are_copied_and_are_the_same(message: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = encode(message).payload
    assert len(copied) in (0, 3)
    monkeypatch.setattr(codec, "_COPIED_BYTES_MAX", -1)
    in_place = encode(message).payload
    assert b"".join(copied) == b"".join(in_place)


def test_vectors_are_not_copied_in_either_direction() -> None:
    batch = rows(10_000)
    new = encode(InsertMessage(Timestamp(5), "v", *IDS, SegmentID(9), 0, batch))
    column = batch.column("vector").flatten().buffers()[1]
    assert column.address in {pa.py_buffer(part).address for part in new.payload}
    entry = stored(new)
    message = decode(entry)
    assert isinstance(message, InsertMessage)
    read = message.rows.column("vector").flatten().buffers()[1]
    memory = pa.py_buffer(entry.payload)
    assert memory.address <= read.address < memory.address + memory.size


def test_a_slice_takes_only_its_own_bytes() -> None:
    batch = rows(10_000)
    whole = sum(len(part) for part in encode(MESSAGES[0]).payload)
    part = encode(InsertMessage(Timestamp(5), "v", *IDS, SegmentID(9), 0, batch.slice(100, 10)))
    assert sum(len(p) for p in part.payload) <= whole + 200


def test_rows_without_their_payload_are_the_callers_mistake() -> None:
    new = encode(MESSAGES[0])
    with pytest.raises(ValueError, match="without its payload"):
        decode(LogEntry(Position(8), Position(16), new.header, None, 10))
    assert decode(LogEntry(Position(8), Position(16), encode(MESSAGES[8]).header, None, 0)) == MESSAGES[8]


@pytest.mark.parametrize("payload", [b"", b"no arrow", b"\xff" * 64])
def test_a_payload_that_is_no_batch_is_corrupt(payload: bytes) -> None:
    with pytest.raises(CorruptLog, match="position 8"):
        decode(stored(encode(MESSAGES[0]), payload))


def test_a_payload_of_other_rows_is_corrupt() -> None:
    other = b"".join(encode(MESSAGES[1]).payload)
    with pytest.raises(CorruptLog, match="1 rows"):
        decode(stored(encode(MESSAGES[0]), other))
