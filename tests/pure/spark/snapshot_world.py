"""A snapshot in files for tests: segments, indexes and deletes, and what is nearest by plain arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elanus.api.connector import CollectionSnapshot
from elanus.core.catalog import Index
from elanus.core.ids import BuildID, CollectionID, FieldID, IndexID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.segments import DeltaLog, IndexFile, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.index import build, resolve_field_index
from elanus.spark.hits import hits_schema, reduced
from elanus.spark.searches import search_plan, search_set, segment_sets
from elanus.spark.segment_search import SearchPlan
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.local import LocalStore
from tests.pure.insert_log_files import write_insert_log

CID, PART, VCHANNEL, DIM = CollectionID(7), PartitionID(8), "by-dev-rootcoord-dml_0_7v0", 4
HNSW = {"index_type": "HNSW", "metric_type": "L2", "M": "8", "efConstruction": "64"}
HITS = hits_schema(pa.int64(), pa.int64())


def schema(key: DataType = DataType.INT64) -> CollectionSchema:
    length = {"max_length": 20} if key is DataType.VARCHAR else {}
    return CollectionSchema(
        "docs",
        (
            FieldSchema(FieldID(100), "id", key, is_primary=True, **length),  # type: ignore[arg-type]
            FieldSchema(FieldID(101), "price", DataType.INT64),
            FieldSchema(FieldID(102), "v", DataType.FLOAT_VECTOR, dim=DIM),
            FieldSchema(FieldID(103), "bits", DataType.BINARY_VECTOR, dim=16),
            FieldSchema(FieldID(104), "terms", DataType.SPARSE_FLOAT_VECTOR),
        ),
    )


def vectors(count: int, seed: int = 5) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal((count, DIM), dtype=np.float32)


class World:
    """Segments of a collection in files. Keys of segment n are 100 n to 100 n + 99; all written at 10."""

    def __init__(self, directory: Path, key: DataType = DataType.INT64) -> None:
        self.store = LocalStore(directory / "files")
        self.scratch = directory
        full = schema(key)
        self.schema = replace(full, fields=full.fields[:3])
        self.manifests: list[SegmentManifest] = []
        self.vectors: dict[object, np.ndarray[Any, np.dtype[np.float32]]] = {}
        self.files: list[IndexFile] = []
        self.deltas: list[DeltaLog] = []

    def add(self, keys: list[Any], rows: np.ndarray[Any, np.dtype[np.float32]], *ts: int) -> SegmentManifest:
        """``ts``: of the rows in turn, ascending; 10 if there is none."""
        number = SegmentID(1000 + len(self.manifests))
        place = SegmentKey(CID, PART, number, VCHANNEL)
        columns = [
            pa.array(keys, self.schema.primary_field.arrow_type),
            pa.array(range(len(keys)), pa.int64()),
            self.schema.field("v").vector.to_column(rows),
        ]
        batch = pa.record_batch(columns, schema=self.schema.arrow_schema)
        files_schema = insert_log_schema(self.schema, place)
        moments = ts or (10,)
        starts = np.linspace(0, len(keys), len(moments) + 1).astype(int).tolist()
        stamped = [
            with_system_columns(batch.slice(a, b - a), a, Timestamp(moment), files_schema)
            for moment, a, b in zip(moments, starts, starts[1:], strict=False)
        ]
        path = f"insert_log/7/8/{number}/1.parquet"
        file = write_insert_log(self.store, path, self.schema, place, stamped, self.scratch)
        manifest = SegmentManifest(number, CID, PART, VCHANNEL, (file,), (), NO_TIMESTAMP)
        self.manifests.append(manifest)
        self.vectors |= dict(zip(keys, rows, strict=True))
        return manifest

    def index(self, manifest: SegmentManifest, params: Mapping[str, str] = HNSW) -> IndexFile:
        rows = np.stack([self.vectors[key] for key in self.keys_of(manifest)])
        field = self.schema.field("v")
        spec = resolve_field_index(params, field)
        path = f"index_files/{manifest.segment_id}"
        local = self.scratch / "built"
        build(spec, rows, threads=1).save(local)
        self.store.put(path, local.read_bytes())
        file = IndexFile(
            BuildID(1),
            IndexID(1),
            field.field_id,
            manifest.segment_id,
            spec.index_type,
            "L2",
            spec.flattened(),
            path,
            manifest.rows,
            local.stat().st_size,
            True,
        )
        self.files.append(file)
        return file

    def keys_of(self, manifest: SegmentManifest) -> list[Any]:
        return pq.read_table(self.store.local_path(manifest.insert_logs[0].path, self.scratch))[
            "id"
        ].to_pylist()  # type: ignore[no-any-return]

    def delete(self, ts: int, *keys: object, partition: int = PART) -> None:
        log_schema = delta_log_schema(self.schema.primary_field, CID, VCHANNEL)
        path = f"delta_log/{len(self.deltas)}.parquet"
        with delta_log_writer(self.store, path, log_schema, self.scratch) as writer:
            column = pa.array(keys, self.schema.primary_field.arrow_type)
            writer.write(delete_rows(column, Timestamp(ts), PartitionID(partition), log_schema))
            self.deltas.append(DeltaLog(VCHANNEL, writer.finish()))

    @property
    def snapshot(self) -> CollectionSnapshot:
        defined = Index(IndexID(1), CID, self.schema.field("v").field_id, "v", HNSW, Timestamp(1))
        return CollectionSnapshot(
            CID,
            self.schema,
            Timestamp(30),
            tuple(self.manifests),
            {VCHANNEL: tuple(self.deltas)},
            indexes=(defined,),
            index_files=tuple(self.files),
        )

    def plan(self, k: int = 3, **options: Any) -> SearchPlan:
        return search_plan(self.snapshot, self.store.url, field="v", k=k, **options)

    def hits(
        self, plan: SearchPlan, queries: np.ndarray[Any, Any], sets: int = 1
    ) -> list[list[tuple[Any, float]]]:
        """The hits of each query over so many sets, reduced."""
        hits = hits_schema(pa.int64(), self.schema.primary_field.arrow_type)
        shares = segment_sets(self.snapshot, plan, sets)
        asked = pa.record_batch(
            [pa.array(range(len(queries)), pa.int64()), pa.array(queries.tolist(), pa.list_(pa.float32()))],
            names=["query_id", "vector"],
        )
        found = [b for s in shares for b in search_set(plan, s, iter([asked]), hits, threads=1)]
        table = reduced(found, hits, plan.k, bigger=False).to_pylist()
        if len(shares) == 1:
            assert pa.Table.from_batches(found).to_pylist() == table, "a single set needs no second stage"
        answers: list[list[tuple[Any, float]]] = [[] for _ in queries]
        for row in table:
            answers[row["query_id"]].append((row["key"], row["score"]))
            assert row["rank"] == len(answers[row["query_id"]])
        return answers

    def nearest(
        self, query: np.ndarray[Any, Any], k: int, where: Callable[[Any], bool] = lambda _: True
    ) -> list[Any]:
        known = [(float(((row - query) ** 2).sum()), key) for key, row in self.vectors.items() if where(key)]
        return [key for _, key in sorted(known)[:k]]


def spoil_vectors(world: World) -> None:
    """Overwrite the pages of the vectors: reading them fails."""
    for manifest in world.manifests:
        file = world.store.local_path(manifest.insert_logs[0].path, world.scratch)
        with pq.ParquetFile(file) as parquet:
            group = parquet.metadata.row_group(0)
            (chunk,) = [
                c for n in range(group.num_columns) if (c := group.column(n)).path_in_schema[0] == "v"
            ]
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            size = chunk.total_compressed_size
        content = bytearray(file.read_bytes())
        content[start : start + size] = bytes([255]) * size
        file.write_bytes(content)
