"""An index build and raw faiss: the job's task, and an `IndexHNSWFlat` filled from the same vectors.

Raw faiss finds its vectors in memory, adds them in one call and writes a file. The task reads them from
Parquet, adds them in chunks, and puts the file into the object store, durably.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import faiss

from benchmarks.pipeline.flushing import KEY, make_rows, write_log
from benchmarks.pipeline.sides import Sides, in_turns
from elanus.core.ids import BuildID, IndexID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.core.types import Matrix
from elanus.pipeline.flush import flush_task
from elanus.pipeline.index_build import IndexBuildPlan, index_build_task
from elanus.storage.computed import read_field_vectors
from elanus.storage.objects import open_store

M, EF_CONSTRUCTION = 16, 200


def measure(directory: Path, rows: int, dim: int, threads: int, turns: int, warms_up: bool = True) -> Sides:
    """Take so many turns, each side on that many threads, on files below the directory. ``warms_up``: as
    of `in_turns`."""
    made = make_rows(rows, dim)
    (outcome,) = flush_task((write_log(directory, made),))
    segment = outcome.segments[0]
    manifest = SegmentManifest(
        KEY.segment_id,
        KEY.collection_id,
        KEY.partition_id,
        KEY.vchannel,
        segment.insert_logs,
        segment.stats_logs,
        NO_TIMESTAMP,
    )
    vector_field = made.schema.field("vector")
    plan = IndexBuildPlan(
        attempt="0",
        build_id=BuildID(1),
        version=1,
        index_id=IndexID(1),
        field=vector_field,
        params={
            "index_type": "HNSW",
            "metric_type": "L2",
            "M": str(M),
            "efConstruction": str(EF_CONSTRUCTION),
        },
        manifest=manifest,
        threads=threads,
        store_url=(directory / "files").as_uri(),
        scratch_dir=str(directory / "scratch"),
    )
    vectors = read_field_vectors(open_store(plan.store_url), manifest, made.schema, vector_field)
    file = directory / "raw.faiss"
    return in_turns(
        rows,
        dim,
        turns,
        lambda number: _plain(vectors, threads, file),
        lambda number: index_build_task(replace(plan, attempt=f"{number}")),
        warms_up,
    )


def measure_large(rows: int, dim: int, turns: int) -> Sides:
    """As `measure`, of a segment whose build takes minutes, on files in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="elanus-build-") as directory:
        return measure(Path(directory), rows, dim, os.cpu_count() or 1, turns, warms_up=False)


def summary(sides: Sides) -> str:
    """Two lines about the builds of `measure_large`."""
    times = (
        f"{name} {' / '.join(f'{s:.1f}' for s in sorted(seconds))} s"
        for name, seconds in (("the task", sides.ours_s), ("raw faiss", sides.plain_s))
    )
    return (
        f"{sides.rows:,} rows of {sides.dim} dimensions: {', '.join(times)}\n"
        f"the task takes {sides.cost:.2f} times as long"
    )


def _plain(vectors: Matrix, threads: int, file: Path) -> None:
    faiss.omp_set_num_threads(threads)
    graph = faiss.IndexHNSWFlat(vectors.shape[1], M)
    graph.hnsw.efConstruction = EF_CONSTRUCTION
    graph.add(vectors)
    faiss.write_index(graph, str(file))
