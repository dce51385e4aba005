"""The range and the output of a flush, on a pchannel in memory."""

from __future__ import annotations

import pickle
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from insert_log_files import read_vectors
from streams import MINE, OTHER, PCHANNEL, SCHEMA, STEP, delete, insert, stream, tick, upsert

from elanus.core.catalog import Checkpoint
from elanus.core.errors import Internal
from elanus.core.ids import CollectionID, PartitionID
from elanus.core.messages import DdlMessage, EpochMark, Message, MsgKind
from elanus.core.packs import ORIGIN, PackAssembler
from elanus.core.timestamps import Timestamp
from elanus.log.port import LogEntry, Position
from elanus.pipeline import flush
from elanus.pipeline.flush import flush_job, flush_task
from elanus.pipeline.range_files import write_range
from elanus.pipeline.ranges import FlushPlan, RangeOutcome, shared, writes_in_range
from elanus.storage.binlog import read_columns
from elanus.storage.delta_log import read_delta_log
from elanus.storage.local import LocalStore
from elanus.storage.stats_log import read_stats_logs


def plan(until: int, start: Checkpoint = ORIGIN, stop: int = 1000 * STEP) -> FlushPlan:
    return FlushPlan(
        attempt="try-1",
        collection_id=CollectionID(7),
        schema=SCHEMA,
        vchannel=MINE,
        pchannel=PCHANNEL,
        start=start,
        until=Timestamp(until),
        stop=Position(stop),
        log_url="file:///log",
        store_url="file:///files",
        scratch_dir="/scratch",
    )


def stamps(entries: list[LogEntry], of: FlushPlan) -> list[int]:
    return [message.ts for message in writes_in_range(entries, of)]


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "files")


def flushed(store: LocalStore, of: FlushPlan, entries: list[LogEntry], name: str = "one") -> RangeOutcome:
    scratch = Path(store.url.removeprefix("file://")).parent
    return write_range(of, writes_in_range(entries, of), store, scratch, name)


def keys_of(store: LocalStore, outcome: RangeOutcome) -> dict[int, list[int]]:
    return {
        output.segment_id: read_columns(store, output.insert_logs, ["id"])["id"].to_pylist()
        for output in outcome.segments
    }


def test_a_range_is_a_span_of_time_not_of_positions() -> None:
    entries = stream(insert(12, 1, 0), insert(5, 1, 1), insert(8, 1, 2), tick(10), insert(11, 1, 3), tick(20))
    assert stamps(entries, plan(until=10)) == [5, 8]
    assert stamps(entries, plan(until=20)) == [5, 8, 11, 12]
    later = Checkpoint(Timestamp(10), position=0, tick=Timestamp(0), epoch=0)
    assert stamps(entries, plan(until=20, start=later)) == [11, 12]


def test_other_vchannels_ddl_and_empty_writes_are_passed_over() -> None:
    drop = DdlMessage(MsgKind.DROP_PARTITION, Timestamp(6), MINE, CollectionID(7), PartitionID(1))
    entries = stream(
        insert(5, 1, 0, vchannel=OTHER),
        drop,
        insert(7, 1, 1),
        insert(8, 1),
        delete(9, vchannel=OTHER),
        tick(10),
    )
    assert stamps(entries, plan(until=10)) == [7]


def test_few_rows_do_not_keep_the_part_of_the_log_that_was_read_with_them() -> None:
    """A reader gets 32 MB of the log at a time, and a row group of rare rows is in memory for gigabytes."""
    pieces = []

    def read(entry: LogEntry) -> LogEntry:
        if not entry.payload:
            return entry
        piece = np.zeros(1 << 20, dtype=np.uint8)
        piece[: len(entry.payload)] = entry.payload
        pieces.append(weakref.ref(piece))
        return replace(entry, payload=memoryview(piece)[: len(entry.payload)])

    entries = stream(insert(5, 1, 0), delete(6, 1), upsert(7, 1, 2), tick(10))
    writes = list(writes_in_range(map(read, entries), plan(until=10)))
    assert [write.ts for write in writes] == [5, 6, 7]
    assert [piece() is None for piece in pieces] == [True, True, True]


def test_late_messages_belong_to_no_range() -> None:
    entries = stream(insert(5, 1, 0), tick(10), insert(9, 1, 1), insert(10, 1, 2), insert(11, 1, 3), tick(20))
    assert stamps(entries, plan(until=20)) == [5, 11]


def test_what_is_late_is_decided_by_the_tick_and_epoch_in_the_checkpoint() -> None:
    entries = stream(tick(30, epoch=1), insert(15, 1, 0), insert(25, 1, 1), tick(40, epoch=2))
    in_force = Checkpoint(Timestamp(10), position=0, tick=Timestamp(20), epoch=2)
    assert stamps(entries, plan(until=40, start=in_force)) == [25]
    ignored_tick = stream(EpochMark(Timestamp(1), 2), tick(30, epoch=1), insert(5, 1, 0), tick(40, epoch=2))
    assert stamps(ignored_tick, plan(until=40)) == [5]


@pytest.mark.parametrize(
    "messages",
    [(), (insert(5, 1, 0),), (insert(5, 1, 0), tick(9)), (insert(5, 1, 0), tick(9), tick(11))],
    ids=["empty", "no tick", "too low a tick", "passed over"],
)
def test_a_range_that_does_not_end_at_a_tick_is_an_error(messages: tuple[Message, ...]) -> None:
    with pytest.raises(Internal, match="no tick 10"):
        stamps(stream(*messages), plan(until=10))


MESSAGES = st.lists(
    st.one_of(
        st.builds(insert, st.integers(1, 60), st.just(1), st.just(0)),
        st.builds(tick, st.integers(1, 60), st.integers(1, 2)),
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=200)
@given(messages=MESSAGES)
def test_ranges_one_after_the_other_cover_each_message_exactly_once(messages: list[Message]) -> None:
    """From each checkpoint the next range, however the ticks fall, and all of it as if in one go."""
    entries = stream(*messages, tick(100, epoch=9))
    assembler: PackAssembler[LogEntry] = PackAssembler(ORIGIN, [MINE])
    packs = [assembler.feed(e.header, e.position, e.next, e) for e in entries]
    pieces: list[int] = []
    start = ORIGIN
    for pack in filter(None, packs):
        from_there = [entry for entry in entries if entry.position >= start.position]
        pieces += stamps(from_there, plan(until=pack.end_ts, start=start))
        start = pack.seek
    assert pieces == stamps(entries, plan(until=100))


def test_rows_land_in_their_segments_with_ids_and_times(store: LocalStore) -> None:
    entries = stream(
        insert(5, 1, 50, 51, row_id=100),
        insert(4, 2, 60, row_id=200),
        insert(6, 1, 52, row_id=300),
        tick(10),
    )
    outcome = flushed(store, plan(until=10), entries)
    assert keys_of(store, outcome) == {2: [60], 1: [50, 51, 52]}
    first = next(output for output in outcome.segments if output.segment_id == 1)
    table = read_columns(store, first.insert_logs, ["RowID", "Timestamp"])
    assert table.to_pydict() == {"RowID": [100, 101, 300], "Timestamp": [5, 5, 6]}
    assert read_vectors(store, first.insert_logs, "v").tolist() == [[50, -50], [51, -51], [52, -52]]
    tags = read_columns(store, first.insert_logs, ["tags"]).column("tags")
    assert tags.to_pylist() == [[2, 2], [], [1]]
    (stats,) = read_stats_logs(store, first.stats_logs)
    assert (stats.rows, stats.pk_min, stats.pk_max) == (3, 50, 52)
    assert stats.may_contain(pa.array([50, 51, 52, 60])).tolist() == [True, True, True, False]
    assert outcome.delta is None
    assert first.insert_logs[0].path == "insert_log/7/1/1/one.parquet"
    assert first.stats_logs == ("stats_log/7/1/1/one.json",)
    assert (first.insert_logs[0].ts_min, first.insert_logs[0].ts_max) == (5, 6)


def test_deletes_and_upserts_are_written_to_a_delta_log(store: LocalStore) -> None:
    entries = stream(
        delete(7, 1, 2), upsert(5, 1, 9, 8), delete(6, 3, partition=PartitionID(4)), insert(5, 1, 1), tick(10)
    )
    outcome = flushed(store, plan(until=10), entries)
    assert keys_of(store, outcome) == {1: [1, 8, 9]}
    assert outcome.delta is not None
    assert read_delta_log(store, outcome.delta).to_pydict() == {
        "PrimaryKey": [9, 8, 3, 1, 2],
        "Timestamp": [5, 5, 6, 7, 7],
        "PartitionID": [0, 0, 4, 0, 0],
    }
    assert (outcome.delta.ts_min, outcome.delta.ts_max) == (5, 7)
    assert outcome.files == (*outcome.segments[0].insert_logs, outcome.delta)


def test_the_keys_that_an_upsert_replaces_are_in_the_delta_log_and_its_own_are_not(store: LocalStore) -> None:
    replacing = replace(upsert(5, 1, 9, 8), replaced=pa.array([2, 1], pa.int64()), deletes_in=PartitionID(4))
    outcome = flushed(store, plan(until=10), stream(insert(4, 1, 1, 2), replacing, tick(10)))
    assert keys_of(store, outcome) == {1: [1, 2, 8, 9]}
    assert outcome.delta is not None
    assert read_delta_log(store, outcome.delta).to_pydict() == {
        "PrimaryKey": [2, 1],
        "Timestamp": [5, 5],
        "PartitionID": [4, 4],
    }


@pytest.mark.parametrize("group_rows", [2, 100])  # a file written once more, rows held in memory
def test_rows_are_sorted_by_key_and_keep_their_times_and_ids(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_rows: int
) -> None:
    monkeypatch.setattr("elanus.storage.binlog.rows_per_group", lambda row_bytes: group_rows)
    entries = stream(
        insert(4, 1, 30, 10, row_id=100),
        insert(5, 2, 7, 8, row_id=200),
        upsert(6, 1, 10),
        insert(7, 1, 20, row_id=400),
        tick(10),
    )
    outcome = flushed(store, plan(until=10), entries)
    unsorted, sorted_already = outcome.segments
    assert [output.insert_logs[0].is_sorted for output in outcome.segments] == [True, True]
    table = read_columns(store, unsorted.insert_logs, ["id", "Timestamp", "RowID"])
    assert table.to_pydict() == {
        "id": [10, 10, 20, 30],
        "Timestamp": [4, 6, 7, 4],
        "RowID": [101, 0, 400, 100],
    }
    vectors = read_vectors(store, unsorted.insert_logs, "v").tolist()
    assert vectors == [[10, -10], [10, -10], [20, -20], [30, -30]]
    assert (unsorted.insert_logs[0].ts_min, unsorted.insert_logs[0].ts_max) == (4, 7)
    assert unsorted.insert_logs[0].size_bytes == store.head(unsorted.insert_logs[0].path).size_bytes
    assert keys_of(store, outcome)[sorted_already.segment_id] == [7, 8]
    assert not [file for file in tmp_path.iterdir() if file.is_file()], "the scratch directory is empty"


def test_an_empty_range_writes_nothing(store: LocalStore) -> None:
    outcome = flushed(store, plan(until=10), stream(tick(10)))
    assert outcome == RangeOutcome(MINE, (), None)
    assert list(store.list("")) == []


def test_the_same_range_twice_leaves_two_sets_of_files_that_do_not_touch(store: LocalStore) -> None:
    entries = stream(insert(5, 1, 1), delete(6, 2), tick(10))
    first = flushed(store, plan(until=10), entries, "one")
    second = flushed(store, plan(until=10), entries, "two")
    assert not {file.path for file in first.files} & {file.path for file in second.files}
    assert keys_of(store, first) == keys_of(store, second) == {1: [1]}


def test_an_error_half_way_leaves_no_open_files(store: LocalStore, tmp_path: Path) -> None:
    writes = writes_in_range(stream(insert(5, 1, 1), delete(5, 1), tick(9)), plan(until=10))
    with pytest.raises(Internal, match="no tick 10"):
        write_range(plan(until=10), writes, store, tmp_path, "one")
    assert list(tmp_path.glob("*.parquet")) == []
    assert list(store.list("")) == []


def test_a_flush_job_accounts_for_its_files(store: LocalStore) -> None:
    outcome = flushed(store, plan(until=10), stream(insert(5, 1, 1, 2), delete(6, 2), tick(10)))
    job = flush_job([plan(until=10)], 2)
    assert job.inputs == (MINE,)
    output = job.output([(outcome, RangeOutcome(OTHER, (), None))])
    assert output.objects == tuple(file.path for file in outcome.files)
    assert output.rows == 3
    assert output.size_bytes == sum(store.head(file.path).size_bytes for file in outcome.files)


def test_a_plan_travels() -> None:
    assert pickle.loads(pickle.dumps(plan(until=10))) == plan(until=10)


def test_writes_that_do_not_fit_the_schema_are_left_out_and_named(store: LocalStore) -> None:
    foreign = pa.record_batch([pa.array([3, 4], pa.int64()), pa.array(["red", "blue"])], ["id", "colour"])
    entries = stream(
        insert(5, 1, 0, 1),
        replace(insert(6, 1, 0), rows=foreign),
        replace(upsert(7, 2, 0), rows=foreign),
        replace(delete(8), primary_keys=pa.array(["0"])),
        replace(insert(9, 1, 9), collection_id=CollectionID(8)),
        insert(10, 1, 2),
        tick(20),
    )
    outcome = flushed(store, plan(until=20), entries)
    assert keys_of(store, outcome) == {1: [0, 1, 2]}
    assert outcome.delta is None
    assert [(q.position, q.ts, q.segment_id, q.rows) for q in outcome.quarantined] == [
        (STEP, 6, 1, 2),
        (2 * STEP, 7, 2, 2),
        (3 * STEP, 8, 0, 1),
        (4 * STEP, 9, 1, 1),
    ]
    assert {q.vchannel for q in outcome.quarantined} == {MINE}
    assert all(q.reason for q in outcome.quarantined)


def test_ranges_share_a_task_when_there_are_more_of_them_than_slots() -> None:
    many = [replace(plan(until=10, stop=100), vchannel=f"{PCHANNEL}_{n}v0") for n in range(6)]
    assert shared(many, 8) == [(one,) for one in many], "every slot has work"
    assert shared(many, 3) == [(many[0], many[1]), (many[2], many[3]), (many[4], many[5])]
    assert [len(task) for task in shared(many, 1)] == [4, 2], "each range has memory of its own"
    elsewhere = replace(many[1], pchannel="by-dev-rootcoord-dml_1")
    assert shared([many[0], elsewhere, many[2]], 1) == [(many[0], many[2]), (elsewhere,)]
    later = replace(many[1], start=Checkpoint(Timestamp(10), position=100, tick=Timestamp(0), epoch=0))
    assert shared([many[0], later], 1) == [(many[0],), (later,)], "what is between them would be read too"


def test_ranges_of_a_pchannel_read_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = stream(
        insert(5, 1, 1),
        insert(6, 2, 2, vchannel=OTHER),
        tick(10),
        insert(12, 1, 3),
        insert(13, 2, 4, vchannel=OTHER),
        delete(14, 1),
        tick(20),
    )
    reads = []

    def reader(pchannel: str, start: Position, stop: Position) -> list[LogEntry]:
        reads.append((pchannel, start, stop))
        return [entry for entry in entries if start <= entry.position < stop]

    monkeypatch.setattr(flush, "range_reader", lambda url: reader)
    here = replace(plan(until=20), store_url=(tmp_path / "files").as_uri(), scratch_dir=str(tmp_path / "s"))
    later = Checkpoint(Timestamp(10), position=2 * STEP, tick=Timestamp(0), epoch=0)
    plans = (
        replace(here, start=later, attempt="mine"),
        replace(here, vchannel=OTHER, collection_id=CollectionID(7), attempt="other", until=Timestamp(20)),
        replace(here, vchannel=OTHER, until=Timestamp(10), attempt="short", stop=Position(3 * STEP)),
    )
    mine, other, short = flush_task(plans)
    assert reads == [(PCHANNEL, Position(0), Position(1000 * STEP))]
    store = LocalStore(tmp_path / "files")
    assert (keys_of(store, mine), keys_of(store, other)) == ({1: [3]}, {2: [2, 4]})
    assert keys_of(store, short) == {2: [2]}
    assert mine.delta is not None
    assert other.delta is None
    with pytest.raises(Internal, match=f"{OTHER}: the log from 0 to 10000 has no tick 21"):
        flush_task((plans[0], replace(plans[1], until=Timestamp(21), attempt="again")))
