"""Measured recall against offline truth, and what the measuring costs.

    .venv/bin/python -m benchmarks.measured_recall

Two thousand searches of an index are measured as a query node measures live ones. The offline truth is the
recall of other queries from the same source, ten times as many, compared with all rows. The sampler's thread
does not run here: its work and the pauses that it asks for are added up.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa

from elanus.api.querynode import NodeSearch
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.expr import compile_filter
from elanus.index import SearchParams, VectorIndex, build, over_rows, resolve_index
from elanus.querynode.block import Block
from elanus.querynode.recall import RecallSampler
from elanus.querynode.search import search
from elanus.querynode.snapshot import Snapshot, SnapshotSegment
from elanus.querynode.vectors import VectorColumn

ROWS, DIM, K, EF = 20_000, 32, 10, 12
SAMPLES, OFFLINE = 2000, 20_000
CPU_SHARE = 0.01
FIELD = FieldSchema(FieldID(101), "vector", DataType.FLOAT_VECTOR, dim=DIM)
SCHEMA = CollectionSchema("c", (FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True), FIELD))
DECLARED = {"index_type": "HNSW", "M": "8", "efConstruction": "60", "metric_type": "L2"}


def main() -> None:
    """Print both recalls, their difference, and the share of a core."""
    vectors = np.random.default_rng(7).standard_normal((ROWS + SAMPLES + OFFLINE, DIM), dtype=np.float32)
    rows, sampled, others = np.split(vectors, [ROWS, ROWS + SAMPLES])
    spec = resolve_index(DECLARED, DataType.FLOAT_VECTOR, DIM)
    index = build(spec, rows, 1)
    assert isinstance(index, VectorIndex)
    ids, column = {"id": pa.array(np.arange(ROWS))}, VectorColumn.held(FIELD, index)
    block = Block(SCHEMA, ids, {FIELD.field_id: column}, np.full(ROWS, 1))
    segment = SnapshotSegment(SegmentID(1), PartitionID(1), True, (block,), Timestamp(0))
    of = Snapshot(CollectionID(1), SCHEMA, {FIELD.field_id: spec}, 1, Timestamp(5), None, (segment,))
    sampler = RecallSampler(CPU_SHARE, 0.9)
    sampler._thread = threading.current_thread()  # this one does its work
    every, paused_s, cpu_s = compile_filter("", SCHEMA), 0.0, 0.0
    for query in sampled:
        request = NodeSearch(
            of.collection_id, (), FIELD.field_id, query[None], K, "L2", {"ef": EF}, every, (), Timestamp(5)
        )
        hits = search(of, request, 1)
        sampler.take_next()
        began_s = time.thread_time()
        sampler.offer(of, request, hits)
        paused_s += sampler.measure_one()
        cpu_s += time.thread_time() - began_s
    (measured,) = sampler.measured()
    truth = over_rows(spec.data_type, DIM, spec.metric_type, rows).search(others, K, SearchParams()).rows
    params = SearchParams().with_effort("ef", EF)
    found = [index.search(query[None], K, params).rows[0] for query in others]
    offline = float(np.mean([np.isin(one, best).mean() for one, best in zip(found, truth, strict=True)]))
    interval = f"{measured.low:.3f} to {measured.high:.3f}"
    print(f"measured recall: {measured.recall:.4f}, interval {interval}, {measured.samples} samples")
    print(f"offline truth: {offline:.4f} of {OFFLINE:,} queries; difference {measured.recall - offline:+.4f}")
    print(f"share of a core: {cpu_s / (cpu_s + paused_s):.2%}")


if __name__ == "__main__":
    main()
