"""Deletes: sorted once, applied to every segment that they concern, and kept for segments loaded later.

A delete removes the rows of a primary key whose timestamp is strictly below its own, in one partition or in
all. An upsert does the same for its keys. A segment that is loaded later, from a checkpoint in the past, must
receive every delete since then: `DeleteBuffer` keeps them until no segment can be loaded from so far back.

Applying a delete that a segment has already, or that is older than all its rows, changes nothing. So code
that keeps deletes may always return more of them than were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.ids import ALL_PARTITIONS, PartitionID
from elanus.core.messages import DeleteMessage, UpsertMessage
from elanus.core.schema import TIMESTAMP_FIELD
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.querynode.keys import SortedKeys, in_code_order
from elanus.storage.delta_log import PARTITION_COLUMN, PRIMARY_KEY_COLUMN

_MERGED_KEYS_MAX = 1 << 16
"""Packs are merged up to this many keys: sorting them takes the loop a few milliseconds."""


@dataclass(frozen=True, slots=True)
class WriteMoments:
    """The deletes with timestamp ``commits[i]`` are those of a write, and reads see them from ``moments[i]``.

    ``commits`` ascend, and are not empty.
    """

    commits: npt.NDArray[np.int64]
    moments: npt.NDArray[np.int64]

    @classmethod
    def of(cls, moments: Mapping[Timestamp, Timestamp]) -> WriteMoments | None:
        """Return the moments by commit as arrays; None if there are none."""
        if not moments:
            return None
        commits = sorted(moments)
        return cls(np.array(commits, dtype=np.int64), np.array([moments[c] for c in commits], dtype=np.int64))

    def seen_from(self, ts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return from which timestamp reads see deletes with the timestamps ``ts``."""
        places = np.minimum(np.searchsorted(self.commits, ts), len(self.commits) - 1)
        return np.where(self.commits[places] == ts, self.moments[places], ts)


@dataclass(frozen=True, slots=True)
class DeleteBatch:
    """Deletes in one partition, or in all.

    ``keys`` are in the order of their codes, so a range of codes is a slice; ``ts`` is aligned with them.
    ``moment``: if set, reads as of an earlier timestamp do not see the deletes, though they concern the rows
    that are older than ``ts``. ``moments``: the same for those of the deletes that are of writes.
    """

    keys: SortedKeys
    ts: npt.NDArray[np.int64]
    partition_id: PartitionID
    moment: Timestamp = NO_TIMESTAMP
    moments: WriteMoments | None = None

    @classmethod
    def of(cls, keys: pa.Array, ts: npt.NDArray[np.int64], partition_id: PartitionID) -> DeleteBatch:
        """Sort deletes; ``ts`` is aligned with the keys."""
        ordered, places = in_code_order(keys)
        return cls(ordered, ts if places is None else ts[places], partition_id)

    @property
    def is_seen_later(self) -> bool:
        """Whether reads may see deletes only from a moment that is later than their timestamp."""
        return self.moment != NO_TIMESTAMP or self.moments is not None

    def seen_from(self, ts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return from which timestamp reads see deletes of this batch that have the timestamps ``ts``."""
        if self.moment != NO_TIMESTAMP:
            return np.full(len(ts), self.moment, dtype=np.int64)
        return ts if self.moments is None else self.moments.seen_from(ts)

    def concerns(self, partition_id: PartitionID) -> bool:
        return self.partition_id in (ALL_PARTITIONS, partition_id)

    @property
    def memory_bytes(self) -> int:
        return int(self.keys.keys.nbytes) + self.keys.memory_bytes + self.ts.nbytes


def merged(batches: Sequence[DeleteBatch]) -> DeleteBatch:
    """Return the deletes of several batches of one partition as one."""
    if len(batches) == 1:
        return batches[0]
    keys = pa.concat_arrays([batch.keys.keys for batch in batches])
    return DeleteBatch.of(keys, np.concatenate([b.ts for b in batches]), batches[0].partition_id)


def count_deleted(messages: Iterable[DeleteMessage | UpsertMessage]) -> int:
    """Return how many keys the messages delete."""
    return sum(m.rows.num_rows if isinstance(m, UpsertMessage) else len(m.primary_keys) for m in messages)


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
            partition_id, deleted = message.deletes_in, message.deleted_keys(primary_key)
        else:
            partition_id, deleted = message.partition_id, message.primary_keys
        keys.setdefault(partition_id, []).append(deleted)
        stamps.setdefault(partition_id, []).append(np.full(len(deleted), message.ts, dtype=np.int64))
    return tuple(
        DeleteBatch.of(pa.concat_arrays(arrays), np.concatenate(stamps[partition_id]), partition_id)
        for partition_id, arrays in keys.items()
    )


def deletes_of_delta_logs(tables: Sequence[pa.Table]) -> Mapping[PartitionID, DeleteBatch]:
    """Return the deletes in delta logs, by the partition to which they are limited."""
    if not any(table.num_rows for table in tables):
        return {}
    table = pa.concat_tables(tables)
    ts = table.column(TIMESTAMP_FIELD).to_numpy()
    partitions = table.column(PARTITION_COLUMN).to_numpy()
    keys = table.column(PRIMARY_KEY_COLUMN).combine_chunks()
    first = partitions[0]
    if (partitions == first).all():  # as usual; a selection would copy every column
        return {PartitionID(int(first)): DeleteBatch.of(keys, ts, PartitionID(int(first)))}
    order = np.argsort(partitions, kind="stable")
    found, starts = np.unique(partitions[order], return_index=True)
    return {
        PartitionID(partition_id): DeleteBatch.of(
            keys.take(pa.array(rows)), ts[rows], PartitionID(partition_id)
        )
        for partition_id, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True)
    }


@dataclass(frozen=True, slots=True)
class _Run:
    """Deletes of consecutive packs. ``tick``: of the last one."""

    tick: Timestamp
    batch: DeleteBatch


class DeleteBuffer:
    """All deletes of a vchannel since ``floor``. For one thread.

    Packs are merged in the manner of a log-structured merge tree (O'Neil et al., 1996), so a segment that
    is loaded looks its keys up in few runs, however many packs there were.
    """

    def __init__(self, floor: Timestamp) -> None:
        self._floor = floor
        self._tick = floor
        self._runs: dict[PartitionID, list[_Run]] = {}
        self.memory_bytes = 0

    @property
    def floor(self) -> Timestamp:
        """The buffer has every delete later than this, up to the tick of the last pack."""
        return self._floor

    def keep(self, tick: Timestamp, deletes: Sequence[DeleteBatch]) -> None:
        """Keep the deletes of the pack that ended with ``tick``.

        A pack that was kept before, or is entirely below the floor, is ignored.
        """
        if tick <= max(self._tick, self._floor):
            return
        self._tick = tick
        for batch in deletes:
            runs = self._runs.setdefault(batch.partition_id, [])
            runs.append(_Run(tick, batch))
            self.memory_bytes += batch.memory_bytes
            self._merge_last(runs)

    def since(self, ts: Timestamp) -> list[DeleteBatch]:
        """Return the deletes later than ``ts``, maybe with some older ones.

        ``ts`` must not be below the floor.
        """
        assert ts >= self._floor, f"deletes since {ts} were forgotten up to {self._floor}"
        return [run.batch for runs in self._runs.values() for run in runs if run.tick > ts]

    def forget(self, before: Timestamp) -> None:
        """Drop the runs that hold no delete later than ``before``, which becomes the floor."""
        if before <= self._floor:
            return
        self._floor = before
        for partition_id, runs in tuple(self._runs.items()):
            gone = [run for run in runs if run.tick <= before]
            self.memory_bytes -= sum(run.batch.memory_bytes for run in gone)
            if len(gone) == len(runs):
                del self._runs[partition_id]
            else:
                del runs[: len(gone)]

    def _merge_last(self, runs: list[_Run]) -> None:
        """Merge the last runs while the earlier one is less than twice as long as the later one."""
        first, keys = len(runs) - 1, len(runs[-1].batch.keys)
        while first > 0:
            earlier = len(runs[first - 1].batch.keys)
            if earlier >= 2 * keys or earlier + keys > _MERGED_KEYS_MAX:
                break
            first, keys = first - 1, earlier + keys
        if first < len(runs) - 1:
            together = merged([run.batch for run in runs[first:]])
            self.memory_bytes += together.memory_bytes - sum(r.batch.memory_bytes for r in runs[first:])
            runs[first:] = [_Run(runs[-1].tick, together)]
