"""From rows to log entries: shards, segments, portions, and the order in the log."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fakes import (
    CID,
    DEFAULT,
    FakeData,
    FakeLease,
    FakeRoot,
    collection,
    inline,
    pchannels_of,
    schema,
    settle,
)

from elanus.core.channels import shard_of_keys
from elanus.core.errors import DiskFull, LeaseLost, PartlyWritten
from elanus.core.limits import LOG_ENTRY_TARGET_BYTES
from elanus.core.messages import InsertMessage, UpsertMessage
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.log.codec import decode
from elanus.log.memory import MemoryLog
from elanus.log.port import LogEntry
from elanus.proxy.role.queues import DmQueue
from elanus.proxy.role.segments import SegmentAssigner
from elanus.proxy.role.shards import ShardRows, keys_by_shard, rows_by_shard
from elanus.proxy.role.stamps import OwnStamps
from elanus.proxy.role.writes import KeyDelete, LogWriter, RowWrite

TWO_SHARDS = collection(shards=2)


def rows(count: int, first: int = 0, of: CollectionSchema | None = None) -> pa.RecordBatch:
    of = of or schema()
    keys = range(first, first + count)
    columns = [
        pa.array(keys, pa.int64()),
        pa.array([float(k) for k in keys], pa.float64()),
        pa.array([[float(k), 1.0] for k in keys], of.field("v0").arrow_type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=of.arrow_schema)


class Writing:
    """A DmQueue and a writer over a log in memory."""

    def __init__(self, log: MemoryLog | None = None, rows_granted_max: int = 2**31) -> None:
        self.log = log or MemoryLog()
        self.data = FakeData()
        self.data.rows_granted_max = rows_granted_max
        self.root = FakeRoot()
        self.queue = DmQueue(OwnStamps(self.root.stamp), 100)
        self.lease = FakeLease()
        self.writer = LogWriter(self.log, SegmentAssigner(self.data, 1), inline, self.lease)

    async def insert(
        self, batch: pa.RecordBatch, *, replaces: bool = False, replaced: pa.Array | None = None
    ) -> Timestamp:
        shards = rows_by_shard(batch, batch.column("pk"), TWO_SHARDS.vchannels, replaced)
        write = RowWrite(CID, DEFAULT, shards, 500, replaces)
        return await self.write(write)

    async def write(self, write: RowWrite) -> Timestamp:
        return await self.queue.run(
            "insert", pchannels_of(TWO_SHARDS), partial(self.writer.write_rows, write)
        )

    async def delete(self, delete: KeyDelete) -> Timestamp:
        return await self.queue.run(
            "delete", pchannels_of(TWO_SHARDS), partial(self.writer.delete_keys, delete)
        )

    def entries(self) -> dict[str, list[LogEntry]]:
        return {p: list(self.log.read_range(p, 0, self.log.end(p))) for p in self.log.pchannels()}


@pytest.mark.parametrize("vchannels", [("a",), ("a", "b"), ("a", "b", "c", "d", "e")])
def test_rows_go_to_the_shard_of_their_key_in_the_order_they_came(vchannels: tuple[str, ...]) -> None:
    batch = rows(200).take(pa.array(np.random.default_rng(5).permutation(200)))
    expected = shard_of_keys(batch.column("pk"), len(vchannels))
    shards = rows_by_shard(batch, batch.column("pk"), vchannels)
    assert [s.vchannel for s in shards] == list(vchannels)
    for number, shard in enumerate(shards):
        assert shard.rows.equals(batch.take(pa.array(np.flatnonzero(expected == number))))


def test_a_shard_without_rows_gets_no_message() -> None:
    one = rows(1)
    (shard,) = rows_by_shard(one, one.column("pk"), ("a", "b", "c"))
    assert shard.vchannel == "abc"[int(shard_of_keys(one.column("pk"), 3)[0])]


def test_keys_of_a_delete_go_where_their_rows_went() -> None:
    batch = rows(100)
    by_rows = {s.vchannel: s.rows.column("pk") for s in rows_by_shard(batch, batch.column("pk"), ("a", "b"))}
    by_keys = {s.vchannel: s.keys for s in keys_by_shard(batch.column("pk"), ("a", "b"))}
    assert by_keys == by_rows


async def test_an_insert_is_one_message_for_each_vchannel_and_segment() -> None:
    writing = Writing(rows_granted_max=30)
    batch = rows(100)
    ts = await writing.insert(batch)
    messages = [decode(e) for entries in writing.entries().values() for e in entries]
    assert all(isinstance(m, InsertMessage) and m.ts == ts for m in messages)
    assert max(m.rows.num_rows for m in messages) == 30
    assert len({(m.vchannel, m.segment_id) for m in messages}) == len(messages)
    shards = {s.vchannel: s.rows for s in rows_by_shard(batch, batch.column("pk"), TWO_SHARDS.vchannels)}
    for vchannel, expected in shards.items():
        parts = [m.rows for m in messages if m.vchannel == vchannel]
        assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([expected]))


async def test_each_row_has_a_row_id_of_its_own() -> None:
    writing = Writing(rows_granted_max=30)
    await writing.insert(rows(100))
    headers = [e.header for entries in writing.entries().values() for e in entries]
    ids = [n for h in headers for n in range(h.row_id_start, h.row_id_start + h.rows)]
    assert sorted(ids) == list(range(500, 600))


async def test_an_upsert_is_one_record_that_replaces() -> None:
    writing = Writing()
    await writing.insert(rows(10), replaces=True)
    messages = [decode(e) for entries in writing.entries().values() for e in entries]
    assert {type(m) for m in messages} == {UpsertMessage}


async def test_every_record_of_an_upsert_has_the_keys_that_its_own_rows_replace() -> None:
    writing = Writing(rows_granted_max=30)
    batch = rows(100, first=1000)
    await writing.insert(batch, replaces=True, replaced=pa.array(range(100)))
    messages = [decode(e) for entries in writing.entries().values() for e in entries]
    assert {type(m) for m in messages} == {UpsertMessage}
    assert max(m.rows.num_rows for m in messages) == 30
    pairs = [
        p for m in messages for p in zip(m.rows.column("pk").to_pylist(), m.replaced.to_pylist(), strict=True)
    ]
    assert sorted(pairs) == [(1000 + key, key) for key in range(100)]


async def test_a_delete_is_one_message_for_each_vchannel() -> None:
    writing = Writing()
    shards = keys_by_shard(pa.array(range(50)), TWO_SHARDS.vchannels)
    await writing.delete(KeyDelete(CID, DEFAULT, shards))
    (one,), (two,) = writing.entries().values()
    assert (one.header.rows + two.header.rows, one.header.partition_id) == (50, DEFAULT)


async def test_rows_of_many_bytes_are_split_into_entries_of_bounded_size() -> None:
    wide = CollectionSchema(
        "wide", (*schema().fields[:2], FieldSchema(102, "v0", DataType.FLOAT_VECTOR, dim=4096))
    )
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(range(1000), pa.int64()),
            pa.array(np.zeros(1000)),
            pa.FixedSizeListArray.from_arrays(
                pa.array(np.zeros(4096 * 1000, np.float32)), type=wide.fields[2].arrow_type
            ),
        ],
        schema=wide.arrow_schema,
    )
    writing = Writing()
    write = RowWrite(CID, DEFAULT, [ShardRows(TWO_SHARDS.vchannels[0], batch)], 0, False)
    await writing.write(write)
    ((entries),) = writing.entries().values()
    assert len(entries) == 4
    assert all(e.payload_bytes < LOG_ENTRY_TARGET_BYTES * 1.01 for e in entries)
    assert [e.header.row_id_start for e in entries] == [0, 250, 500, 750]
    assert len({e.header.segment_id for e in entries}) == 1


async def test_a_row_larger_than_an_entry_travels_alone() -> None:
    batch = rows(3)
    huge = batch.set_column(
        1, pa.field("price", pa.string()), pa.array(["x" * (LOG_ENTRY_TARGET_BYTES * 2)] * 3)
    )
    writing = Writing()
    write = RowWrite(CID, DEFAULT, [ShardRows(TWO_SHARDS.vchannels[0], huge)], 0, False)
    await writing.write(write)
    ((entries),) = writing.entries().values()
    assert [e.header.rows for e in entries] == [1, 1, 1]


class SlowLog(MemoryLog):
    """Takes entries in at once, as the port says, and answers when they are durable: a while later."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.failing = ""

    async def append(self, pchannel: str, entries: list, *, durable: bool = True) -> list:  # type: ignore[override, type-arg]
        if pchannel == self.failing:
            await asyncio.sleep(0.01)
            raise DiskFull("no room")
        positions = await super().append(pchannel, entries, durable=durable)
        await asyncio.sleep(self.chance.random())
        return list(positions)


@pytest.mark.parametrize("seed", range(10))
async def test_concurrent_writes_stand_in_the_log_in_the_order_of_time(seed: int) -> None:
    chance = random.Random(seed)
    writing = Writing(SlowLog(chance), rows_granted_max=20)

    async def pause() -> None:
        await asyncio.sleep(chance.random())

    async def slowly(requests: tuple) -> tuple:  # type: ignore[type-arg]
        await pause()
        return await FakeData.allocate(writing.data, requests)

    writing.data.allocate = slowly  # type: ignore[method-assign]

    async def one(number: int) -> None:
        await pause()
        await writing.insert(rows(chance.randint(1, 60), first=number * 100))

    await asyncio.gather(*(one(n) for n in range(30)))
    entries = writing.entries()
    assert len(entries) == 2
    for found in entries.values():
        stamps = [e.header.ts for e in found]
        assert stamps == sorted(stamps)


async def test_a_write_that_the_disk_refuses_is_no_success_and_is_over() -> None:
    log = SlowLog(random.Random(1))
    log.failing = pchannels_of(TWO_SHARDS)[1]
    writing = Writing(log)
    with pytest.raises(PartlyWritten, match="no room") as refused:
        await writing.insert(rows(50))
    assert refused.value.pchannels == {pchannels_of(TWO_SHARDS)[0]}
    assert writing.queue.oldest() == {}
    assert len(writing.queue) == 0


async def test_a_write_that_failed_on_one_pchannel_is_unfinished_on_the_others_until_it_has_ended() -> None:
    """Otherwise a tick passes the entries that are still on the way, which become late."""
    writing = Writing(log := SlowLog(random.Random(1)))
    other, log.failing = pchannels_of(TWO_SHARDS)
    running = asyncio.ensure_future(writing.insert(rows(50)))
    await asyncio.sleep(0.02)
    assert set(writing.queue.oldest()) == {other}
    with pytest.raises(PartlyWritten):
        await running
    assert writing.queue.oldest() == {}


async def test_a_write_holds_no_tick_of_a_pchannel_where_it_has_ended_or_has_no_entry() -> None:
    silent, other = pchannels_of(TWO_SHARDS)
    writing, answer = Writing(log := MemoryLog()), asyncio.Event()
    append = log.append

    async def waiting(pchannel: str, *args: Any, **kwargs: Any) -> Any:
        if pchannel == silent:
            await answer.wait()
        return await append(pchannel, *args, **kwargs)

    log.append = waiting  # type: ignore[method-assign]
    in_both = asyncio.ensure_future(writing.insert(rows(50)))
    await settle()
    assert set(writing.queue.oldest()) == {silent}
    only = ShardRows(TWO_SHARDS.vchannels[0], rows(1))
    in_one = asyncio.ensure_future(writing.write(RowWrite(CID, DEFAULT, [only], 900, False)))
    await settle()
    assert not any(one.done() for one in (in_both, in_one))
    assert set(writing.queue.oldest()) == {silent}
    assert other in log.pchannels()
    answer.set()
    await asyncio.gather(in_both, in_one)
    assert writing.queue.oldest() == {}


async def test_a_write_is_unfinished_until_it_is_durable_everywhere() -> None:
    writing = Writing(SlowLog(random.Random(1)))
    running = asyncio.ensure_future(writing.insert(rows(50)))
    await settle()
    assert len(writing.log.pchannels()) == 2, "the entries are in the log, not yet durable"
    oldest = writing.queue.oldest()
    assert set(oldest) == set(pchannels_of(TWO_SHARDS))
    await running
    assert writing.queue.oldest() == {}


async def test_a_write_counts_only_if_the_lease_held_until_it_was_durable() -> None:
    writing = Writing(log := MemoryLog())
    steps: list[str] = []
    append = log.append

    async def slow_append(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(1.0)
        position = await append(*args, **kwargs)
        steps.append("durable")
        return position

    async def confirm() -> None:
        steps.append("confirmed")

    log.append = slow_append  # type: ignore[method-assign]
    writing.lease.confirm = confirm  # type: ignore[method-assign]
    await writing.insert(rows(1))
    assert steps == ["confirmed", "durable", "confirmed"]


async def test_a_write_whose_lease_is_over_is_in_the_log_and_not_acknowledged() -> None:
    writing = Writing(log := MemoryLog())
    append = log.append

    async def last_append(*args: Any, **kwargs: Any) -> Any:
        position = await append(*args, **kwargs)
        writing.lease.calls.failing["confirm"] = LeaseLost("the session of proxy 1 is over; retry")
        return position

    log.append = last_append  # type: ignore[method-assign]
    with pytest.raises(LeaseLost, match="retry") as refused:
        await writing.insert(rows(1))
    assert refused.value.retriable
    assert writing.log.pchannels() != ()
    assert writing.queue.oldest() == {}


async def test_without_a_lease_nothing_is_written_for_allocations_may_have_been_sealed() -> None:
    writing = Writing()
    writing.lease.calls.failing["confirm"] = LeaseLost("the session of proxy 1 is over; retry")
    with pytest.raises(LeaseLost):
        await writing.insert(rows(1))
    assert list(writing.log.pchannels()) == []
    assert writing.queue.oldest() == {}
