"""Insert, upsert and delete as tasks of the DmQueue (the insert's way, step 1).

What costs time per byte (hashing, splitting, encoding) happens in the caller's gRPC thread or in a helper
thread, never on the event loop. A task is acknowledged when all its entries are durable in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from elanus.core.channels import pchannel_of, shard_of_keys
from elanus.core.ids import CollectionID, PartitionID, TaskID
from elanus.core.lease import Lease
from elanus.core.limits import LOG_ENTRY_TARGET_BYTES
from elanus.core.messages import DeleteMessage, InsertMessage, UpsertMessage, WriteMessage
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.log.codec import encode
from elanus.log.port import Log, NewEntry
from elanus.proxy.queues import DmQueue
from elanus.proxy.segments import SegmentAssigner

Offload = Callable[..., Awaitable[Any]]
Rows = TypeVar("Rows", pa.RecordBatch, pa.Array)
_OFFLOAD_BYTES = 256 * 1024
"""From here on encoding leaves the event loop."""


@dataclass(frozen=True, slots=True)
class ShardRows:
    """The rows of one write that go to one vchannel."""

    vchannel: str
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The keys of one delete that live in one vchannel."""

    vchannel: str
    keys: pa.Array


def rows_by_shard(rows: pa.RecordBatch, keys: pa.Array, vchannels: Sequence[str]) -> list[ShardRows]:
    """Split rows by the hash of their primary keys, each shard's rows in their first order."""
    if len(vchannels) == 1:
        return [ShardRows(vchannels[0], rows)]
    return [ShardRows(v, rows.take(pa.array(at))) for v, at in _by_shard(keys, vchannels)]


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


class LogWriter:
    """What a write task works with."""

    def __init__(
        self, log: Log, queue: DmQueue, assigner: SegmentAssigner, offload: Offload, lease: Lease
    ) -> None:
        self._log = log
        self._queue = queue
        self._assigner = assigner
        self._offload = offload
        self._lease = lease

    async def place(self, write: RowWrite, ts: Timestamp) -> list[WriteMessage]:
        """The messages of a row write: one per vchannel, segment and portion of bounded size."""
        messages: list[WriteMessage] = []
        row_id = write.row_id_start
        kind = UpsertMessage if write.replaces else InsertMessage
        for shard in write.shards:
            places = await self._assigner.assign(
                write.collection_id, write.partition_id, shard.vchannel, shard.rows.num_rows, ts
            )
            begin = 0
            for place in places:
                for rows in _portions(shard.rows.slice(begin, place.rows)):
                    messages.append(
                        kind(
                            ts,
                            shard.vchannel,
                            write.collection_id,
                            write.partition_id,
                            place.segment_id,
                            row_id,
                            rows,
                        )
                    )
                    row_id += rows.num_rows
                begin += place.rows
        return messages

    async def append(self, task_id: TaskID, messages: Sequence[WriteMessage], size_bytes: int) -> None:
        """Append to the log in the queue's order; returns when everything is durable, and counts.

        The lease is looked at twice. Before the append, because a flush asks only proxies that have one for
        their quota: what was stamped under a lease lies below the seal. And after the append: if it held
        until then, no tick had left this proxy out before the entries stood in the log. Raises `LeaseLost`
        when it may not have: the entries, if there are any, may be late, which every reader then ignores.
        """
        entries = await self._encoded(messages, size_bytes)
        await self._queue.turn(task_id)
        await self._lease.confirm()
        appends = [asyncio.ensure_future(self._log.append(p, e)) for p, e in entries.items()]
        await asyncio.sleep(0)  # each append has now taken its place in the log's queue
        self._queue.handed_over(task_id)
        await asyncio.gather(*appends)
        await self._lease.confirm()

    async def _encoded(self, messages: Sequence[WriteMessage], size_bytes: int) -> dict[str, list[NewEntry]]:
        if size_bytes >= _OFFLOAD_BYTES:
            encoded: list[NewEntry] = await self._offload(_encode_all, messages)
        else:
            encoded = _encode_all(messages)
        entries: dict[str, list[NewEntry]] = {}
        for message, entry in zip(messages, encoded, strict=True):
            entries.setdefault(pchannel_of(message.vchannel), []).append(entry)
        return entries


def _encode_all(messages: Sequence[WriteMessage]) -> list[NewEntry]:
    return [encode(message) for message in messages]


def _portions(rows: Rows) -> list[Rows]:
    count = max(1, -(-rows.nbytes // LOG_ENTRY_TARGET_BYTES))
    if count == 1:
        return [rows]
    step = -(-len(rows) // count)
    return [rows.slice(begin, step) for begin in range(0, len(rows), step)]


@dataclass(frozen=True, slots=True)
class RowWrite:
    """``replaces``: an upsert, whose rows delete older rows of the same keys.

    ``also_delete``: keys to delete in the same step (an upsert into an auto-id collection gives the rows
    new keys).
    """

    collection_id: CollectionID
    partition_id: PartitionID
    shards: Sequence[ShardRows]
    row_id_start: int
    replaces: bool
    size_bytes: int
    also_delete: Sequence[ShardKeys] = ()


class InsertTask:
    name = "insert"

    def __init__(self, writer: LogWriter, write: RowWrite, pchannels: tuple[str, ...]) -> None:
        self.pchannels = pchannels
        self._writer = writer
        self._write = write
        self._messages: list[WriteMessage] = []
        self._task_id = TaskID(0)
        self.ts = NO_TIMESTAMP

    def begin(self, task_id: TaskID, ts: Timestamp) -> None:
        self._task_id, self.ts = task_id, ts

    async def pre_execute(self) -> None:
        self._messages = await self._writer.place(self._write, self.ts)
        self._messages += delete_messages(
            self._write.collection_id, PartitionID(0), self._write.also_delete, self.ts
        )

    async def execute(self) -> None:
        await self._writer.append(self._task_id, self._messages, self._write.size_bytes)

    async def post_execute(self) -> None:
        self._messages = []


class DeleteTask:
    name = "delete"

    def __init__(
        self,
        writer: LogWriter,
        collection_id: CollectionID,
        partition_id: PartitionID,
        shards: Sequence[ShardKeys],
        pchannels: tuple[str, ...],
    ) -> None:
        self.pchannels = pchannels
        self._writer = writer
        self._collection_id = collection_id
        self._partition_id = partition_id
        self._shards = shards
        self._task_id = TaskID(0)
        self.ts = NO_TIMESTAMP

    def begin(self, task_id: TaskID, ts: Timestamp) -> None:
        self._task_id, self.ts = task_id, ts

    async def pre_execute(self) -> None:
        """Nothing to prepare: the keys were split before the task was stamped."""

    async def execute(self) -> None:
        messages = delete_messages(self._collection_id, self._partition_id, self._shards, self.ts)
        await self._writer.append(self._task_id, messages, sum(s.keys.nbytes for s in self._shards))

    async def post_execute(self) -> None:
        self._shards = ()


def delete_messages(
    collection_id: CollectionID, partition_id: PartitionID, shards: Sequence[ShardKeys], ts: Timestamp
) -> list[WriteMessage]:
    """One message per vchannel and portion of bounded size; all of one timestamp, so seen at once."""
    return [
        DeleteMessage(ts, s.vchannel, collection_id, partition_id, keys)
        for s in shards
        for keys in _portions(s.keys)
    ]
