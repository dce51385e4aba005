"""Following the log: what is taken in, what is skipped, partitions that come and go, and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from node_rows import VECTOR, schema_of
from node_world import COLLECTION, NODE, PCHANNEL, VCHANNEL, World, scenario

from elanus.api.querynode import (
    FieldIndexSpec,
    LoadCollection,
)
from elanus.api.recovery import LogHold
from elanus.core.clock import SystemClock
from elanus.core.errors import (
    CollectionNotLoaded,
    DeadlineExceeded,
    IndexConflict,
    Internal,
    PartitionNotLoaded,
    Unavailable,
)
from elanus.core.ids import IndexID, PartitionID, SegmentID
from elanus.core.messages import DeleteMessage, InsertMessage, MsgKind, UpsertMessage
from elanus.core.schema import DataType
from elanus.core.timestamps import Timestamp
from elanus.datacoord.log_holds import LogHolds
from elanus.index import resolve_index
from elanus.log.port import Position, TrimmedLog
from elanus.querynode import growing as growing_module
from elanus.querynode.deletes import deletes_of_messages
from elanus.querynode.growing import GrowingSegment, NewRows

ONE, TWO = PartitionID(1), PartitionID(2)


def follower(world: World):
    return world.node._collections[COLLECTION].channels[VCHANNEL].follower


@scenario()
async def test_a_node_that_starts_loads_the_growing_binlogs_first_and_then_the_log(world: World) -> None:
    await world.insert([(1, 1), (2, 2)])
    await world.delete([1])
    await world.tick()
    world.flush()
    await world.insert([(3, 3)])
    await world.delete([2])
    await world.tick()
    await world.restart()
    assert (world.keys(), world.count()) == ([3], 1)
    assert world.keys(ts=102) == [2]


@scenario()
async def test_what_is_later_than_the_tick_waits_for_the_next(world: World) -> None:
    await world.insert([(1, 1)])
    await world.insert([(2, 2)])
    await world.tick(behind=1)
    assert world.keys() == [1]
    await world.tick()
    assert world.keys() == [1, 2]


@scenario()
async def test_late_messages_are_ignored_and_counted(world: World) -> None:
    await world.insert([(1, 1)])
    await world.tick()
    await world.insert([(2, 2)], ts=world.tick_ts)
    await world.delete([1], ts=world.tick_ts)
    await world.stamp_and_tick()
    assert world.keys() == [1]
    assert (await world.node.status()).late_messages == 2


@scenario()
async def test_a_delete_concerns_older_rows_only_and_a_key_may_come_again(world: World) -> None:
    await world.insert([(1, 1)])
    await world.delete([1])
    again = await world.insert([(1, 2)])
    await world.tick()
    assert world.node.query(world.node_query())["value"].to_pylist() == [2]
    assert world.keys(ts=again - 1) == []
    assert world.keys(ts=again - 2) == [1]


@scenario()
async def test_deletes_and_upserts_may_be_limited_to_a_partition(world: World) -> None:
    await world.insert([(1, 1), (2, 2), (3, 6)], partition=1)
    await world.insert([(1, 3), (2, 4), (3, 7)], partition=2)
    await world.delete([1], partition=2)
    await world.insert([(2, 5)], partition=2, upsert=True)
    await world.insert([(3, 8)], partition=2, upsert=True, deletes_in=2)
    await world.tick()

    def values(partition: int) -> list[int]:
        return sorted(world.node.query(world.node_query(partition_ids=(partition,)))["value"].to_pylist())

    assert (world.count(), values(1), values(2)) == (4, [1, 6], [5, 8])


@scenario()
async def test_an_upsert_with_new_keys_deletes_the_keys_that_it_replaces(world: World) -> None:
    await world.insert([(1, 1), (2, 2), (7, 3)])
    await world.insert([(4, 7), (5, 8)], partition=2, upsert=True, replaced=[1, 2])
    await world.tick()
    assert (world.count(), sorted(world.keys())) == (3, [4, 5, 7])
    await world.delete([4])
    await world.tick()
    assert sorted(world.keys()) == [5, 7]


@scenario()
async def test_a_dropped_partition_goes_with_its_message(world: World) -> None:
    await world.insert([(1, 1)], partition=1)
    await world.insert([(2, 2)], partition=2)
    await world.tick()
    world.seal()
    world.flush()
    await world.hand_off(world.finished())
    await world.insert([(3, 3)], partition=1)
    await world.ddl(MsgKind.DROP_PARTITION, 1)
    await world.tick()
    assert world.keys() == [2]
    dropped = next(s for s, info in world.segments.items() if info.manifest.partition_id == 1)
    world.build_index(dropped)
    with pytest.raises(PartitionNotLoaded):  # it may not come back by a load that was under way
        await world.node.load_segment(world.segment_request(dropped))


@scenario()
async def test_rows_behind_the_drop_of_their_partition_belong_to_nobody(world: World) -> None:
    """A proxy that did not know of the drop wrote them; the node starts behind the message of the drop."""
    await world.insert([(1, 1)], partition=1)
    await world.insert([(2, 2)], partition=2)
    await world.ddl(MsgKind.DROP_PARTITION, 1)
    await world.tick()
    world.flush()
    await world.insert([(3, 3)], partition=1)
    await world.tick()
    assert world.keys() == [2]
    world.leaving = (ONE,)
    await world.restart()
    assert world.keys() == [2]


@scenario()
async def test_a_dropped_collection_is_released_and_waiting_reads_fail(world: World) -> None:
    with ThreadPoolExecutor(1) as threads:
        wait = threads.submit(world.node.wait_service_time, COLLECTION, Timestamp(world.now + 99), 60)
        await world.ddl(MsgKind.DROP_COLLECTION)
        await world.tick()
        with pytest.raises(CollectionNotLoaded):
            wait.result()
    with pytest.raises(CollectionNotLoaded):
        world.node.service_time(COLLECTION)


@scenario()
async def test_waiting_for_a_time_that_does_not_come_ends_at_the_deadline(world: World) -> None:
    with pytest.raises(DeadlineExceeded):
        world.node.wait_service_time(COLLECTION, Timestamp(world.tick_ts + 1), 0.001)


@scenario(partitions=(1,))
async def test_only_wanted_partitions_are_taken_in(world: World) -> None:
    await world.insert([(1, 1)], partition=1)
    await world.insert([(2, 2)], partition=2)
    await world.insert([(1, 3)], partition=2, upsert=True)  # its deletes concern all partitions
    await world.tick()
    assert world.count() == 0
    assert list(follower(world).growing) == [
        s for s, i in world.segments.items() if i.manifest.partition_id == 1
    ]
    with pytest.raises(PartitionNotLoaded):
        world.keys(partition_ids=(TWO,))


@scenario(partitions=(1,))
async def test_a_partition_that_is_added_comes_complete(world: World) -> None:
    """Its rows were in the log before the partition was loaded: the vchannel is followed again."""
    await world.insert([(1, 1)], partition=1)
    await world.insert([(2, 2), (3, 3)], partition=2)
    await world.delete([3])
    await world.tick()
    with pytest.raises(PartitionNotLoaded):
        await world.node.set_partitions(COLLECTION, [ONE, TWO])
    await world.node.load_collection(world.load_request((1, 2)))
    watching = asyncio.create_task(world.node.watch_vchannel(world.watch_request()))
    await world.insert([(4, 4)], partition=2)
    await world.tick()
    await watching
    assert world.keys() == [1]
    await world.node.set_partitions(COLLECTION, [ONE, TWO])
    assert (world.keys(), world.count()) == ([1, 2, 4], 3)
    await world.node.watch_vchannel(world.watch_request())  # changes nothing
    assert world.count() == 3


@scenario()
async def test_a_released_partition_goes_and_can_come_again(world: World) -> None:
    await world.insert([(1, 1)], partition=1)
    await world.insert([(2, 2)], partition=2)
    await world.tick()
    world.seal()
    world.flush()
    await world.hand_off(world.finished())
    await world.insert([(3, 3)], partition=2)
    await world.tick()
    await world.node.load_collection(world.load_request((1,)))
    await world.node.set_partitions(COLLECTION, [ONE])
    assert world.keys() == [1]
    await world.insert([(4, 4)], partition=2)
    await world.tick()

    await world.node.load_collection(world.load_request(()))
    await world.node.watch_vchannel(world.watch_request())
    await world.node.set_partitions(COLLECTION, [ONE, TWO])
    served = {s.segment_id for s in (await world.node.status()).segments}
    await world.hand_off([s for s in world.finished() if s not in served])
    assert (world.keys(), world.count()) == ([1, 2, 3, 4], 4)


@scenario(partitions=(1,))
async def test_a_vchannel_followed_again_applies_nothing_that_was_handed_off(world: World) -> None:
    await world.insert([(1, 1)], partition=1)
    await world.tick()
    before = world.watch_request()  # as the metadata was before the flush
    world.seal()
    world.flush()
    await world.hand_off(world.finished())
    await world.node.load_collection(world.load_request((1, 2)))
    await world.node.watch_vchannel(before)
    await world.node.set_partitions(COLLECTION, [ONE, TWO])
    assert world.count() == 1


@scenario(partitions=(1, 2))
async def test_a_partition_that_was_dropped_meanwhile_may_still_be_named(world: World) -> None:
    await world.ddl(MsgKind.DROP_PARTITION, 2)
    await world.tick()
    await world.node.load_collection(world.load_request((1, 2)))
    await world.node.watch_vchannel(world.watch_request())
    await world.node.set_partitions(COLLECTION, [ONE, TWO])
    assert world.count(partition_ids=(TWO,)) == 0


@scenario()
async def test_partitions_created_later_are_served_when_the_collection_is_loaded_as_a_whole(
    world: World,
) -> None:
    await world.ddl(MsgKind.CREATE_PARTITION, 9)
    await world.insert([(1, 1)], partition=9)
    await world.tick()
    await world.node.set_partitions(COLLECTION, [ONE])  # decided before the partition was known
    assert world.keys() == [1]


@scenario()
async def test_loading_again_with_another_index_is_a_conflict(world: World) -> None:
    request = world.load_request()
    await world.node.load_collection(request)
    other = FieldIndexSpec(VECTOR, IndexID(6), {"index_type": "FLAT", "metric_type": "IP"})
    with pytest.raises(IndexConflict, match="release the collection"):
        await world.node.load_collection(
            LoadCollection(COLLECTION, world.schema, (), (other,), request.vchannels, True)
        )


@scenario()
async def test_a_vchannel_of_another_collection_is_refused(world: World) -> None:
    request = world.watch_request()
    with pytest.raises(Internal):
        await world.node.watch_vchannel(
            type(request)(COLLECTION, "by-dev-rootcoord-dml_0_8v0", request.checkpoint, (), (), ())
        )


# growing segments by themselves


def growing_segment() -> GrowingSegment:
    schema = schema_of(DataType.INT64)
    spec = resolve_index({"index_type": "FLAT", "metric_type": "L2"}, DataType.FLOAT_VECTOR, 2)
    return GrowingSegment(SegmentID(1), ONE, schema, {VECTOR: spec})


def arrival(rows: int, ts: int) -> NewRows:
    schema = schema_of(DataType.INT64)
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(np.zeros(2 * rows, dtype=np.float32)), type=schema.field("vector").arrow_type
    )
    numbers = pa.array(np.arange(rows) + ts)
    texts = pa.array(["{}"] * rows)
    batch = pa.record_batch([numbers, numbers, texts, vectors, texts], schema=schema.arrow_schema)
    return NewRows(batch, np.full(rows, ts, dtype=np.int64))


@pytest.mark.slow
def test_many_small_inserts_leave_few_blocks() -> None:
    segment = growing_segment()
    for ts in range(1000):
        segment.append([arrival(1, ts + 1)])
    assert segment.rows == 1000
    assert len(segment.blocks) <= 11
    stamps = np.concatenate([block.row_ts for block in segment.blocks])
    assert stamps.tolist() == list(range(1, 1001))


def test_rows_that_come_in_bulk_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_module, "MERGED_BYTES_MAX", 1000)
    segment = growing_segment()
    arrivals = [arrival(100, ts) for ts in (1, 200)]
    for new in arrivals:
        segment.append([new])
    assert [block.batch for block in segment.blocks] == [new.batch for new in arrivals]
    values = arrivals[0].batch.column("vector").values
    index = segment.blocks[0].vectors[VECTOR].index
    assert index._exact.stored.ctypes.data == values.buffers()[1].address


def test_merged_blocks_keep_their_deletes() -> None:
    segment = growing_segment()
    segment.append([arrival(4, 1)])
    message = DeleteMessage(Timestamp(50), VCHANNEL, COLLECTION, ONE, pa.array([2, 3]))
    segment.delete(deletes_of_messages([message], "id"))
    segment.append([arrival(3, 100)])
    [block] = segment.blocks
    assert block.deleted_ts is not None
    assert (block.deleted_ts < 2**62).tolist() == [False, True, True, False, False, False, False]


@scenario()
async def test_rows_do_not_keep_a_large_piece_of_log_alive(world: World) -> None:
    """A reader hands out views of what it read at once."""
    await world.insert([(1, 1)])
    stream = world.log._streams[PCHANNEL]
    entry = stream.entries[-1]
    padded = memoryview(bytes(entry.payload) + b"\x00" * 100_000)[: entry.payload_bytes]
    stream.entries[-1] = type(entry)(entry.position, entry.next, entry.header, padded, entry.payload_bytes)
    await world.tick()
    [segment] = follower(world).growing.values()
    values = segment.blocks[0].batch.column("value")
    start = np.frombuffer(padded.obj, dtype=np.uint8).ctypes.data
    assert not start <= values.buffers()[1].address < start + 100_000


@scenario()
async def test_writes_that_do_not_fit_the_collection_are_skipped_and_stop_nothing(world: World) -> None:
    await world.insert([(1, 1), (2, 2)])
    foreign = pa.record_batch([pa.array([1, 8], pa.int64()), pa.array(["red", "blue"])], ["id", "colour"])
    segment_id = next(iter(world.segments))
    for kind in (InsertMessage, UpsertMessage):
        await world.append(kind(Timestamp(world.stamp()), VCHANNEL, COLLECTION, ONE, segment_id, 0, foreign))
    strange = DeleteMessage(Timestamp(world.stamp()), VCHANNEL, COLLECTION, PartitionID(0), pa.array([b"1"]))
    await world.append(strange)
    await world.insert([(3, 3)])
    await world.tick()
    assert (world.keys(), world.count()) == ([1, 2, 3], 3)
    assert follower(world).failure is None


@scenario()
async def test_a_vchannel_whose_log_cannot_be_opened_can_be_followed_later(world: World) -> None:
    await world.insert([(1, 1)])
    await world.tick()
    world.node = world._new_node()
    await world.node.start()
    await world.node.load_collection(world.load_request())
    with (
        patch.object(world.log, "open_reader", side_effect=TrimmedLog("position 0 is trimmed")),
        pytest.raises(Unavailable, match="TrimmedLog"),
    ):
        await world.node.watch_vchannel(world.watch_request())
    status = await world.node.status()
    assert "TrimmedLog" in status.failures[VCHANNEL]
    assert status.positions == {}
    await world.node.release_collection(COLLECTION)
    await world.node.load_collection(world.load_request())
    await world.node.watch_vchannel(world.watch_request())
    await world.announce()
    assert world.keys() == [1]


@scenario()
async def test_the_log_is_kept_for_a_vchannel_whose_binlogs_are_being_loaded(world: World) -> None:
    """A commit and a trim come in between. The node names the position that it will read from."""
    await world.insert([(1, 1)])
    await world.tick()
    world.flush()
    start = world.checkpoint.position
    await world.insert([(2, 2)])
    await world.tick()
    world.node = world._new_node()
    await world.node.start()
    await world.node.load_collection(world.load_request())
    loading, loaded = asyncio.Event(), asyncio.Event()
    offload = world.node._loading.offload

    async def slow(function: Callable[..., Any], *args: Any) -> Any:
        loading.set()
        await loaded.wait()
        return await offload(function, *args)

    world.node._loading.offload = slow  # type: ignore[method-assign, assignment]
    watching = asyncio.create_task(world.node.watch_vchannel(world.watch_request()))
    await loading.wait()
    world.flush()
    assert world.checkpoint.position > start
    holds = LogHolds(SystemClock(), 60.0)
    positions = (await world.node.status()).positions
    holds.report(LogHold(NODE, pchannel, position) for pchannel, position in positions.items())
    assert holds.lowest() == {PCHANNEL: start}
    await world.log.trim(PCHANNEL, Position(min(world.checkpoint.position, holds.lowest()[PCHANNEL])))
    loaded.set()
    await watching
    await world.announce()
    await world.tick()
    assert world.keys() == [1, 2]
    status = await world.node.status()
    assert not status.failures
    assert status.positions[PCHANNEL] > start
