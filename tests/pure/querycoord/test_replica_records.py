"""Replica records of any size: written whole or not at all, and no more than changed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from elanus.api.query_channel import QueryChannelInfo
from elanus.core.errors import Unavailable
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.core.timestamps import Timestamp
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import Compare, Delete, OutcomeUnknown, Put, Versioned
from elanus.querycoord import replica_records
from elanus.querycoord.replica_records import PART_MAX, ReplicaRecord
from elanus.querycoord.state import Load, LoadState

CID = CollectionID(7)
FIRST = 440_000_000_000_000_000


class CountingMeta(MemoryMeta):
    """Counts bytes written. After ``left`` transactions the rest fail, or their answers are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.written_bytes = 0
        self.left = 2**31
        self.loses_answers = False

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        self.left -= 1
        if self.left < 0 and not self.loses_answers:
            raise Unavailable("not reached")
        self.written_bytes += sum(len(op.value) for op in operations if isinstance(op, Put))
        revision = await super().txn(operations, compares)
        if self.left < 0:
            raise OutcomeUnknown("the answer is lost")
        return revision


def record_of(
    numbers: Sequence[int], *, imported: bool = False, replica: int = 0, node: int = 1
) -> ReplicaRecord:
    """A record of these segments, on two nodes, with a plan for the last of them."""
    ids = [SegmentID(FIRST + 1000 * number) for number in numbers]
    places = {s: NodeID(node + place % 2) for place, s in enumerate(ids)}
    visible = dict.fromkeys(ids, Timestamp(FIRST)) if imported else {}
    info = QueryChannelInfo(CID, replica, "q", 3, places, {"v": NodeID(1)}, 5, visible)
    nodes = (NodeID(node), NodeID(node + 1))
    plan = dict.fromkeys(ids[-3:], NodeID(9))
    return ReplicaRecord(info, nodes, plan, {s: Timestamp(4) for s in ids[-2:]}, (PartitionID(1),))


async def stored(meta: MemoryMeta) -> list[ReplicaRecord]:
    """Read as a coordinator does that takes over now."""
    return await LoadState(meta).replicas(CID)


async def parts(meta: MemoryMeta) -> list[str]:
    return [key for key, _ in await meta.list("querycoord/replica_part/")]


@pytest.mark.slow
@pytest.mark.parametrize("imported", [False, True])
async def test_fifty_thousand_segments_are_recorded_and_a_change_writes_little(imported: bool) -> None:
    meta = CountingMeta()
    state = LoadState(meta)
    record = record_of(range(50_000), imported=imported)
    await state.put_replica(record)
    assert await stored(meta) == [record]
    meta.written_bytes = 0
    moved = SegmentID(FIRST + 1000 * 777)
    record = replace(
        record, info=replace(record.info, version=4, sealed={**record.info.sealed, moved: NodeID(8)})
    )
    await state.put_replica(record)
    assert meta.written_bytes < 100_000
    assert await stored(meta) == [record]
    small = record_of(range(10))
    await state.put_replica(small)
    assert await stored(meta) == [small]
    assert await parts(meta) == []


async def test_a_record_of_few_segments_is_one_value(meta: CountingMeta) -> None:
    state = LoadState(meta)
    record = record_of(range(PART_MAX))
    await state.put_replica(record)
    ((key, value),) = await meta.list("")
    assert key == "querycoord/replica/7/0"
    assert msgspec.json.decode(value.value, type=ReplicaRecord) == record, "as earlier releases wrote it"
    assert await stored(meta) == [record]


@pytest.fixture
def meta() -> CountingMeta:
    return CountingMeta()


async def test_any_course_of_changes_is_read_back(meta: CountingMeta) -> None:
    drawn = random.Random(5)
    state, numbers = LoadState(meta), set[int]()
    for step in range(60):
        if step % 30 < 18:
            numbers ^= set(drawn.sample(range(6000), drawn.choice([1, 5, 300])))
        else:
            numbers -= set(drawn.sample(sorted(numbers), len(numbers) * drawn.randint(0, 4) // 5))
        record = record_of(sorted(numbers), imported=bool(step % 2), node=drawn.randint(1, 3))
        await state.put_replica(record)
        assert await stored(meta) == [record]
        if drawn.random() < 0.2:
            state = LoadState(meta)  # another coordinator continues
    assert len(await parts(meta)) <= 8 + 8 * len(numbers) // PART_MAX


@pytest.mark.parametrize("loses_answers", [False, True])
@pytest.mark.parametrize("transactions", range(4))
async def test_an_interrupted_change_is_made_whole_or_not_at_all(
    meta: CountingMeta, monkeypatch: pytest.MonkeyPatch, transactions: int, loses_answers: bool
) -> None:
    monkeypatch.setattr(replica_records, "TXN_OPERATIONS_MAX", 10)
    meta.loses_answers = loses_answers
    state = LoadState(meta)
    before = record_of(range(6_000))
    await state.put_replica(before)
    after = record_of(range(6_000), node=5)
    meta.left = transactions
    with pytest.raises(Unavailable):
        await state.put_replica(after)
    meta.left = 2**31
    (found,) = await stored(meta)
    assert found in (before, after)
    count = len(await parts(meta))
    await state.put_replica(before)  # the same coordinator tries something else
    assert await stored(meta) == [before]
    assert len(await parts(meta)) <= count + 2, "what the interruption left is gone"


async def test_replicas_do_not_touch_each_other_and_removal_leaves_nothing(meta: CountingMeta) -> None:
    state = LoadState(meta)
    records = [record_of(range(2000), replica=number) for number in (0, 1, 10)]
    for record in records:
        await state.put_replica(record)
    await state.put(Load(CID, True, ()))
    assert await stored(meta) == records
    await state.remove_replica(records[1])
    assert await stored(meta) == [records[0], records[2]]
    await state.remove(CID)
    assert await meta.list("") == []


async def test_what_an_interrupted_removal_left_is_removed_at_the_next_start(
    meta: CountingMeta,
) -> None:
    state = LoadState(meta)
    await state.put(Load(CID, True, ()))
    await state.put_replica(record_of(range(2000)))
    meta.left = 1
    with pytest.raises(Unavailable):
        await state.remove(CID)
    meta.left = 2**31
    assert await parts(meta)
    assert await LoadState(meta).restore() == []
    assert await meta.list("") == []


async def test_a_restart_reads_the_records_of_all_collections_together(
    meta: CountingMeta, monkeypatch: pytest.MonkeyPatch
) -> None:
    collections = [CollectionID(100 + number) for number in range(40)]
    loads = [Load(collection_id, True, (), 2) for collection_id in collections]
    records = {}
    state = LoadState(meta)
    for number, load in enumerate(loads):
        ids = range(PART_MAX + 1) if number == 7 else range(3)  # one of them is in parts
        made = [record_of(ids, replica=replica) for replica in (0, 1)]
        records[load.collection_id] = [
            replace(one, info=replace(one.info, collection_id=load.collection_id)) for one in made
        ]
        await state.put(load)
        for record in records[load.collection_id]:
            await state.put_replica(record)
    await state.put(Load(CID, True, ()))  # interrupted before its first replica

    lists: list[str] = []
    read = meta.list

    async def counted(prefix: str) -> Sequence[tuple[str, Versioned]]:
        lists.append(prefix)
        return await read(prefix)

    monkeypatch.setattr(meta, "list", counted)
    monkeypatch.setattr(replica_records, "_PARTS_AT_ONCE", 1)
    state = LoadState(meta)
    restored = {load.collection_id: found for load, found in await state.restore()}
    assert restored == {**records, CID: []}
    assert len(lists) == 3, lists
    changed = replace(records[collections[7]][0], plan={})
    await state.put_replica(changed)
    assert len(lists) == 3, "what was read is known"
    monkeypatch.undo()
    assert (await LoadState(meta).replicas(collections[7]))[0] == changed
