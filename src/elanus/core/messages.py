"""The messages in the log: writes, ticks, and the DDL that must be ordered relative to them.

Every message belongs to one vchannel, except ticks and epoch marks, which belong to the whole
pchannel (``vchannel`` is empty). A message is stamped once, by the oracle; consumers may act on all
messages up to T only after they have read a tick at T.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from elanus.core.ids import ALL_PARTITIONS, CollectionID, PartitionID, SegmentID
from elanus.core.timestamps import Timestamp

if TYPE_CHECKING:
    import pyarrow as pa


class MsgKind(IntEnum):
    """The reference's message numbers; UPSERT and EPOCH are specific to Elanus."""

    CREATE_COLLECTION = 100
    DROP_COLLECTION = 101
    CREATE_PARTITION = 200
    DROP_PARTITION = 201
    INSERT = 400
    DELETE = 401
    UPSERT = 410
    TIME_TICK = 1200
    EPOCH = 1210


WRITES = frozenset({MsgKind.INSERT, MsgKind.UPSERT, MsgKind.DELETE})
"""The kinds with a payload: rows or keys, which count once a tick has passed them."""


@dataclass(frozen=True, slots=True)
class InsertMessage:
    """Rows of one (vchannel, segment). Row i has row id ``row_id_start + i`` and timestamp ``ts``."""

    ts: Timestamp
    vchannel: str
    collection_id: CollectionID
    partition_id: PartitionID
    segment_id: SegmentID
    row_id_start: int
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class UpsertMessage:
    """Rows as in an insert, each of which also deletes every older row of one primary key.

    One record, so that no crash can separate the delete from the insert. The delete concerns rows with a
    timestamp strictly below ``ts``, in the partition ``deletes_in``: the one that the rows go to, or
    `ALL_PARTITIONS` where a partition key decides, so that a row whose partition changes is there once. Row i
    deletes the key ``replaced[i]``, or its own key if ``replaced`` is ``None``: an upsert into a collection
    with automatic keys gives its rows new keys.
    """

    ts: Timestamp
    vchannel: str
    collection_id: CollectionID
    partition_id: PartitionID
    segment_id: SegmentID
    row_id_start: int
    rows: pa.RecordBatch
    replaced: pa.Array | None = None
    deletes_in: PartitionID = ALL_PARTITIONS

    def deleted_keys(self, primary_key: str) -> pa.Array:
        """Return the keys that the record deletes. ``primary_key``: the name of that field."""
        return self.rows.column(primary_key) if self.replaced is None else self.replaced


@dataclass(frozen=True, slots=True)
class DeleteMessage:
    """Deletes the rows of these keys with a timestamp strictly below ``ts``.

    ``partition_id`` is `ALL_PARTITIONS` unless the client named one.
    """

    ts: Timestamp
    vchannel: str
    collection_id: CollectionID
    partition_id: PartitionID
    primary_keys: pa.Array


@dataclass(frozen=True, slots=True)
class DdlMessage:
    """CREATE/DROP COLLECTION/PARTITION, ordered relative to the vchannel's writes.

    ``partition_id`` is `ALL_PARTITIONS` for the two collection kinds.
    """

    kind: MsgKind
    ts: Timestamp
    vchannel: str
    collection_id: CollectionID
    partition_id: PartitionID


@dataclass(frozen=True, slots=True)
class TimeTick:
    """No message with a timestamp ≤ ``ts`` will follow in this pchannel, under this epoch."""

    ts: Timestamp
    epoch: int


@dataclass(frozen=True, slots=True)
class EpochMark:
    """The start of a new root coordinator's epoch: later ticks of smaller epochs are ignored."""

    ts: Timestamp
    epoch: int


WriteMessage = InsertMessage | UpsertMessage | DeleteMessage
Message = InsertMessage | UpsertMessage | DeleteMessage | DdlMessage | TimeTick | EpochMark
