"""Snapshots whose reads are explained, and the clock by which these take the same time in every run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count

import numpy as np
import pyarrow as pa

from elanus.api.querynode import NodeQuery, NodeSearch
from elanus.core.explanation import Explanation, NodeReport, text_of
from elanus.core.ids import CollectionID, FieldID, NodeID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.trail import Trail, following
from elanus.expr import compile_filter
from elanus.index import IndexSpec, ScalarIndex, VectorIndex, build, over_rows, resolve_index
from elanus.querynode import query as node_query
from elanus.querynode.block import Block
from elanus.querynode.explaining import reported
from elanus.querynode.search import search
from elanus.querynode.snapshot import Snapshot, SnapshotSegment
from elanus.querynode.vectors import VectorColumn

DIM = 128
VECTOR = FieldID(102)
PRICE = FieldSchema(FieldID(101), "price", DataType.INT64)
FIELD = FieldSchema(VECTOR, "vector", DataType.FLOAT_VECTOR, dim=DIM)
SCHEMA = CollectionSchema(
    "docs", (FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True), PRICE, FIELD)
)
NOW = Timestamp(1000)
SEARCHED_MAX = 50_000
"""Larger blocks are only counted: their vectors are zeros."""
FLAT = {"index_type": "FLAT", "metric_type": "L2"}


def trail_of_seconds() -> Trail:
    """A trail by whose clocks every look takes 1 ms, and half of it is processor time."""
    seconds, cpu = count(), count()
    return Trail(lambda: next(seconds) / 1000, lambda: next(cpu) / 2000)


@cache
def vectors(rows: int) -> np.ndarray:
    if rows > SEARCHED_MAX:
        return np.zeros((rows, DIM), dtype=np.float32)
    return np.random.default_rng(5).normal(size=(rows, DIM)).astype(np.float32)


def spec_of(params: Mapping[str, str]) -> IndexSpec:
    return resolve_index({"metric_type": "L2", **params}, DataType.FLOAT_VECTOR, DIM)


@cache
def _built(rows: int, params: tuple[tuple[str, str], ...]) -> VectorIndex:
    index = build(spec_of(dict(params)), vectors(rows), 1)
    assert isinstance(index, VectorIndex)
    return index


def block(
    rows: int,
    index: Mapping[str, str] | None = None,
    *,
    price_index: str = "",
    first_key: int = 0,
    low: int = 0,
    high: int = 1000,
    ts: int = 10,
) -> Block:
    """Rows with prices in [low, high). ``index``: None for rows without one."""
    prices = pa.array(np.arange(rows) % (high - low) + low)
    exact = over_rows(DataType.FLOAT_VECTOR, DIM, spec_of(FLAT).metric_type, vectors(rows))
    held = exact if index is None else _built(rows, tuple(sorted(index.items())))
    indexes = {}
    if price_index:
        made = build(resolve_index({"index_type": price_index}, DataType.INT64, 0), prices, 1)
        assert isinstance(made, ScalarIndex)
        indexes["price", ()] = made
    return Block(
        SCHEMA,
        {"id": pa.array(np.arange(first_key, first_key + rows)), "price": prices},
        {VECTOR: VectorColumn.held(FIELD, held)},
        np.full(rows, ts, dtype=np.int64),
        bounds={"price": (low, high - 1)},
        indexes=indexes,
    )


def segment(number: int, *blocks: Block, sealed: bool = True, partition: int = 1, visible_from: int = 0):
    return SnapshotSegment(SegmentID(number), PartitionID(partition), sealed, blocks, Timestamp(visible_from))


def snapshot(*segments: SnapshotSegment, index: Mapping[str, str] = FLAT) -> Snapshot:
    return Snapshot(CollectionID(7), SCHEMA, {VECTOR: spec_of(index)}, 12, NOW, None, segments)


@dataclass(frozen=True)
class Asked:
    """A read. ``kind``: search, query or count."""

    kind: str = "search"
    filter: str = ""
    params: Mapping[str, float | int | str | bool] = field(default_factory=dict)
    k: int = 10
    queries: int = 1
    partitions: tuple[int, ...] = ()
    ignore_growing: bool = False
    expired_until: int = 0
    limit: int | None = None
    keys: tuple[int, ...] = ()
    """The primary keys of the rows that a query asks for."""
    times: int = 1
    """The last of so many equal reads is explained."""


def report_of(of: Snapshot, asked: Asked, trail: Trail | None = None) -> NodeReport:
    """Do the read, and return the node's report."""
    bound = compile_filter(asked.filter, SCHEMA)
    for _ in range(asked.times):
        trail = trail or trail_of_seconds()
        trail.reports.clear()
        with following(trail):
            _answer(of, asked, bound)
    assert trail is not None
    return trail.reports[0]()


def text_for(of: Snapshot, asked: Asked) -> str:
    """The explanation of the node's part, as text without its first line."""
    found = Explanation("", {}, 0, 0, 0, (), (report_of(of, asked),))
    return "\n".join(line.removeprefix("  ") for line in text_of(found).splitlines()[1:])


def search_of(asked: Asked, bound: object) -> NodeSearch:
    return NodeSearch(
        CollectionID(7),
        tuple(PartitionID(number) for number in asked.partitions),
        VECTOR,
        vectors(5000)[100 : 100 + asked.queries],
        asked.k,
        "L2",
        asked.params,
        bound,  # type: ignore[arg-type]
        (),
        NOW,
        asked.ignore_growing,
        expired_until=Timestamp(asked.expired_until or NO_TIMESTAMP),
    )


def _answer(of: Snapshot, asked: Asked, bound: object) -> None:
    if asked.kind == "search":
        reported(NodeID(3), search, of, search_of(asked, bound), 1)
        return
    wanted = NodeQuery(
        CollectionID(7),
        tuple(PartitionID(number) for number in asked.partitions),
        bound,  # type: ignore[arg-type]
        pa.array(asked.keys) if asked.keys else None,
        ("price",),
        asked.limit,
        NOW,
        asked.ignore_growing,
        expired_until=Timestamp(asked.expired_until or NO_TIMESTAMP),
    )
    reported(NodeID(3), node_query.count if asked.kind == "count" else node_query.query, of, wanted)
