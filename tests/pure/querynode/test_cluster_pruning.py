"""Searches of clustered segments: bounds lose nothing, a ratio loses what it is known to lose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elanus.api.querynode import NodeHits, NodeSearch
from elanus.core.errors import InvalidParameter
from elanus.core.explanation import NodeReport
from elanus.core.grouping import Grouping
from elanus.core.ids import CollectionID, FieldID, NodeID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.spheres import Spheres, grouped, spheres_around
from elanus.core.timestamps import Timestamp
from elanus.core.trail import following
from elanus.expr import compile_filter
from elanus.index import (
    IndexSpec,
    VectorIndex,
    build,
    nearest_centroids,
    resolve_index,
    train_centroids,
    true_params,
)
from elanus.querynode.block import Block, Clustered
from elanus.querynode.explaining import new_trail, reported
from elanus.querynode.search import search
from elanus.querynode.snapshot import Snapshot, SnapshotSegment
from elanus.querynode.vectors import VectorColumn

DIM, SEGMENTS, NOW = 16, 36, Timestamp(1000)
VECTOR = FieldID(102)
FIELD = FieldSchema(VECTOR, "vector", DataType.FLOAT_VECTOR, dim=DIM, is_clustering_key=True)
COLOR = FieldSchema(FieldID(101), "color", DataType.INT64)
SCHEMA = CollectionSchema(
    "docs", (FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True), COLOR, FIELD)
)


@cache
def rows() -> np.ndarray:
    """Vectors around 150 places, of different density: as texts around topics."""
    chance = np.random.default_rng(4)
    places = chance.normal(size=(150, DIM)) * 2
    of = chance.choice(150, 6000, p=chance.dirichlet(np.full(150, 2.0)))
    return (places[of] + chance.normal(size=(6000, DIM)) * 0.7).astype(np.float32)


@cache
def clusters() -> list[tuple[np.ndarray, Spheres]]:
    """As a compaction makes them: the numbers of each segment's rows, and the spheres."""
    centroids = train_centroids(rows(), 16 * SEGMENTS, seed=1)
    of = nearest_centroids(centroids, [rows()])
    made = []
    for members in grouped(centroids, np.bincount(of, minlength=len(centroids)), SEGMENTS):
        numbers = np.flatnonzero(np.isin(of, members))
        places = {int(member): place for place, member in enumerate(members)}
        own = np.array([places[c] for c in of[numbers].tolist()])
        made.append((numbers, spheres_around(centroids[members], [rows()[numbers]], own)))
    return made


def block(numbers: np.ndarray, spec: IndexSpec, spheres: Spheres | None, keys: Any = None) -> Block:
    index = build(spec, rows()[numbers], 1)
    assert isinstance(index, VectorIndex)
    return Block(
        SCHEMA,
        {"id": pa.array(numbers if keys is None else keys), "color": pa.array(numbers % 10)},
        {VECTOR: VectorColumn.held(FIELD, index)},
        np.full(len(numbers), 10, dtype=np.int64),
        clustered=None if spheres is None else Clustered(VECTOR, ("c_0", 1), spheres),
    )


def snapshot_of(blocks: list[Block], spec: IndexSpec) -> Snapshot:
    segments = [
        SnapshotSegment(SegmentID(n), PartitionID(1), True, (b,), Timestamp(0)) for n, b in enumerate(blocks)
    ]
    return Snapshot(CollectionID(7), SCHEMA, {VECTOR: spec}, 12, NOW, None, tuple(segments))


@cache
def clustered(metric: str = "L2", kind: str = "FLAT") -> tuple[Snapshot, Snapshot]:
    """The segments with what is known about them, and the same ones without."""
    params = {"index_type": kind, "metric_type": metric, **({"m": "4"} if kind == "IVF_PQ" else {})}
    spec = resolve_index(params, DataType.FLOAT_VECTOR, DIM)
    known = [block(numbers, spec, spheres) for numbers, spheres in clusters()]
    plain = [block(numbers, spec, None) for numbers, _ in clusters()]
    return snapshot_of(known, spec), snapshot_of(plain, spec)


def asked(
    queries: int = 20, k: int = 10, where: str = "", params: Mapping[str, Any] | None = None
) -> NodeSearch:
    chance = np.random.default_rng(6)
    picked = rows()[chance.choice(len(rows()), queries)]
    return NodeSearch(
        CollectionID(7),
        (),
        VECTOR,
        picked + chance.normal(size=picked.shape).astype(np.float32) / 4,
        k,
        "",
        params or {},
        compile_filter(where, SCHEMA),
        (),
        NOW,
    )


def explained(of: Snapshot, request: NodeSearch) -> tuple[NodeHits, NodeReport]:
    trail = new_trail()
    with following(trail):
        hits = reported(NodeID(3), search, of, request, 1)
    return hits, trail.reports[0]()


def same(one: NodeHits, two: NodeHits) -> None:
    assert one.offsets.tolist() == two.offsets.tolist()
    assert one.ids.tolist() == two.ids.tolist()
    assert one.scores == pytest.approx(two.scores, rel=1e-5, abs=1e-6)  # its sums depend on the batch


@pytest.mark.parametrize("metric", ["L2", "IP", "COSINE"])
@pytest.mark.parametrize("where", ["", "color == 3"])
@pytest.mark.parametrize("queries", [1, 40])
def test_bounds_change_no_hit(metric: str, where: str, queries: int) -> None:
    known, plain = clustered(metric)
    request = asked(queries, where=where)
    same(search(known, request, 1), search(plain, request, 1))


def test_rows_in_far_clusters_are_not_compared() -> None:
    known, plain = clustered()
    one = asked(1)
    _, report = explained(known, one)
    assert report.segment_count == SEGMENTS
    assert report.pruned > 0.8 * SEGMENTS
    reasons = {part.pruned_by for part in report.segments if part.pruned_by}
    assert reasons == {"clusters: every row is further from the query than the hits found"}
    many, everything = (explained(of, asked(40))[1] for of in (known, plain))
    compared = [sum(part.compared for part in r.segments) for r in (many, everything)]
    assert compared[0] < 0.15 * compared[1], "of many queries only those that a cluster is near to"


def test_a_radius_leaves_far_clusters_out_even_before_there_are_hits() -> None:
    known, plain = clustered()
    request = asked(3, k=5000, params={"radius": 12.0})
    hits, report = explained(known, request)
    same(hits, search(plain, request, 1))
    assert 3 < len(hits.ids) < 5000
    assert {p.pruned_by for p in report.segments if p.pruned_by} == {
        "clusters: every row is further from the query than the radius"
    }


def test_groups_and_pages_are_those_of_all_rows() -> None:
    known, plain = clustered()
    by_color = replace(asked(4, k=3), grouping=Grouping(("color",), 2), output_fields=("color",))
    by_color = replace(by_color, candidates_max=100_000)
    same(search(known, by_color, 1), search(plain, by_color, 1))
    page = asked(
        1, params={"radius": 1e9, "range_filter": 9.0, "iterator_page": True, "segment_filter_ratio": 1}
    )
    same(search(known, page, 1), search(plain, page, 1))


def test_a_key_in_several_clusters_takes_no_other_rows_place() -> None:
    """Ten rows near the query have one key: further hits are in clusters that their distance rules out."""
    spec = resolve_index({"index_type": "FLAT", "metric_type": "L2"}, DataType.FLOAT_VECTOR, DIM)
    request = asked(1)
    nearest = np.argsort(((rows() - request.queries[0]) ** 2).sum(axis=1))[:10]
    keys = np.arange(len(rows()))
    keys[nearest] = 77_777
    known = [block(n, spec, s, keys[n]) for n, s in clusters()]
    plain = [block(n, spec, None, keys[n]) for n, _ in clusters()]
    one, two = (search(snapshot_of(blocks, spec), request, 1) for blocks in (known, plain))
    same(one, two)
    assert len(set(one.ids.tolist())) == 10


def recall(found: NodeHits, true: NodeHits) -> float:
    pairs = [
        len(
            {*found.ids[found.offsets[n] : found.offsets[n + 1]].tolist()}
            & {*true.ids[true.offsets[n] : true.offsets[n + 1]].tolist()}
        )
        for n in range(len(true.offsets) - 1)
    ]
    return sum(pairs) / len(true.ids)


def test_what_a_ratio_costs_and_saves() -> None:
    known, plain = clustered()
    true = search(plain, asked(100), 1)
    found = {}
    for ratio in (0.0, 0.2, 0.5, 1.0, 2.0, 6.0):
        hits, report = explained(known, asked(100, params={"segment_filter_ratio": ratio}))
        found[ratio] = recall(hits, true), sum(part.compared for part in report.segments)
    assert found[0.0][0] == found[6.0][0] == 1.0, "all 36 of 36"
    recalls = [found[ratio][0] for ratio in (0.2, 0.5, 1.0, 2.0)]
    assert recalls == sorted(recalls)
    assert recalls[0] > 0.7, "one cluster of 36"
    assert recalls[2] > 0.95, "six of 36"
    assert found[0.2][1] < found[1.0][1] <= found[0.0][1]


def test_the_true_hits_are_looked_for_everywhere() -> None:
    known, plain = clustered()
    request = asked(5, params={"segment_filter_ratio": 0.2})
    assert sum(p.compared for p in explained(known, request)[1].segments) < 5 * 400
    truth = replace(request, params=true_params(plain.specs[VECTOR].metric_type, request.params))
    same(search(known, truth, 1), search(plain, truth, 1))


def test_why_a_cluster_is_not_searched() -> None:
    known, _ = clustered()
    _, report = explained(known, asked(1, params={"segment_filter_ratio": 0.2}))
    assert {part.pruned_by for part in report.segments if part.pruned_by} == {
        "segment_filter_ratio: other clusters are nearer to the query"
    }


@pytest.mark.parametrize("value", [-1, "much", 1001, True])
def test_an_unusable_ratio_is_refused(value: object) -> None:
    with pytest.raises(InvalidParameter, match="segment_filter_ratio"):
        search(clustered()[0], asked(params={"segment_filter_ratio": value}), 1)


@pytest.mark.parametrize("kind", ["HNSW", "IVF_FLAT", "IVF_PQ"])
def test_approximate_indexes_find_no_less_than_without_bounds(kind: str) -> None:
    known, plain = clustered("L2", kind)
    true = search(clustered()[1], asked(40), 1)
    one, two = (recall(search(of, asked(40, params={"nprobe": 8}), 1), true) for of in (known, plain))
    assert one >= two - 0.005
