"""An import compared with rewriting the file: the import job's task, and pyarrow alone.

Both sides read the same Parquet file and write Elanus's own Parquet layout, with the same writer, on the same
disk. The plain side goes batch by batch. The task also checks every value, hashes and sorts by primary key,
and writes key statistics. Spark's start and the commit are not in it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.pipeline.sides import Sides, in_turns
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.pipeline.import_files import survey
from elanus.pipeline.import_job import import_task
from elanus.pipeline.import_plan import ImportPlan
from elanus.pipeline.import_sources import tables
from elanus.storage.binlog import SegmentKey, insert_log_schema, insert_log_writer, with_system_columns
from elanus.storage.objects import open_store

KEY_FIELD, VECTOR_FIELD = "id", "vector"
SHARDS = 2
FILE = "rows.parquet"


def measure(directory: Path, rows: int, dim: int, turns: int) -> Sides:
    """Take so many turns on files below the directory."""
    plan = make_plan(directory, rows, dim)
    return in_turns(
        rows,
        dim,
        turns,
        lambda number: _rewrite(directory, plan.schema, number),
        lambda number: import_task(replace(plan, attempt=number)),
    )


def make_plan(directory: Path, rows: int, dim: int, groups: int = 1) -> ImportPlan:
    """Write random rows to ``import/rows.parquet``; returns one task that imports them into ``files``.

    ``groups``: the least number of row groups of the file.
    """
    schema = CollectionSchema(
        "rows",
        (
            FieldSchema(FieldID(100), KEY_FIELD, DataType.INT64, is_primary=True),
            FieldSchema(FieldID(101), VECTOR_FIELD, DataType.FLOAT_VECTOR, dim=dim),
        ),
    )
    write_rows(directory / "import" / FILE, rows, dim, groups)
    source = (directory / "import").as_uri()
    return ImportPlan(
        attempt=0,
        collection_id=CollectionID(1),
        partition_id=PartitionID(2),
        schema=schema,
        vchannels=tuple(f"by-dev-rootcoord-dml_{n}_1v{n}" for n in range(SHARDS)),
        parts=tuple(survey(open_store(source), tables([FILE]), schema)),
        first_id=1000,
        rows_max=2**31,
        bytes_max=2**40,
        stamp=Timestamp(1),
        source_url=source,
        store_url=(directory / "files").as_uri(),
        scratch_dir=str(directory / "scratch"),
    )


def write_rows(file: Path, rows: int, dim: int, groups: int = 1) -> None:
    """Write rows of keys in no order and random vectors, one row group at a time."""
    random = np.random.default_rng(1)
    keys = random.permutation(rows)
    group_rows = min(1024 * 1024, -(-rows // groups))
    file.parent.mkdir(exist_ok=True)
    layout = pa.schema([(KEY_FIELD, pa.int64()), (VECTOR_FIELD, pa.list_(pa.float32(), dim))])
    with pq.ParquetWriter(file, layout) as writer:
        for first in range(0, rows, group_rows):
            some = keys[first : first + group_rows]
            vectors = pa.array(random.standard_normal(len(some) * dim, dtype=np.float32))
            columns = [pa.array(some), pa.FixedSizeListArray.from_arrays(vectors, dim)]
            writer.write_table(pa.table(columns, layout), group_rows)


def _rewrite(directory: Path, schema: CollectionSchema, number: int) -> None:
    scratch = directory / "scratch"
    scratch.mkdir(exist_ok=True)
    key = SegmentKey(CollectionID(1), PartitionID(3), SegmentID(4), "plain")
    layout = insert_log_schema(schema, key)
    store = open_store((directory / "files").as_uri())
    with (
        pq.ParquetFile(directory / "import" / FILE, memory_map=True) as source,
        insert_log_writer(store, f"plain/{number}.parquet", schema, key, scratch) as writer,
    ):
        for batch in source.iter_batches(use_threads=False):
            rows = batch.cast(schema.arrow_schema)
            writer.write(with_system_columns(rows, 0, Timestamp(1), layout))
        writer.finish()
