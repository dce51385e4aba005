"""`elanus verify`: real files of every kind, and a server that only pins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from insert_log_files import write_insert_log
from test_backup_commands import Server, run, served

from elanus.api.connector import SnapshotLease
from elanus.cli import verifying
from elanus.cli.options import EXIT_FAILED, EXIT_FOUND
from elanus.core.errors import Internal, Unavailable
from elanus.core.ids import ALL_PARTITIONS
from elanus.core.metrics import Metric
from elanus.core.timestamps import Timestamp
from elanus.core.types import DataType
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.resolve import brute_force
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.stats_log import KeyStatsBuilder, write_stats_log


class Files(Server):
    """Its files are as the system writes them. It has the collection "books", of one segment."""

    def __init__(self, root: Path, scratch: Path) -> None:
        super().__init__(root)
        self._scratch = scratch
        self.has("books", segments=1)

    def grows(self, name: str) -> None:
        super().grows(name)
        one, manifest = self.collections[name], self.segments[name][-1]
        (insert,), (stats,) = manifest.insert_logs, manifest.stats_logs
        for path in (insert.path, stats):
            self.store.delete(path)
        key = SegmentKey(one.collection_id, manifest.partition_id, manifest.segment_id, manifest.vchannel)
        rows = rows_of(one.schema, 1000)
        batch = with_system_columns(rows, 0, Timestamp(5), insert_log_schema(one.schema, key))
        file = write_insert_log(self.store, insert.path, one.schema, key, [batch], self._scratch)
        builder = KeyStatsBuilder()
        builder.add(pa.array(range(1000)))
        write_stats_log(self.store, stats, builder.finish())
        self.segments[name][-1] = replace(manifest, insert_logs=(file,))
        delta = f"delta_log/{one.collection_id}/{one.vchannels[0]}/a1-d.parquet"
        schema = delta_log_schema(one.schema.primary_field, one.collection_id, one.vchannels[0])
        with delta_log_writer(self.store, delta, schema, self._scratch) as writer:
            writer.write(delete_rows(pa.array(range(100), pa.int64()), Timestamp(9), ALL_PARTITIONS, schema))
            writer.finish()

    def builds(self, name: str) -> None:
        super().builds(name)
        file = self._scratch / "index"
        for built in self.indexes:
            self.store.delete(built.path)
            spec = brute_force(DataType.FLOAT_VECTOR, 4, Metric.L2)
            write_index_file(file, IndexFileContent(spec, 10, None, {"a": np.arange(10_000)}))
            self.store.put_file(built.path, file)


def rows_of(schema: object, count: int) -> pa.RecordBatch:
    columns = []
    for field in schema.arrow_schema:  # type: ignore[attr-defined]
        if pa.types.is_fixed_size_list(field.type):
            flat = pa.array(np.arange(count * field.type.list_size, dtype=np.float32))
            columns.append(pa.FixedSizeListArray.from_arrays(flat, type=field.type))
        else:
            columns.append(pa.array(range(count)).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)  # type: ignore[attr-defined]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr("os.nice", lambda _: 0)
    (tmp_path / "scratch").mkdir()
    return Files(tmp_path / "server", tmp_path / "scratch")


@pytest.fixture
def uri(server: Files) -> Iterator[str]:
    yield from served(server)


def test_whole_files_are_read_and_nothing_stays_pinned(server: Files, uri: str) -> None:
    server.builds("books")
    said = run("verify", "--uri", uri).output
    assert "shop.books: 4 files" in said, "databases may have collections of the same name"
    assert "whole" in said
    assert server.pinned == set()


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 0x10
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("prefix", "damage"),
    [*((prefix, flip) for prefix in sorted(verifying.REMEDIES)), ("insert_log", Path.unlink)],
)
def test_a_damaged_file_is_named_with_its_remedy(
    server: Files, uri: str, tmp_path: Path, prefix: str, damage: Callable[[Path], None]
) -> None:
    server.builds("books")
    snapshot = server.snapshot("books", Timestamp(1))
    (path,) = (path for path in verifying.sizes_of(snapshot) if path.startswith(prefix))
    damage(tmp_path / "server" / path)
    found = run("verify", "--uri", uri, code=EXIT_FOUND).output.replace("\n", " ")
    assert "books: 4 files" in found
    assert "1 damaged" in found
    assert path in found
    assert verifying.REMEDIES[prefix] in found
    assert ("is missing" in found) == (damage is Path.unlink)
    assert found.count("Remedy") == 1
    assert server.pinned == set()


def refuse_to_hold_books(server: Files, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The server has another collection, films, which it pins as usual."""
    server.has("films", segments=1)
    hold = server.hold

    def holds(database: str, name: str, number: int, moment: Timestamp, lease_ms: int) -> SnapshotLease:
        if name == "books":
            raise error
        return hold(database, name, number, moment, lease_ms)

    monkeypatch.setattr(server, "hold", holds)


def test_a_collection_that_cannot_be_pinned_does_not_stop_the_others(
    server: Files, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to_hold_books(server, monkeypatch, Internal("manifests/9 is damaged"))
    found = run("verify", "--uri", uri, code=EXIT_FOUND).output
    assert "films: 3 files" in found
    assert "manifests/9 is damaged" in found


def test_a_collection_that_cannot_be_pinned_just_now_is_not_called_damaged(
    server: Files, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its rows cannot be flushed, because the disk is full or Spark is down."""
    refuse_to_hold_books(server, monkeypatch, Unavailable("rows of books are still in the log alone"))
    found = run("verify", "--uri", uri, code=EXIT_FAILED).output
    assert "films: 3 files, 0.0 MB, whole" in found
    assert "shop.books: not read: rows of books are still in the log alone" in found
    assert "damaged" not in found
    assert "Remedy" not in found
