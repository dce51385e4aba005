"""Deletes: prepared once per pack, applied to every segment, and kept for segments that are loaded later.

A delete removes the rows of a primary key whose timestamp is strictly below its own, in one partition or in
all. An upsert does the same for its keys. A segment that is loaded later, from a checkpoint in the past, must
receive every delete since then: `DeleteBuffer` keeps them until no segment can be loaded from so far back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.ids import ALL_PARTITIONS, PartitionID
from elanus.core.messages import DeleteMessage, UpsertMessage
from elanus.core.schema import TIMESTAMP_FIELD
from elanus.core.timestamps import Timestamp
from elanus.querynode.keys import SortedKeys
from elanus.storage.delta_log import PARTITION_COLUMN, PRIMARY_KEY_COLUMN


@dataclass(frozen=True, slots=True)
class DeleteBatch:
    """Deletes in one partition, or in all. ``ts`` is aligned with the keys."""

    keys: SortedKeys
    ts: npt.NDArray[np.int64]
    partition_id: PartitionID

    def concerns(self, partition_id: PartitionID) -> bool:
        return self.partition_id in (ALL_PARTITIONS, partition_id)

    @property
    def memory_bytes(self) -> int:
        return int(self.keys.keys.nbytes) + self.keys.memory_bytes + self.ts.nbytes


def deletes_of_messages(
    messages: Iterable[DeleteMessage | UpsertMessage], primary_key: str
) -> tuple[DeleteBatch, ...]:
    """Return the deletes in messages, one batch per partition to which they are limited.

    ``primary_key`` names the field. The keys are copied: no batch keeps a message alive.
    """
    keys: dict[PartitionID, list[pa.Array]] = {}
    stamps: dict[PartitionID, list[npt.NDArray[np.int64]]] = {}
    for message in messages:
        if isinstance(message, UpsertMessage):
            partition_id, deleted = ALL_PARTITIONS, message.deleted_keys(primary_key)
        else:
            partition_id, deleted = message.partition_id, message.primary_keys
        keys.setdefault(partition_id, []).append(deleted)
        stamps.setdefault(partition_id, []).append(np.full(len(deleted), message.ts, dtype=np.int64))
    return tuple(
        DeleteBatch(SortedKeys(pa.concat_arrays(arrays)), np.concatenate(stamps[partition_id]), partition_id)
        for partition_id, arrays in keys.items()
    )


def deletes_of_delta_logs(tables: Sequence[pa.Table], after: Timestamp) -> tuple[DeleteBatch, ...]:
    """Return the deletes in delta logs that are later than ``after``.

    There is one batch per partition to which they are limited.
    """
    if not tables:
        return ()
    table = pa.concat_tables(tables)
    ts = table.column(TIMESTAMP_FIELD).to_numpy()
    partitions = table.column(PARTITION_COLUMN).to_numpy()
    keys = table.column(PRIMARY_KEY_COLUMN).combine_chunks()
    batches = []
    for partition_id in np.unique(partitions[ts > after]).tolist():
        rows = np.flatnonzero((partitions == partition_id) & (ts > after))
        batches.append(
            DeleteBatch(SortedKeys(keys.take(pa.array(rows))), ts[rows], PartitionID(partition_id))
        )
    return tuple(batches)


class DeleteBuffer:
    """All deletes of a vchannel since ``floor``, by the tick of their pack. For one thread."""

    def __init__(self, floor: Timestamp) -> None:
        self._floor = floor
        self._tick = floor
        self._packs: list[tuple[Timestamp, tuple[DeleteBatch, ...]]] = []
        self.memory_bytes = 0

    @property
    def floor(self) -> Timestamp:
        """The buffer has every delete later than this, up to the tick of the last pack."""
        return self._floor

    def keep(self, tick: Timestamp, deletes: tuple[DeleteBatch, ...]) -> None:
        """Keep the deletes of the pack that ended with ``tick``.

        A pack that was kept before, or is entirely below the floor, is ignored.
        """
        if tick <= max(self._tick, self._floor):
            return
        self._tick = tick
        if deletes:
            self._packs.append((tick, deletes))
            self.memory_bytes += _size(deletes)

    def since(self, ts: Timestamp) -> list[DeleteBatch]:
        """Return the deletes later than ``ts``, maybe with some older ones.

        ``ts`` must not be below the floor.
        """
        assert ts >= self._floor, f"deletes since {ts} were forgotten up to {self._floor}"
        return [batch for tick, deletes in self._packs if tick > ts for batch in deletes]

    def forget(self, before: Timestamp) -> None:
        """Drop the packs that hold no delete later than ``before``, which becomes the floor."""
        if before <= self._floor:
            return
        self._floor = before
        kept = [(tick, deletes) for tick, deletes in self._packs if tick > before]
        self.memory_bytes = sum(_size(deletes) for _, deletes in kept)
        self._packs = kept


def _size(deletes: tuple[DeleteBatch, ...]) -> int:
    return sum(batch.memory_bytes for batch in deletes)
