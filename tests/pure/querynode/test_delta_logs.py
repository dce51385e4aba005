"""Delta logs that many segments need: each file is fetched once, and several at a time."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from elanus.core.ids import ALL_PARTITIONS, CollectionID, FieldID
from elanus.core.schema import DataType, FieldSchema
from elanus.core.segments import BinlogFile
from elanus.core.timestamps import Timestamp
from elanus.querynode.delta_logs import DeltaLogs
from elanus.storage.delta_log import PRIMARY_KEY_COLUMN, delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.local import LocalStore
from elanus.storage.port import ObjectMissing

KEY = FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True)
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


def written(store: Store, count: int, scratch: Path) -> list[BinlogFile]:
    file_schema = delta_log_schema(KEY, CollectionID(7), "v0")
    files = []
    for number in range(count):
        with delta_log_writer(store, f"delta_log/{number}", file_schema, scratch) as writer:
            keys = pa.array([number, 1000 + number], pa.int64())
            writer.write(delete_rows(keys, Timestamp(10 + number), ALL_PARTITIONS, file_schema))
            files.append(writer.finish())
    return files


def keys_of(tables: list[pa.Table]) -> list[int]:
    return [table.column(PRIMARY_KEY_COLUMN)[0].as_py() for table in tables]


@pytest.mark.parametrize("fetches_max", [1, TOGETHER])
def test_what_many_segments_need_is_fetched_once(store: Store, tmp_path: Path, fetches_max: int) -> None:
    files = written(store, 9, tmp_path)
    store.fetched.clear()
    logs = DeltaLogs(store, fetches_max)
    for segment in range(3):
        assert keys_of(logs.read(files[segment:])) == list(range(segment, 9))
    assert set(store.fetched.values()) == {1}
    assert len(store.fetched) == 9


def test_files_are_fetched_several_at_a_time_and_come_in_their_order(store: Store, tmp_path: Path) -> None:
    files = written(store, 2 * TOGETHER, tmp_path)
    store.together = threading.Barrier(TOGETHER)
    assert keys_of(DeltaLogs(store, TOGETHER).read(files)) == list(range(2 * TOGETHER))


def test_no_more_is_kept_than_it_may(store: Store, tmp_path: Path) -> None:
    files = written(store, 3, tmp_path)
    size_bytes = DeltaLogs(store, 1).read(files)[0].nbytes
    store.fetched.clear()
    logs = DeltaLogs(store, 1, kept_bytes_max=2 * size_bytes)
    logs.read(files)
    assert keys_of(logs.read(files[1:])) == [1, 2]
    assert set(store.fetched.values()) == {1}
    assert keys_of(logs.read(files)) == [0, 1, 2]
    assert store.fetched[files[0].path] == 2


@pytest.mark.parametrize("fetches_max", [1, TOGETHER])
def test_a_missing_file_is_named(store: Store, tmp_path: Path, fetches_max: int) -> None:
    files = written(store, 3, tmp_path)
    store.delete(files[1].path)
    with pytest.raises(ObjectMissing):
        DeltaLogs(store, fetches_max).read(files)
