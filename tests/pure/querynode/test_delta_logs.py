"""Delta logs that many segments need: each is fetched and sorted once, and several are fetched at a time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.ids import ALL_PARTITIONS, CollectionID, FieldID, PartitionID
from elanus.core.messages import DeleteMessage
from elanus.core.schema import DataType, FieldSchema
from elanus.core.segments import BinlogFile
from elanus.core.timestamps import Timestamp
from elanus.querynode import delta_logs as delta_logs_module
from elanus.querynode import keys as keys_module
from elanus.querynode.deletes import DeleteBatch, DeleteBuffer, deletes_of_messages
from elanus.querynode.delta_logs import DeltaLogs
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.local import LocalStore
from elanus.storage.port import ObjectMissing

KEY = FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True)
ONE, TWO = PartitionID(1), PartitionID(2)
TOGETHER = 4


class Store(LocalStore):
    """Counts what is fetched. ``together``: each fetch waits until so many others are under way."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fetched: Counter[str] = Counter()
        self.together: threading.Barrier | None = None

    def open(self, path: str) -> pa.NativeFile:
        self.fetched[path] += 1
        if self.together is not None:
            self.together.wait(10.0)
        return super().open(path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def written(
    store: Store, count: int, scratch: Path, partition_id: PartitionID = ALL_PARTITIONS
) -> list[BinlogFile]:
    """File n holds the keys n and 1000 + n."""
    file_schema = delta_log_schema(KEY, CollectionID(7), "v0")
    files = []
    for number in range(count):
        path = f"delta_log/{partition_id}-{number}"
        with delta_log_writer(store, path, file_schema, scratch) as writer:
            keys = pa.array([1000 + number, number], pa.int64())
            writer.write(delete_rows(keys, Timestamp(10 + number), partition_id, file_schema))
            files.append(writer.finish())
    return files


def keys_in(
    logs: DeltaLogs,
    files: Sequence[BinlogFile],
    of: Sequence[BinlogFile] | None = None,
    at: PartitionID = ONE,
) -> list[int]:
    """The keys below 1000, sorted; ``of``: all files of the vchannel; ``at``: the partition."""
    current = {file.path for file in of or files}
    runs = logs.deletes("v0", files, current)
    found = [key for run in runs for batch in run.of_partition(at) for key in batch.keys.keys.to_pylist()]
    return sorted(key for key in found if key < 1000)


@pytest.mark.parametrize("fetches_max", [1, TOGETHER])
def test_what_many_segments_need_is_fetched_and_sorted_once(
    store: Store, tmp_path: Path, fetches_max: int
) -> None:
    files = written(store, 9, tmp_path)
    store.fetched.clear()
    logs = DeltaLogs(store, fetches_max)
    hashed: list[int] = []
    key_codes = keys_module.key_codes

    def counted(keys: pa.Array) -> keys_module.Codes:
        hashed.append(len(keys))
        return key_codes(keys)

    with patch.object(keys_module, "key_codes", counted):
        assert keys_in(logs, files) == list(range(9))
        first = len(hashed)
        for segment in range(3):
            assert set(keys_in(logs, files[segment:], files)) >= set(range(segment, 9))
    assert len(hashed) == first
    assert set(store.fetched.values()) == {1}
    assert len(store.fetched) == 9


def test_files_that_come_one_by_one_make_few_runs(store: Store, tmp_path: Path) -> None:
    files = written(store, 40, tmp_path)
    logs = DeltaLogs(store, 1)
    for count in range(1, 41):
        assert keys_in(logs, files[count - 1 : count], files[:count])
    assert keys_in(logs, files) == list(range(40))
    assert len(logs.deletes("v0", files, {file.path for file in files})) <= 6


def test_files_are_fetched_several_at_a_time(store: Store, tmp_path: Path) -> None:
    files = written(store, 2 * TOGETHER, tmp_path)
    store.together = threading.Barrier(TOGETHER)
    assert keys_in(DeltaLogs(store, TOGETHER), files) == list(range(2 * TOGETHER))


def test_only_batches_that_concern_the_partition_are_returned(store: Store, tmp_path: Path) -> None:
    files = [
        *written(store, 2, tmp_path),
        *written(store, 3, tmp_path, ONE),
        *written(store, 4, tmp_path, TWO),
    ]
    logs = DeltaLogs(store, 1)
    found = [sorted(keys_in(logs, files, at=partition)) for partition in (ONE, TWO, PartitionID(3))]
    assert found == [[0, 0, 1, 1, 2], [0, 0, 1, 1, 2, 3], [0, 1]]


def test_deletes_of_files_that_are_gone_are_dropped(store: Store, tmp_path: Path) -> None:
    files = written(store, 8, tmp_path)
    logs = DeltaLogs(store, 1)
    keys_in(logs, files[:6])
    held_bytes = logs.memory_bytes
    assert keys_in(logs, files[6:]) == [6, 7]
    assert logs.memory_bytes < held_bytes


def test_no_more_is_kept_than_it_may_once_nobody_loads(store: Store, tmp_path: Path) -> None:
    files = written(store, 3, tmp_path)
    logs = DeltaLogs(store, 1, kept_bytes_max=10)
    store.fetched.clear()
    for _ in range(3):
        assert keys_in(logs, files) == [0, 1, 2]
    assert set(store.fetched.values()) == {1}
    assert logs.memory_bytes > 10
    logs.trim()
    assert logs.memory_bytes == 0
    assert keys_in(logs, files) == [0, 1, 2]
    assert logs.deletes("v1", files[:1], {files[0].path})
    assert 0 < logs.memory_bytes < 100


def test_what_may_be_kept_is_kept(store: Store, tmp_path: Path) -> None:
    files = written(store, 3, tmp_path)
    logs = DeltaLogs(store, 1)
    keys_in(logs, files)
    held_bytes = logs.memory_bytes
    logs.trim()
    assert logs.memory_bytes == held_bytes > 0


def test_a_vchannel_without_deletes_leaves_nothing_behind(store: Store, tmp_path: Path) -> None:
    logs = DeltaLogs(store, 1)
    for number in range(10):
        assert logs.deletes(f"v{number}", [], set()) == ()
    [file] = written(store, 1, tmp_path)
    store.delete(file.path)
    with pytest.raises(ObjectMissing):
        logs.deletes("v10", [file], {file.path})
    assert not logs._vchannels


def test_what_is_forgotten_frees_its_bytes_and_is_read_again(store: Store, tmp_path: Path) -> None:
    files = written(store, 3, tmp_path)
    logs = DeltaLogs(store, 1)
    keys_in(logs, files)
    logs.deletes("v1", files[:1], {files[0].path})
    logs.forget(["v0", "v2"])
    one_bytes = logs.memory_bytes
    logs.forget(["v1"])
    assert logs.memory_bytes == 0 < one_bytes
    assert keys_in(logs, files) == [0, 1, 2]


def test_what_is_forgotten_while_it_is_read_is_not_kept(store: Store, tmp_path: Path) -> None:
    files = written(store, 2, tmp_path)
    logs = DeltaLogs(store, 1)
    of_delta_logs = delta_logs_module.deletes_of_delta_logs

    def forgotten(tables: Sequence[pa.Table]) -> Mapping[PartitionID, DeleteBatch]:
        logs.forget(["v0"])
        return of_delta_logs(tables)

    with patch.object(delta_logs_module, "deletes_of_delta_logs", forgotten):
        assert keys_in(logs, files) == [0, 1]
    assert logs.memory_bytes == 0
    assert not logs._vchannels


def test_only_so_many_vchannels_are_kept(store: Store, tmp_path: Path) -> None:
    [file] = written(store, 1, tmp_path)
    logs = DeltaLogs(store, 1, kept_vchannels_max=3)
    for number in range(10):
        assert logs.deletes(f"v{number}", [file], {file.path})
    assert list(logs._vchannels) == ["v7", "v8", "v9"]


def test_many_deletes_are_read_a_few_at_a_time_into_runs_of_bounded_length(
    store: Store, tmp_path: Path
) -> None:
    files = written(store, 40, tmp_path)
    read: list[int] = []
    of_delta_logs = delta_logs_module.deletes_of_delta_logs

    def counted(tables: Sequence[pa.Table]) -> Mapping[PartitionID, DeleteBatch]:
        read.append(sum(table.num_rows for table in tables))
        return of_delta_logs(tables)

    logs = DeltaLogs(store, TOGETHER, read_at_once_max=7, run_deletes_max=20)
    with patch.object(delta_logs_module, "deletes_of_delta_logs", counted):
        assert keys_in(logs, files) == list(range(40))
    assert read == [6] * 13 + [2]  # three files of two deletes each
    runs = logs.deletes("v0", files, {file.path for file in files})
    assert max(run.deletes for run in runs) <= 20
    assert len(runs) <= 8
    assert sum(run.deletes for run in runs) == 80


def test_a_file_with_more_deletes_than_are_read_at_once_is_read_alone(store: Store, tmp_path: Path) -> None:
    files = written(store, 3, tmp_path)
    logs = DeltaLogs(store, 1, read_at_once_max=1, run_deletes_max=1)
    assert keys_in(logs, files) == [0, 1, 2]
    assert len(logs.deletes("v0", files, {file.path for file in files})) == 3


def test_what_was_read_before_an_error_is_counted(store: Store, tmp_path: Path) -> None:
    files = written(store, 3, tmp_path)
    store.delete(files[2].path)
    logs = DeltaLogs(store, 1, read_at_once_max=1)
    with pytest.raises(ObjectMissing, match=files[2].path):
        keys_in(logs, files)
    failed_bytes = logs.memory_bytes
    assert keys_in(logs, files[:2], files) == [0, 1]
    assert logs.memory_bytes == failed_bytes > 0


@pytest.mark.parametrize("fetches_max", [1, TOGETHER])
def test_a_missing_file_is_named_and_nothing_is_kept_of_it(
    store: Store, tmp_path: Path, fetches_max: int
) -> None:
    files = written(store, 3, tmp_path)
    content = bytes(store.get(files[1].path))
    store.delete(files[1].path)
    logs = DeltaLogs(store, fetches_max)
    with pytest.raises(ObjectMissing, match=files[1].path):
        keys_in(logs, files)
    store.put(files[1].path, content)
    assert keys_in(logs, files) == [0, 1, 2]


# deletes from the log, kept for segments that are loaded later


def deleted(
    keys: Sequence[int], ts: int, partition_id: PartitionID = ALL_PARTITIONS
) -> tuple[DeleteBatch, ...]:
    message = DeleteMessage(Timestamp(ts), "v0", CollectionID(7), partition_id, pa.array(keys, pa.int64()))
    return deletes_of_messages([message], "id")


def pairs(batches: Sequence[DeleteBatch], after: int) -> set[tuple[int, int, int]]:
    return {
        (key, ts, batch.partition_id)
        for batch in batches
        for key, ts in zip(batch.keys.keys.to_pylist(), batch.ts.tolist(), strict=True)
        if ts > after
    }


packs = st.lists(
    st.tuples(st.lists(st.integers(0, 9), max_size=4), st.sampled_from([ALL_PARTITIONS, ONE])), max_size=30
)


@given(packs, st.integers(0, 30), st.integers(0, 30))
def test_the_buffer_has_all_deletes_since_its_floor(
    kept: list[tuple[list[int], PartitionID]], floor: int, since: int
) -> None:
    buffer = DeleteBuffer(Timestamp(0))
    for number, (keys, partition_id) in enumerate(kept, start=1):
        buffer.keep(Timestamp(number), deleted(keys, number, partition_id))
    buffer.forget(Timestamp(floor))
    since = max(since, floor)
    all_of_them = pairs(
        [b for n, (keys, p) in enumerate(kept, start=1) for b in deleted(keys, n, p)], after=since
    )
    found = buffer.since(Timestamp(since))
    assert pairs(found, after=since) == all_of_them
    held = [batch for runs in buffer._runs.values() for batch in (run.batch for run in runs)]
    assert buffer.memory_bytes == sum(batch.memory_bytes for batch in held)


def test_many_packs_are_few_runs() -> None:
    buffer = DeleteBuffer(Timestamp(0))
    for number in range(1, 2001):
        buffer.keep(Timestamp(number), deleted([number], number))
    assert len(buffer.since(Timestamp(0))) <= 12
    buffer.forget(Timestamp(2000))
    assert (buffer.since(Timestamp(2000)), buffer.memory_bytes) == ([], 0)
