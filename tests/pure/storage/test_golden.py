"""Files of format version 1 as they were first written: every release must read them.

Run this file as a program to write them again, which is right only together with a new format version.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from insert_log_files import read_vectors, write_insert_log
from samples import DIM, EVERY_TYPE, KEY, rows_of_every_type

from elanus.core.ids import ALL_PARTITIONS
from elanus.core.segments import BinlogFile, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.storage.binlog import insert_log_schema, read_columns, with_system_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer, read_delta_log
from elanus.storage.local import LocalStore
from elanus.storage.manifests import read_manifest, write_manifest
from elanus.storage.stats_log import KeyStatsBuilder, read_stats_logs, write_stats_log

GOLDEN = Path(__file__).parent / "golden"
ROWS = 6
INSERT_LOG = "insert_log/7/8/9/golden.parquet"
STATS_LOG = "stats_log/7/8/9/golden.json"
DELTA_LOG = f"delta_log/7/{KEY.vchannel}/golden.parquet"
MANIFEST = "manifests/7/9/golden.json"


@pytest.fixture(scope="module")
def store() -> LocalStore:
    return LocalStore(GOLDEN)


@pytest.fixture(scope="module")
def manifest(store: LocalStore) -> SegmentManifest:
    return read_manifest(store, MANIFEST)


def test_the_manifest(manifest: SegmentManifest) -> None:
    (file,) = manifest.insert_logs
    assert (file.path, file.rows, file.ts_min, file.ts_max) == (INSERT_LOG, ROWS, 50, 60)
    assert manifest.stats_logs == (STATS_LOG,)
    assert (manifest.segment_id, manifest.collection_id, manifest.partition_id) == (9, 7, 8)
    assert (manifest.vchannel, manifest.deletes_from) == (KEY.vchannel, 40)


def test_the_insert_log(store: LocalStore, manifest: SegmentManifest) -> None:
    names = ["RowID", "Timestamp", *EVERY_TYPE.arrow_schema.names]
    table = read_columns(store, manifest, names)
    assert table.select(names[2:]).combine_chunks().to_batches() == [rows_of_every_type(ROWS)]
    assert table["RowID"].to_pylist() == list(range(1000, 1000 + ROWS))
    assert table["Timestamp"].to_pylist() == [50] * 4 + [60] * 2
    vectors = read_vectors(store, manifest, "vector")
    np.testing.assert_array_equal(vectors, np.arange(ROWS)[:, None] + np.arange(DIM) / 8)


def test_the_stats_log(store: LocalStore, manifest: SegmentManifest) -> None:
    (stats,) = read_stats_logs(store, manifest.stats_logs)
    assert (stats.rows, stats.pk_min, stats.pk_max) == (ROWS, 0, ROWS - 1)
    assert stats.may_contain(pa.array([*range(ROWS), ROWS])).tolist() == [True] * ROWS + [False]


def test_the_delta_log(store: LocalStore) -> None:
    size_bytes = store.head(DELTA_LOG).size_bytes
    deletes = read_delta_log(store, BinlogFile(DELTA_LOG, 2, size_bytes, Timestamp(55), Timestamp(55)))
    assert deletes.to_pydict() == {"PrimaryKey": [1, 3], "Timestamp": [55, 55], "PartitionID": [0, 0]}


def write_golden_files() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    store = LocalStore(GOLDEN)
    schema = insert_log_schema(EVERY_TYPE, KEY)
    batches = [
        with_system_columns(rows_of_every_type(4), 1000, Timestamp(50), schema),
        with_system_columns(rows_of_every_type(2, 4), 1004, Timestamp(60), schema),
    ]
    delta_schema = delta_log_schema(EVERY_TYPE.primary_field, KEY.collection_id, KEY.vchannel)
    deletes = delete_rows(pa.array([1, 3]), Timestamp(55), ALL_PARTITIONS, delta_schema)
    stats = KeyStatsBuilder()
    stats.add(pa.array(range(ROWS)))
    with tempfile.TemporaryDirectory() as scratch:
        file = write_insert_log(store, INSERT_LOG, EVERY_TYPE, KEY, batches, Path(scratch))
        with delta_log_writer(store, DELTA_LOG, delta_schema, Path(scratch)) as writer:
            writer.write(deletes)
            writer.finish()
    write_stats_log(store, STATS_LOG, stats.finish())
    manifest = SegmentManifest(
        KEY.segment_id,
        KEY.collection_id,
        KEY.partition_id,
        KEY.vchannel,
        insert_logs=(file,),
        stats_logs=(STATS_LOG,),
        deletes_from=Timestamp(40),
    )
    write_manifest(store, manifest, "golden")
    shutil.rmtree(GOLDEN / ".staging")


if __name__ == "__main__":
    write_golden_files()
