"""Insert, upsert and delete: from rows and keys to durable log entries.

Work that grows with the size of a write (hashing, splitting, encoding) happens in the caller's gRPC thread
or in a helper thread, never on the event loop. A write is acknowledged when all its entries are durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from elanus.core.begun import Begun
from elanus.core.channels import pchannel_of, shard_of_keys
from elanus.core.errors import ElanusError, PartlyWritten
from elanus.core.ids import CollectionID, PartitionID
from elanus.core.lease import Lease
from elanus.core.limits import LOG_ENTRY_TARGET_BYTES
from elanus.core.messages import DeleteMessage, InsertMessage, UpsertMessage, WriteMessage
from elanus.core.offload import Offload
from elanus.core.partition_keys import rows_of_partitions
from elanus.core.timestamps import Timestamp
from elanus.log.codec import encode
from elanus.log.port import Log, NewEntry
from elanus.proxy.role.queues import Turn
from elanus.proxy.role.segments import SegmentAssigner

Rows = TypeVar("Rows", pa.RecordBatch, pa.Array)
INLINE_ROWS_MAX = 16 * 1024
INLINE_ENTRIES_MAX = 16
"""Larger writes are encoded off the event loop. An entry takes 15 to 30 µs, whatever the size of its vectors,
which are not copied; to have a thread do it takes 150 µs of processor time."""


@dataclass(frozen=True, slots=True)
class ShardRows:
    """The rows of one write that go to one vchannel. ``replaced``: see `UpsertMessage`.

    ``partition_id``: where a partition key sends them; None: to the partition of the write.
    """

    vchannel: str
    rows: pa.RecordBatch
    replaced: pa.Array | None = None
    partition_id: PartitionID | None = None


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The keys of one delete that belong to one vchannel."""

    vchannel: str
    keys: pa.Array


def rows_by_shard(
    rows: pa.RecordBatch, keys: pa.Array, vchannels: Sequence[str], replaced: pa.Array | None = None
) -> list[ShardRows]:
    """Split rows by the hash of their primary keys, each shard's rows in their original order."""
    if len(vchannels) == 1:
        return [ShardRows(vchannels[0], rows, replaced)]
    parts = _by_shard(keys, vchannels)
    order = pa.array(np.concatenate([at for _, at in parts]))
    rows = rows.take(order)  # once: taking each shard's rows costs as much again for every shard
    replaced = None if replaced is None else replaced.take(order)
    shards, begin = [], 0
    for vchannel, at in parts:
        own = None if replaced is None else replaced.slice(begin, len(at))
        shards.append(ShardRows(vchannel, rows.slice(begin, len(at)), own))
        begin += len(at)
    return shards


def shards_by_partition(
    shards: Sequence[ShardRows], field: str, partitions: Sequence[PartitionID]
) -> list[ShardRows]:
    """Split each shard's rows by the hash of their partition key, which is in the column ``field``."""
    split = []
    for shard in shards:
        for partition_id, numbers in rows_of_partitions(shard.rows.column(field), partitions):
            at = pa.array(numbers)
            replaced = None if shard.replaced is None else shard.replaced.take(at)
            split.append(ShardRows(shard.vchannel, shard.rows.take(at), replaced, partition_id))
    return split


def keys_by_shard(keys: pa.Array, vchannels: Sequence[str]) -> list[ShardKeys]:
    if len(vchannels) == 1:
        return [ShardKeys(vchannels[0], keys)]
    return [ShardKeys(v, keys.take(pa.array(at))) for v, at in _by_shard(keys, vchannels)]


def _by_shard(keys: pa.Array, vchannels: Sequence[str]) -> list[tuple[str, np.ndarray[Any, Any]]]:
    shards = shard_of_keys(keys, len(vchannels))
    order = np.argsort(shards, kind="stable")
    bounds = np.searchsorted(shards[order], np.arange(len(vchannels) + 1))
    parts = [order[bounds[n] : bounds[n + 1]] for n in range(len(vchannels))]
    return [(vchannels[n], part) for n, part in enumerate(parts) if len(part)]


@dataclass(frozen=True, slots=True)
class RowWrite:
    """``replaces``: an upsert, whose rows delete older rows."""

    collection_id: CollectionID
    partition_id: PartitionID
    shards: Sequence[ShardRows]
    row_id_start: int
    replaces: bool


@dataclass(frozen=True, slots=True)
class KeyDelete:
    """Delete keys from one partition, or from all."""

    collection_id: CollectionID
    partition_id: PartitionID
    shards: Sequence[ShardKeys]


class LogWriter:
    """Carries out writes, each within its turn of the DmQueue (`elanus.proxy.role.queues`)."""

    def __init__(self, log: Log, assigner: SegmentAssigner, offload: Offload, lease: Lease) -> None:
        self._log = log
        self._assigner = assigner
        self._offload = offload
        self._lease = lease

    async def write_rows(self, write: RowWrite, turn: Turn) -> None:
        messages = await self.place(write, turn.ts)
        await self.append(turn, messages)

    async def delete_keys(self, delete: KeyDelete, turn: Turn) -> None:
        messages = delete_messages(delete.collection_id, delete.partition_id, delete.shards, turn.ts)
        await self.append(turn, messages)

    async def place(self, write: RowWrite, ts: Timestamp) -> list[WriteMessage]:
        """Return the messages of a row write: one per vchannel, segment and portion of bounded size."""
        messages: list[WriteMessage] = []
        row_id = write.row_id_start
        for shard in write.shards:
            partition_id = write.partition_id if shard.partition_id is None else shard.partition_id
            places = await self._assigner.assign(
                write.collection_id, partition_id, shard.vchannel, shard.rows.num_rows, ts
            )
            begin = 0
            for place in places:
                for rows in _portions(shard.rows.slice(begin, place.rows)):
                    start = (
                        ts,
                        shard.vchannel,
                        write.collection_id,
                        partition_id,
                        place.segment_id,
                        row_id,
                    )
                    if write.replaces:
                        replaced = shard.replaced
                        if replaced is not None:
                            replaced = replaced.slice(begin, rows.num_rows)
                        messages.append(UpsertMessage(*start, rows, replaced))
                    else:
                        messages.append(InsertMessage(*start, rows))
                    row_id += rows.num_rows
                    begin += rows.num_rows
        return messages

    async def append(self, turn: Turn, messages: Sequence[WriteMessage]) -> None:
        """Append to the log in the order of turns; returns when everything is durable and will be read.

        The lease is confirmed twice. Before the append, because a flush asks only proxies with a lease to
        return their allocations: a timestamp taken under a lease is below the seal. And after the append: if
        the lease held until then, no tick left this proxy out before the entries were in the log. Raises
        `LeaseLost` when it may not have held: the entries, if any, may be late, and every reader ignores
        late entries. Raises `PartlyWritten` when some pchannels stored their entries and others did not.
        """
        entries = await self._encoded(messages)
        await turn.mine()
        await self._lease.confirm()
        appends = [_failure_of(self._log.append(p, e)) for p, e in entries.items()]
        if len(appends) == 1:
            begun = Begun(appends[0])
            turn.done()  # the append has taken its place in the log's queue
            failures = [await begun]
        else:
            tasks = [asyncio.ensure_future(append) for append in appends]
            await asyncio.sleep(0)  # as above: each has begun
            turn.done()
            failures = await asyncio.gather(*tasks)
        failed = {p: error for p, error in zip(entries, failures, strict=True) if error is not None}
        if len(failed) < len(entries):
            await self._lease.confirm()  # otherwise the stored entries may be late, and count as not stored
        if failed:
            raise _failure_of_all(failed, frozenset(entries) - failed.keys())

    async def _encoded(self, messages: Sequence[WriteMessage]) -> dict[str, list[NewEntry]]:
        if len(messages) > INLINE_ENTRIES_MAX or sum(map(_row_count, messages)) > INLINE_ROWS_MAX:
            encoded: list[NewEntry] = await self._offload(_encode_all, messages)
        else:
            encoded = _encode_all(messages)
        entries: dict[str, list[NewEntry]] = {}
        for message, entry in zip(messages, encoded, strict=True):
            entries.setdefault(pchannel_of(message.vchannel), []).append(entry)
        return entries


async def _failure_of(append: Awaitable[object]) -> Exception | None:
    """Return the error instead of raising it: a write waits for its other appends too."""
    try:
        await append
    except Exception as error:  # noqa: BLE001 - raised by the write
        return error
    return None


def _failure_of_all(failed: Mapping[str, Exception], stored: frozenset[str]) -> Exception:
    """Return the error of a write that failed on one or more pchannels."""
    for error in failed.values():
        if not stored or not isinstance(error, ElanusError):
            return error
    pchannel, error = next(iter(failed.items()))
    return PartlyWritten(f"{pchannel}: {error}", stored)


def _row_count(message: WriteMessage) -> int:
    return len(message.primary_keys if isinstance(message, DeleteMessage) else message.rows)


def _encode_all(messages: Sequence[WriteMessage]) -> list[NewEntry]:
    return [encode(message) for message in messages]


def _portions(rows: Rows) -> list[Rows]:
    count = max(1, -(-rows.nbytes // LOG_ENTRY_TARGET_BYTES))
    if count == 1:
        return [rows]
    step = -(-len(rows) // count)
    return [rows.slice(begin, step) for begin in range(0, len(rows), step)]


def delete_messages(
    collection_id: CollectionID, partition_id: PartitionID, shards: Sequence[ShardKeys], ts: Timestamp
) -> list[WriteMessage]:
    """One message per vchannel and portion of bounded size; all with one timestamp, so visible at once."""
    return [
        DeleteMessage(ts, s.vchannel, collection_id, partition_id, keys)
        for s in shards
        for keys in _portions(s.keys)
    ]
