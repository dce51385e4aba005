"""Insert logs are opened once for all that is read from them, one at a time; the rows are the same."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from insert_log_files import read_vectors, write_insert_log
from opened_files import OpenedFiles
from samples import EVERY_TYPE, KEY, rows_of_every_type

from elanus.core.field_changes import with_added_field
from elanus.core.ids import FieldID
from elanus.core.nullable import NullableVectors
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.storage import insert_logs
from elanus.storage.binlog import insert_log_schema, read_columns, with_system_columns
from elanus.storage.insert_logs import InsertLogs
from elanus.storage.local import LocalStore
from elanus.storage.port import CorruptObject

NAMES = ["Timestamp", "id", "name"]
WANTED = [EVERY_TYPE.field("vector"), EVERY_TYPE.field("bits")]
WIDE = with_added_field(
    EVERY_TYPE, FieldSchema(FieldID(0), "later", DataType.FLOAT_VECTOR, dim=2, nullable=True)
)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "files")


def manifest_of(store: LocalStore, tmp_path: Path, files: int, commit_ts: int = 0) -> SegmentManifest:
    """A segment of 30 rows in so many files."""
    written = []
    for number, keys in enumerate(np.array_split(np.arange(30), files)):
        rows = rows_of_every_type(len(keys), int(keys[0]))
        batch = with_system_columns(rows, 0, Timestamp(5 + number), insert_log_schema(EVERY_TYPE, KEY))
        path = f"insert_log/{commit_ts}-{number}.parquet"
        written.append(write_insert_log(store, path, EVERY_TYPE, KEY, [batch], tmp_path))
    manifest = SegmentManifest(
        KEY.segment_id, KEY.collection_id, KEY.partition_id, KEY.vchannel, tuple(written), (), NO_TIMESTAMP
    )
    return replace(manifest, commit_ts=Timestamp(commit_ts))


class RemoteStore(LocalStore):
    """Read by ranges, as a network store is."""

    def open(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(io.BytesIO(self.get(path).to_pybytes()), mode="r")


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "large":
        monkeypatch.setattr(insert_logs, "TOGETHER_BYTES_MAX", 0)
    return str(request.param)


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("kind", [LocalStore, RemoteStore])
def test_what_is_read_is_what_is_read_alone(
    size: str, files: int, mapped: bool, kind: type[LocalStore], tmp_path: Path
) -> None:
    store = kind(tmp_path / "files")
    sources = [manifest_of(store, tmp_path, files), manifest_of(store, tmp_path, files, commit_ts=70)]
    with InsertLogs(store, sources, EVERY_TYPE, tmp_path if mapped else None) as logs:
        table = logs.columns(NAMES, WANTED)
        vectors = [logs.vectors(field) for field in WANTED]
    assert table.equals(pa.concat_tables([read_columns(store, source, NAMES) for source in sources]))
    for field, found in zip(WANTED, vectors, strict=True):
        alone = [read_vectors(store, source, field.name) for source in sources]
        np.testing.assert_array_equal(found, np.concatenate(alone))


@pytest.mark.parametrize(
    ("files", "times"), [(1, {"small": 1, "large": 1}), (3, {"small": 1, "large": 1 + len(WANTED)})]
)
def test_files_are_opened_once_unless_they_are_many_and_large(
    size: str,
    files: int,
    times: dict[str, int],
    store: LocalStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = manifest_of(store, tmp_path, files)
    counts = OpenedFiles(monkeypatch)
    with InsertLogs(store, [manifest], EVERY_TYPE) as logs:
        logs.columns(NAMES, WANTED)
        for field in WANTED:
            logs.vectors(field)
    assert counts.times == dict.fromkeys((f.path for f in manifest.insert_logs), times[size])
    assert (counts.open_max, counts.open) == (1, 0)


def test_no_file_stays_open_if_nothing_else_is_wanted(
    size: str, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = manifest_of(store, tmp_path, 1)
    counts = OpenedFiles(monkeypatch)
    with InsertLogs(store, [manifest], EVERY_TYPE) as logs:
        logs.columns(NAMES)
        assert counts.open == 0
        assert len(logs.vectors(WANTED[0])) == 30, "it is opened again"
    assert counts.open == 0


def of_added(schema: CollectionSchema) -> FieldSchema:
    (field,) = (field for field in schema.vector_fields if field.is_added)
    return field


def test_files_may_lack_a_field_that_was_added_later(
    size: str, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, field = manifest_of(store, tmp_path, 2), of_added(WIDE)
    counts = OpenedFiles(monkeypatch)
    with InsertLogs(store, [manifest], WIDE) as logs:
        logs.columns(NAMES)
        assert logs.lacks(field)
        assert not logs.lacks(WANTED[0])
        assert max(counts.times.values()) == 1
        found = logs.vectors(field)
    assert isinstance(found, NullableVectors)
    assert found.vectors.shape == (0, 2)
    assert not found.valid.any()


def read_everything(store: LocalStore, manifest: SegmentManifest) -> None:
    names = ["RowID", "Timestamp", *(f.name for f in EVERY_TYPE.scalar_fields)]
    with InsertLogs(store, [manifest], EVERY_TYPE) as logs:
        logs.columns(names, WANTED)
        for field in WANTED:
            logs.vectors(field)


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_damage_is_named_and_leaves_no_file_open(
    size: str, share: float, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = manifest_of(store, tmp_path, 1)
    (file,) = manifest.insert_logs
    content = bytearray(store.local_path(file.path, tmp_path).read_bytes())
    content[int(share * len(content))] ^= 0xFF
    store.delete(file.path)
    store.put(file.path, bytes(content))
    counts = OpenedFiles(monkeypatch)
    with pytest.raises(CorruptObject, match=file.path):
        read_everything(store, manifest)
    assert counts.open == 0


def test_a_source_without_files_is_refused(store: LocalStore) -> None:
    with pytest.raises(ValueError, match="without insert logs"):
        InsertLogs(store, [[]], EVERY_TYPE)
