"""Which rows of a key an import adds: by the order of the files, and by the keys that the collection has."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from import_bench import SCHEMA, Node
from insert_log_files import write_insert_log

from elanus.api.connector import CollectionSnapshot
from elanus.api.imports import ImportedSegment
from elanus.core.errors import InvalidParameter
from elanus.core.ids import ALL_PARTITIONS, CollectionID, PartitionID, SegmentID
from elanus.core.imports import Duplicates, WriteMode
from elanus.core.segments import DeltaLog, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.pipeline.import_duplicates import Bucket, buckets_of, write_keys, write_left_out
from elanus.pipeline.import_files import survey
from elanus.pipeline.import_sources import tables
from elanus.storage.binlog import SegmentKey, insert_log_schema, read_columns, with_system_columns
from elanus.storage.delta_log import (
    PARTITION_COLUMN,
    delete_rows,
    delta_log_schema,
    delta_log_writer,
    read_delta_log,
)
from elanus.storage.objects import open_store
from elanus.storage.paths import delta_log_path, insert_log_path, stats_log_path
from elanus.storage.snapshots import write_snapshot
from elanus.storage.stats_log import KeyStatsBuilder, write_stats_log

VCHANNELS = ("by-dev-rootcoord-dml_0_7v0", "by-dev-rootcoord-dml_1_7v1")


def rows_of(keys: list[int], values: list[float]) -> pa.Table:
    vectors = pa.array([[value, 1.0] for value in values], pa.list_(pa.float32()))
    return pa.table({"id": keys, "v": vectors})


class Import(Node):
    """``files``: each row with a number of its own, counted over all files."""

    def give(self, *files: list[int]) -> list[str]:
        number, names = 0, []
        for place, keys in enumerate(files):
            path = self.directory / "import" / f"{place}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            values = [float(n) for n in range(number, number + len(keys))]
            pq.write_table(rows_of(keys, values), path, row_group_size=3)
            names.append(path.name)
            number += len(keys)
        return names

    def found(self, segments: tuple[ImportedSegment, ...]) -> list[tuple[int, int]]:
        """Keys, and the numbers of their rows."""
        store = open_store((self.directory / "files").as_uri())
        rows = []
        for segment in segments:
            table = read_columns(store, [segment.insert_log], ["id", "v"])
            numbers = [int(v[0]) for v in table["v"].to_pylist()]
            rows += list(zip(table["id"].to_pylist(), numbers, strict=True))
        return sorted(rows)


FILES = ([1, 2, 3, 2], [4, 1], [5, 2, 5])


@pytest.mark.parametrize("task_rows", [3, 10])
@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        ("keep", [(1, 0), (1, 5), (2, 1), (2, 3), (2, 7), (3, 2), (4, 4), (5, 6), (5, 8)]),
        ("first", [(1, 0), (2, 1), (3, 2), (4, 4), (5, 6)]),
        ("last", [(1, 5), (2, 7), (3, 2), (4, 4), (5, 8)]),
    ],
)
async def test_one_row_of_a_key_in_the_order_of_the_files(
    tmp_path: Path, rule: str, rows: list[tuple[int, int]], task_rows: int
) -> None:
    node = Import(tmp_path)
    names = node.give(*FILES)
    choice = {"duplicates": Duplicates(rule), "vchannels": VCHANNELS}
    outcome = await node.run(*names, segment_rows_max=task_rows, **choice)
    assert node.found(outcome.segments) == rows
    assert (outcome.rows, outcome.left_out, outcome.rejected) == (len(rows), 9 - len(rows), 0)


async def test_a_further_row_of_a_key_fails_the_import_or_is_listed(tmp_path: Path) -> None:
    node = Import(tmp_path)
    names = node.give(*FILES)
    with pytest.raises(InvalidParameter, match=r"0\.parquet, row group 1, row 3: field id is 2, a key"):
        await node.run(*names, duplicates=Duplicates.REJECT)
    again = Import(tmp_path)
    outcome = await again.run(*names, attempt=6, duplicates=Duplicates.REJECT, rejects_max=4)
    assert again.found(outcome.segments) == [(1, 0), (2, 1), (3, 2), (4, 4), (5, 6)]
    assert (outcome.rejected, outcome.left_out) == (4, 0)
    lists = sorted((tmp_path / "import" / "rejects" / "3").iterdir())
    listed = [json.loads(line) for file in lists for line in file.read_text().splitlines()]
    assert sorted((one["file"], one["row"]) for one in listed) == [
        ("0.parquet", 3),
        ("1.parquet", 1),
        ("2.parquet", 1),
        ("2.parquet", 2),
    ]
    with pytest.raises(InvalidParameter, match="more than 3 rows do not fit"):
        await node.run(*names, attempt=7, duplicates=Duplicates.REJECT, rejects_max=3)


async def test_an_upsert_deletes_the_keys_that_it_adds_once(tmp_path: Path) -> None:
    node = Import(tmp_path)
    names = node.give(*FILES)
    with pytest.raises(InvalidParameter, match="the key 1 twice"):
        await node.run(*names, mode=WriteMode.UPSERT)
    outcome = await node.run(*names, attempt=6, mode=WriteMode.UPSERT, duplicates=Duplicates.LAST)
    assert node.found(outcome.segments) == [(1, 5), (2, 7), (3, 2), (4, 4), (5, 8)]
    (delta,) = outcome.deltas
    assert delta.file.rows == 5
    log = read_delta_log(open_store((tmp_path / "files").as_uri()), delta.file)
    assert set(log[PARTITION_COLUMN].to_pylist()) == {8}  # as upserts of clients


async def test_formats_number_their_rows_alike(tmp_path: Path) -> None:
    """Rows that do not fit are counted too."""
    node = Import(tmp_path)
    directory = tmp_path / "import"
    (directory / "n").mkdir(parents=True)
    rows = [{"id": n % 3, "v": [n, 1]} for n in range(6)]
    (directory / "a.json").write_text(json.dumps(rows))
    lines = [*map(json.dumps, rows[:2]), "no JSON", "", *map(json.dumps, rows[2:])]
    (directory / "b.jsonl").write_text("\n".join(lines))
    (directory / "c.csv").write_text("id,v\n" + "".join(f'{n % 3},"[{n},1]"\n' for n in range(6)))
    np.save(directory / "n" / "id.npy", np.arange(6) % 3)
    np.save(directory / "n" / "v.npy", np.array([[n, 1] for n in range(6)], np.float32))
    for number, names in enumerate((["a.json"], ["b.jsonl"], ["c.csv"], ["n/id.npy", "n/v.npy"])):
        attempt = 5 + number
        found = await node.run(*names, attempt=attempt, duplicates=Duplicates.LAST, rejects_max=1)
        own = [s for s in found.segments if f"a{attempt}-" in s.insert_log.path]
        assert node.found(tuple(own)) == [(0, 3), (1, 4), (2, 5)], names


async def test_an_interrupted_import_goes_on_with_the_same_rows(tmp_path: Path) -> None:
    node = Import(tmp_path)
    names = node.give(*FILES, list(range(100, 110)))
    rule = {"duplicates": Duplicates.FIRST, "segment_rows_max": 4}
    await node.run(*names[:3], **rule)
    tried = len(node.spark.imports)
    again = Import(tmp_path, ids=node.ids)
    outcome = await again.run(*names[:3], attempt=6, **rule)
    assert again.spark.imports == [], f"all {tried} tasks were done"
    assert again.found(outcome.segments) == [(1, 0), (2, 1), (3, 2), (4, 4), (5, 6)]
    other = Import(tmp_path, ids=node.ids)
    outcome = await other.run(*names[:3], attempt=7, **rule | {"duplicates": Duplicates.LAST})
    assert len(other.spark.imports) == tried, "other rows are left out"
    assert outcome.rows == 5


def existing(store_url: str, scratch: Path) -> CollectionSnapshot:
    """Keys 1 to 8, of which 2 and 3 are deleted, 3 only in another partition, and 4 later than the snapshot.

    Key 5 has expired, and 6 is written later."""
    store = open_store(store_url)
    segment = SegmentKey(CollectionID(7), PartitionID(8), SegmentID(50), VCHANNELS[0])
    owner = (segment.collection_id, segment.partition_id, segment.segment_id, "x")
    file_schema = insert_log_schema(SCHEMA, segment)
    keys, stats = pa.array(range(1, 9), pa.int64()), KeyStatsBuilder()
    stats.add(keys)
    vectors = pa.array([[0.0, 0.0]] * 8, SCHEMA.arrow_schema.field("v").type)
    batch = pa.record_batch([keys, vectors], schema=SCHEMA.arrow_schema)
    full = with_system_columns(batch, 1, Timestamp(10), file_schema)
    stamps = pa.array([10, 10, 10, 10, 2, 90, 10, 10], pa.int64())
    full = full.set_column(full.schema.get_field_index("Timestamp"), full.schema.field("Timestamp"), stamps)
    path, stats_path = insert_log_path(*owner), stats_log_path(*owner)
    file = write_insert_log(store, path, SCHEMA, segment, [full.sort_by("Timestamp")], scratch)
    write_stats_log(store, stats_path, stats.finish())
    form = delta_log_schema(SCHEMA.primary_field, CollectionID(7), VCHANNELS[0])
    delta_path = delta_log_path(CollectionID(7), VCHANNELS[0], "x")
    with delta_log_writer(store, delta_path, form, scratch) as writer:
        writer.write(delete_rows(pa.array([2]), Timestamp(20), ALL_PARTITIONS, form))
        writer.write(delete_rows(pa.array([3]), Timestamp(21), PartitionID(9), form))
        writer.write(delete_rows(pa.array([4]), Timestamp(60), ALL_PARTITIONS, form))
        delta = writer.finish()
    manifest = SegmentManifest(
        SegmentID(50),
        CollectionID(7),
        PartitionID(8),
        VCHANNELS[0],
        (file,),
        (stats_path,),
        deletes_from=Timestamp(1),
    )
    return CollectionSnapshot(
        CollectionID(7),
        SCHEMA,
        Timestamp(50),
        (manifest, replace(manifest, segment_id=SegmentID(51), vchannel=VCHANNELS[1])),
        {VCHANNELS[0]: (DeltaLog(VCHANNELS[0], delta),)},
        expired_until=Timestamp(5),
    )


async def test_rows_whose_keys_the_collection_has_are_left_out(tmp_path: Path) -> None:
    """Of key 1, 3, 4, 7 and 8 a row is visible."""
    node = Import(tmp_path)
    names = node.give([1, 2, 3, 4, 5, 6], [2, 9, 8])
    store_url = (tmp_path / "files").as_uri()
    write_snapshot(open_store(store_url), "snapshots/7/a1-x.json", existing(store_url, tmp_path))
    look = {"existing": "snapshots/7/a1-x.json"}
    outcome = await node.run(*names, duplicates=Duplicates.FIRST, **look)
    assert node.found(outcome.segments) == [(2, 1), (5, 4), (6, 5), (9, 7)]
    assert outcome.left_out == 5
    with pytest.raises(InvalidParameter, match="row 0: field id is 1, a key that an earlier row"):
        await node.run(*names, attempt=6, first_attempt=6, duplicates=Duplicates.REJECT, **look)


async def test_only_segments_that_may_have_a_key_are_read(tmp_path: Path) -> None:
    node = Import(tmp_path)
    names = node.give([100, 101])
    store_url = (tmp_path / "files").as_uri()
    there = existing(store_url, tmp_path)
    (tmp_path / "files" / there.segments[0].insert_logs[0].path).unlink()
    write_snapshot(open_store(store_url), "snapshots/7/a1-x.json", there)
    outcome = await node.run(*names, duplicates=Duplicates.FIRST, existing="snapshots/7/a1-x.json")
    assert outcome.rows == 2


@settings(max_examples=20, deadline=None)
@given(
    files=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=4),
    shards=st.integers(1, 2),
    buckets=st.integers(1, 3),
    rule=st.sampled_from([Duplicates.FIRST, Duplicates.LAST]),
)
def test_buckets_leave_out_what_one_look_at_all_rows_would(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[int]],
    shards: int,
    buckets: int,
    rule: Duplicates,
) -> None:
    directory = tmp_path_factory.mktemp("keys")
    node = Import(directory)
    source, store = open_store((directory / "import").as_uri()), open_store((directory / "files").as_uri())
    parts = survey(source, tables(node.give(*files)), SCHEMA)
    paths = [f"progress/keys-3/a5-{n}.arrow" for n in range(len(parts))]
    for part, path in zip(parts, paths, strict=True):
        write_keys(SCHEMA, [part], shards * buckets, source, store, path)
    left_out = 0
    for number in range(shards * buckets):
        bucket = Bucket(SCHEMA, number, VCHANNELS[number % shards], tuple(paths), rule)
        found = write_left_out(bucket, store, f"progress/keys-3/a5-b{number}.arrow")
        left_out += sum(rows.rows for rows in found if rows is not None)
    assert left_out == sum(map(len, files)) - len({key for keys in files for key in keys})


def test_buckets_follow_the_memory_of_a_task_and_belong_to_shards() -> None:
    assert [buckets_of(rows, 4, 512 << 20) for rows in (1, 10**6, 10**9)] == [4, 4, 180]


def test_keys_are_read_without_the_other_columns(tmp_path: Path) -> None:
    node = Import(tmp_path)
    rows = pa.table({"id": range(1000), "v": pa.array([[1.0, 2.0]] * 1000, pa.list_(pa.float32()))})
    (tmp_path / "import").mkdir()
    pq.write_table(rows, tmp_path / "import" / "0.parquet")
    source, store = open_store((tmp_path / "import").as_uri()), open_store((tmp_path / "files").as_uri())
    (part,) = survey(source, tables(["0.parquet"]), SCHEMA)
    file = pq.ParquetFile(tmp_path / "import" / "0.parquet").metadata.row_group(0).column(1)
    content = bytearray((tmp_path / "import" / "0.parquet").read_bytes())
    start = file.dictionary_page_offset or file.data_page_offset
    content[start : start + file.total_compressed_size] = bytes(file.total_compressed_size)
    (tmp_path / "import" / "0.parquet").write_bytes(content)
    damaged = replace(part, versions=())
    write_keys(SCHEMA, [damaged], 1, source, store, "progress/keys-3/a5-0.arrow")
    assert node.keys(()) == Counter()
