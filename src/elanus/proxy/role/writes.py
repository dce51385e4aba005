"""Insert, upsert and delete: from rows and keys to durable log entries.

Work that grows with the size of a write (hashing, splitting, encoding) happens in the caller's gRPC thread
or in a helper thread, never on the event loop. A write is acknowledged when all its entries are durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from elanus.core.allocation import SegmentRows
from elanus.core.begun import Begun
from elanus.core.channels import pchannel_of
from elanus.core.errors import ChannelRewound, ElanusError, NoSession, PartlyWritten, Unavailable
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.lease import Lease
from elanus.core.limits import LOG_ENTRY_TARGET_BYTES
from elanus.core.messages import DeleteMessage, InsertMessage, UpsertMessage, WriteMessage
from elanus.core.offload import Offload
from elanus.core.timestamps import Timestamp
from elanus.log.codec import encode
from elanus.log.port import Appender, NewEntry
from elanus.proxy.role.queues import Turn
from elanus.proxy.role.segments import SegmentAssigner
from elanus.proxy.role.shards import ShardKeys, ShardRows

Rows = TypeVar("Rows", pa.RecordBatch, pa.Array)
INLINE_ROWS_MAX = 16 * 1024
INLINE_ENTRIES_MAX = 16
"""Larger writes are encoded off the event loop. An entry takes 15 to 30 µs, whatever the size of its vectors,
which are not copied; to have a thread do it takes 150 µs of processor time."""


@dataclass(frozen=True, slots=True)
class RowWrite:
    """``shards``: the rows by vchannel, each shard in its own partition if a partition key decides, where
    ``partition_id`` is `ALL_PARTITIONS`.

    ``row_id_start``: the first of as many consecutive row ids as there are rows. ``replaces``: an upsert,
    whose rows delete older rows of ``partition_id``.
    """

    collection_id: CollectionID
    partition_id: PartitionID
    shards: Sequence[ShardRows]
    row_id_start: int
    replaces: bool


@dataclass(frozen=True, slots=True)
class KeyDelete:
    """Delete keys from one partition, or from all (`ALL_PARTITIONS`)."""

    collection_id: CollectionID
    partition_id: PartitionID
    shards: Sequence[ShardKeys]


class LogWriter:
    """Carries out writes, each within its turn of the DmQueue (`elanus.proxy.role.queues`)."""

    def __init__(self, log: Appender, assigner: SegmentAssigner, offload: Offload, lease: Lease) -> None:
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
            for segment_id, part in _placed(shard, places):
                start = (ts, part.vchannel, write.collection_id, partition_id, segment_id, row_id)
                if write.replaces:
                    messages.append(UpsertMessage(*start, part.rows, part.replaced, write.partition_id))
                else:
                    messages.append(InsertMessage(*start, part.rows))
                row_id += part.rows.num_rows
        return messages

    async def append(self, turn: Turn, messages: Sequence[WriteMessage]) -> None:
        """Append to the log in the order of turns; returns when everything is durable and will be read.

        The lease is confirmed twice. Before the append, because a flush asks only proxies with a lease to
        return their allocations: a timestamp taken under a lease is below the seal. And after the append: if
        the lease held until then, no tick left this proxy out before the entries were in the log. Raises
        `LeaseLost` when it may not have held: the entries, if any, may be late, and every reader ignores
        late entries. Raises `PartlyWritten` when some pchannels stored their entries and others did not,
        or one stored only some.
        """
        entries = await self._encoded(messages)
        await turn.wait()
        await self._lease.confirm()
        turn.ended_but_on(entries)
        appends = [_failure_of(self._append(turn, p, e)) for p, e in entries.items()]
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

    async def _append(self, turn: Turn, pchannel: str, entries: Sequence[NewEntry]) -> None:
        try:
            await self._log.append(pchannel, entries)
        except NoSession as error:
            self._lease.give_up(error.message)
            raise
        finally:
            turn.ended(pchannel)

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
    failures = sorted(failed.items(), key=lambda failure: not isinstance(failure[1], PartlyWritten))
    for _, error in failures:
        if not stored or not isinstance(error, ElanusError):
            return error
    pchannel, error = failures[0]
    is_certain = all(
        isinstance(e, ChannelRewound) or not isinstance(e, Unavailable | PartlyWritten)
        for e in failed.values()
    )
    return PartlyWritten(f"{pchannel}: {error}", stored, is_certain=is_certain)


def _row_count(message: WriteMessage) -> int:
    return len(message.primary_keys if isinstance(message, DeleteMessage) else message.rows)


def _encode_all(messages: Sequence[WriteMessage]) -> list[NewEntry]:
    return [encode(message) for message in messages]


def _placed(shard: ShardRows, places: Iterable[SegmentRows]) -> Iterator[tuple[SegmentID, ShardRows]]:
    """Yield the shard's rows in their order, in portions of bounded size that each go to one segment."""
    begin = 0
    for place in places:
        for rows in _portions(shard.rows.slice(begin, place.rows)):
            replaced = None if shard.replaced is None else shard.replaced.slice(begin, rows.num_rows)
            yield place.segment_id, replace(shard, rows=rows, replaced=replaced)
            begin += rows.num_rows


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
