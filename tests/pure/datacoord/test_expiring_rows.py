"""When the rows of a segment expire that have a moment of their own: read once for each manifest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from insert_log_files import write_insert_log

from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.dead_rows import Reader
from elanus.datacoord.expiring_rows import ExpiringRows
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.local import LocalStore

SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "until", DataType.TIMESTAMPTZ, nullable=True),
    ),
    ttl_field="until",
)


async def test_a_column_is_read_once_and_its_moments_are_counted(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "files")
    key = SegmentKey(CollectionID(7), PartitionID(8), SegmentID(9), "vc")
    moments = [3000, None, 1000, 9000, 2000, None, None, None, None, None]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(range(10)), pa.array(moments, pa.int64())], schema=SCHEMA.arrow_schema
    )
    batches = [with_system_columns(rows, 0, Timestamp(5), insert_log_schema(SCHEMA, key))]
    file = write_insert_log(store, "insert_log/a.parquet", SCHEMA, key, batches, tmp_path)
    manifest = SegmentManifest(SegmentID(9), CollectionID(7), PartitionID(8), "vc", (file,), (), NO_TIMESTAMP)
    reads: list[object] = []

    async def offload(work: Callable[..., Any], *arguments: Any) -> Any:
        reads.append(work)
        return work(*arguments)

    expiring = ExpiringRows(Reader(store, offload), 0.2)
    found = [await expiring.count("m", manifest, SCHEMA, Timestamp(ms << 18)) for ms in (0, 1, 2, 3, 100)]
    assert found == [0, 1, 2, 2, 2], "none, one, and the fifth that is worth a rewrite"
    assert len(reads) == 1
    expiring.keep("other".__eq__)
    await expiring.count("m", manifest, SCHEMA, Timestamp(0))
    assert len(reads) == 2
    plain = replace(SCHEMA, ttl_field="")
    assert await expiring.count("m", manifest, plain, Timestamp(100 << 18)) == 0
    assert len(reads) == 2
