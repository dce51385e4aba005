"""The cost of a search by rows, dimensions and segments, on a query node without a server around it.

Drawn vectors are put into HNSW indexes, and the node searches them one query at a time, ten hits of each,
with one breadth of the walk. Next to each time is that of faiss alone: its walks through the same graphs. Two
of the three sizes stay the same while the third grows. The slope is that of a straight line through the
logarithms: 0 means that a size costs nothing, 1 that twice the size takes twice the time. Segments divide the
same rows, and are searched with one core and with all that are spare.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.dataset import Floats, drawn
from benchmarks.report.drawing import drawn as picture
from benchmarks.results import circumstances_line
from elanus.api.querynode import NodeSearch
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.expr import compile_filter
from elanus.index import IndexSpec, VectorIndex, build, resolve_index
from elanus.index.hnsw import HnswIndex
from elanus.querynode.block import Block
from elanus.querynode.search import search
from elanus.querynode.snapshot import Snapshot, SnapshotSegment
from elanus.querynode.vectors import VectorColumn

HITS, EF, QUERIES = 10, 64, 200
_VECTOR, _NOW = FieldID(2), Timestamp(2)
_TURNS = 5
_PARAMS = {"index_type": "HNSW", "metric_type": "L2", "M": "16", "efConstruction": "200"}


class Extent(msgspec.Struct, frozen=True):
    """The sizes to measure: ``rows`` of ``dim`` dimensions; ``dims`` of ``rows_of_dims`` rows; ``segments``
    that divide ``rows_of_segments`` rows of ``dim`` dimensions, no more than the most ``rows``."""

    rows: Sequence[int]
    dim: int
    dims: Sequence[int]
    rows_of_dims: int
    segments: Sequence[int]
    rows_of_segments: int


WHOLE = Extent(
    (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000),
    192,
    (64, 128, 192, 384, 768),
    50_000,
    (1, 2, 5, 10, 20, 50),
    200_000,
)
QUICK = Extent((1000, 2000, 4000), 32, (16, 32, 64), 2000, (1, 2, 4), 4000)


class Point(msgspec.Struct, frozen=True):
    """Medians of one search in microseconds: of the query node with one core and with all, and of faiss."""

    size: int
    node_us: float
    node_all_us: float
    faiss_us: float


class Figures(msgspec.Struct, frozen=True):
    """``series``: by the size that grows."""

    series: dict[str, list[Point]]


def slope(points: Sequence[Point], cost: Callable[[Point], float]) -> float:
    """The slope of the cost over the size, both logarithmic. At least two sizes."""
    fitted = np.polyfit(np.log([p.size for p in points]), np.log([cost(p) for p in points]), 1)
    return float(fitted[0])


def measure(extent: Extent, say: Callable[[str], None]) -> Figures:
    series: dict[str, list[Point]] = {"rows": [], "dimensions": [], "segments": []}

    def note(kind: str, size: int, vectors: Floats, queries: Floats, segments: int) -> None:
        series[kind].append(_point(size, vectors, queries, segments))
        say(f"{size:,} {kind}: {series[kind][-1]}")

    data = drawn(extent.rows[-1], extent.dim, QUERIES)
    for rows in extent.rows:
        note("rows", rows, data.train[:rows], data.test, 1)
    for segments in extent.segments:
        note("segments", segments, data.train[: extent.rows_of_segments], data.test, segments)
    for dim in extent.dims:
        other = drawn(extent.rows_of_dims, dim, QUERIES)
        note("dimensions", dim, other.train, other.test, 1)
    return Figures(series)


def _point(size: int, vectors: Floats, queries: Floats, segments: int) -> Point:
    spec = resolve_index(_PARAMS, DataType.FLOAT_VECTOR, vectors.shape[1])
    schema = _schema(vectors.shape[1])
    indexes = [_graph(spec, part) for part in np.array_split(vectors, segments)]
    snapshot = _snapshot(schema, spec, indexes)
    cores = os.cpu_count() or 1
    requests = [_request(schema, query[None, :]) for query in queries]
    ways: list[Callable[[int], object]] = [
        lambda n: search(snapshot, requests[n], 1),
        lambda n: search(snapshot, requests[n], cores),
        lambda n: [index.met(queries[n][None, :], HITS, EF, 1) for index in indexes],
    ]
    taken_us: list[list[float]] = [[] for _ in ways]
    for turn in range(_TURNS):  # by turns, so that other work on the machine meets all alike
        for number in range(len(queries)):
            for place in range(len(ways)):  # whose turn is first differs: it finds the query's rows uncached
                way = (turn + number + place) % len(ways)
                began_s = time.perf_counter()
                ways[way](number)
                taken_us[way].append(1e6 * (time.perf_counter() - began_s))
    return Point(size, *map(median, taken_us))


def _graph(spec: IndexSpec, vectors: Floats) -> HnswIndex:
    index = build(spec, np.ascontiguousarray(vectors), os.cpu_count() or 1)
    assert isinstance(index, HnswIndex)
    return index


def _schema(dim: int) -> CollectionSchema:
    key = FieldSchema(FieldID(1), "id", DataType.INT64, is_primary=True)
    return CollectionSchema("sizes", (key, FieldSchema(_VECTOR, "v", DataType.FLOAT_VECTOR, dim=dim)))


def _snapshot(schema: CollectionSchema, spec: IndexSpec, indexes: Sequence[VectorIndex]) -> Snapshot:
    field, first, segments = schema.by_id[_VECTOR], 0, []
    for number, index in enumerate(indexes):
        keys = pa.array(np.arange(first, first + index.rows))
        first += index.rows
        stamps = np.ones(index.rows, np.int64)
        block = Block(schema, {"id": keys}, {_VECTOR: VectorColumn.held(field, index)}, stamps)
        segments.append(SnapshotSegment(SegmentID(number), PartitionID(1), True, (block,)))
    return Snapshot(CollectionID(1), schema, {_VECTOR: spec}, 1, _NOW, None, tuple(segments))


def _request(schema: CollectionSchema, query: Floats) -> NodeSearch:
    return NodeSearch(
        collection_id=CollectionID(1),
        partition_ids=(),
        field_id=_VECTOR,
        queries=query,
        k=HITS,
        metric_type="L2",
        params={"ef": EF},
        filter=compile_filter("", schema),
        output_fields=("id",),
        read_ts=_NOW,
    )


def page(figures: Figures, facts: Mapping[str, str]) -> str:
    """Return Markdown: a table for each size that grows, with the slopes.

    ``facts``: of the machine and the moment (`benchmarks.results.moment`).
    """
    lines = ["# The cost of a search by size", "", "*Made by `make sizes`.*", ""]
    lines += [(__doc__ or "").partition("\n\n")[2].strip(), "", circumstances_line(facts), ""]
    for kind, points in figures.series.items():
        lines += [
            f"## {kind.capitalize()}",
            "",
            f"| {kind} | node, µs | with all cores, µs | faiss, µs | node ÷ faiss |",
        ]
        lines.append("|---:|---:|---:|---:|---:|")
        for p in points:
            row = f"| {p.size:,} | {p.node_us:.0f} | {p.node_all_us:.0f} | {p.faiss_us:.0f} "
            lines.append(f"{row}| {p.node_us / p.faiss_us:.2f} |")
        node, both = slope(points, lambda p: p.node_us), slope(points, lambda p: p.faiss_us)
        lines += ["", f"Slope: {node:.2f}, of faiss {both:.2f}.", ""]
    return "\n".join(lines)


def draw(figures: Figures, path: Path) -> None:
    """Write an SVG with a panel for each size that grows, both axes logarithmic. Needs matplotlib."""
    with picture(path, (3.2 * len(figures.series), 3.2)) as figure:
        panels = figure.subplots(1, len(figures.series))
        for panel, (kind, points) in zip(panels, figures.series.items(), strict=True):
            sizes = [p.size for p in points]
            panel.loglog(sizes, [p.node_us for p in points], "o-", label="query node")
            panel.loglog(sizes, [p.node_all_us for p in points], "o--", label="with all cores")
            panel.loglog(sizes, [p.faiss_us for p in points], "o-", color="0.7", label="faiss")
            panel.set_xlabel(kind)
            panel.set_ylabel("µs per search")
            panel.legend(frameon=False, fontsize=8)
