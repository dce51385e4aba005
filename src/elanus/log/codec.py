"""Conversion between messages and log entries.

The entry's header carries everything that a reader's decisions depend on. The payload carries the rows of a
write as one Arrow IPC stream (schema, one record batch), so an entry can be read without any other
information. The payload of a delete is a batch of one column, the primary keys. That of an upsert whose rows
have new keys has the replaced keys as a further column; the metadata of its schema name the partition whose
older rows it deletes, unless these are in all partitions. Ticks, epoch marks and DDL have no payload.

Column data of many bytes is not copied when encoding: a payload is the list of buffers that Arrow would have
written, and the log writes them in place. To copy few bytes takes less time than to handle a buffer of each
column. Column data is not copied when decoding either: the decoded batch points into the
memory the log read, and keeps it alive.
"""

from __future__ import annotations

import pyarrow as pa

from elanus.core.ids import ALL_PARTITIONS, PartitionID
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
from elanus.log.port import CorruptLog, EntryHeader, LogEntry, NewEntry

KEY_COLUMN = "pk"
REPLACED_COLUMN = "$replaced"
"""The last column of an upsert that replaces other keys than its own. No field can have this name."""

_DELETES_IN = b"deletes_in"
_COPIED_BYTES_MAX = 256 * 1024
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
"""The last bytes of an Arrow IPC stream."""
_DDL = frozenset(
    {MsgKind.CREATE_COLLECTION, MsgKind.DROP_COLLECTION, MsgKind.CREATE_PARTITION, MsgKind.DROP_PARTITION}
)


def encode(message: Message) -> NewEntry:
    """Return the log entry of a message.

    The payload refers to the message's column buffers: their owner must not change them until the append
    has returned.
    """
    match message:
        case InsertMessage() | UpsertMessage():
            kind = MsgKind.INSERT if isinstance(message, InsertMessage) else MsgKind.UPSERT
            header = EntryHeader(
                kind,
                message.ts,
                message.vchannel,
                message.collection_id,
                message.partition_id,
                message.segment_id,
                rows=message.rows.num_rows,
                row_id_start=message.row_id_start,
            )
            rows = _upserted(message) if isinstance(message, UpsertMessage) else message.rows
            return NewEntry(header, _ipc_parts(rows))
        case DeleteMessage():
            header = EntryHeader(
                MsgKind.DELETE,
                message.ts,
                message.vchannel,
                message.collection_id,
                message.partition_id,
                rows=len(message.primary_keys),
            )
            keys = pa.RecordBatch.from_arrays([message.primary_keys], names=[KEY_COLUMN])
            return NewEntry(header, _ipc_parts(keys))
        case DdlMessage():
            return NewEntry(
                EntryHeader(
                    message.kind, message.ts, message.vchannel, message.collection_id, message.partition_id
                )
            )
        case TimeTick():
            return NewEntry(EntryHeader(MsgKind.TIME_TICK, message.ts, epoch=message.epoch))
        case EpochMark():
            return NewEntry(EntryHeader(MsgKind.EPOCH, message.ts, epoch=message.epoch))


def decode(entry: LogEntry) -> Message:
    """Return the message of an entry.

    Raises `ValueError` when the entry has rows and was read without its payload, and `CorruptLog` when
    the payload is not what `encode` writes.
    """
    header = entry.header
    if header.kind is MsgKind.TIME_TICK:
        return TimeTick(header.ts, header.epoch)
    if header.kind is MsgKind.EPOCH:
        return EpochMark(header.ts, header.epoch)
    if header.kind in _DDL:
        return DdlMessage(header.kind, header.ts, header.vchannel, header.collection_id, header.partition_id)
    batch = _ipc_batch(entry)
    if header.kind is MsgKind.DELETE:
        return DeleteMessage(
            header.ts, header.vchannel, header.collection_id, header.partition_id, batch.column(0)
        )
    start = (
        header.ts,
        header.vchannel,
        header.collection_id,
        header.partition_id,
        header.segment_id,
        header.row_id_start,
    )
    if header.kind is MsgKind.INSERT:
        return InsertMessage(*start, batch)
    deletes_in = ALL_PARTITIONS
    if _DELETES_IN in (batch.schema.metadata or {}):
        deletes_in = PartitionID(int(batch.schema.metadata[_DELETES_IN]))
        batch = batch.replace_schema_metadata(None)
    if batch.schema.names[-1:] != [REPLACED_COLUMN]:
        return UpsertMessage(*start, batch, deletes_in=deletes_in)
    last = batch.num_columns - 1
    return UpsertMessage(*start, batch.remove_column(last), batch.column(last), deletes_in)


def _upserted(message: UpsertMessage) -> pa.RecordBatch:
    rows = message.rows
    if message.replaced is not None:
        rows = rows.append_column(REPLACED_COLUMN, message.replaced)
    if message.deletes_in == ALL_PARTITIONS:
        return rows
    return rows.replace_schema_metadata({_DELETES_IN: str(message.deletes_in)})


class _PartsSink:
    """A file for Arrow to write to that keeps the buffers instead of copying them."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []

    def write(self, part: bytes | pa.Buffer) -> int:
        size_bytes = len(part)
        if size_bytes:
            self.parts.append(part if isinstance(part, bytes) else memoryview(part))
        return size_bytes

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Do nothing: no data is buffered."""

    def close(self) -> None:
        self.closed = True


def _ipc_parts(batch: pa.RecordBatch) -> list[bytes | memoryview]:
    """Return the bytes of an Arrow IPC stream with this batch. No column is dictionary-encoded."""
    if batch.nbytes <= _COPIED_BYTES_MAX:
        return [memoryview(batch.schema.serialize()), memoryview(batch.serialize()), _END_OF_STREAM]
    sink = _PartsSink()
    with pa.PythonFile(sink, mode="w") as file, pa.ipc.new_stream(file, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.parts


def _ipc_batch(entry: LogEntry) -> pa.RecordBatch:
    if entry.payload is None:
        raise ValueError(f"the entry at {entry.position} was read without its payload")
    try:
        batch = pa.ipc.open_stream(pa.py_buffer(entry.payload)).read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise CorruptLog(
            f"the payload at position {entry.position} is not a record batch: {error}"
        ) from error
    if batch.num_rows != entry.header.rows:
        raise CorruptLog(
            f"the payload at position {entry.position} has {batch.num_rows} rows, "
            f"its header says {entry.header.rows}"
        )
    return batch
