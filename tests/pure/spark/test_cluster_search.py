"""Searches of a snapshot leave clusters out: by the distance of their vectors, and by the filter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from snapshot_world import DIM, World

import elanus.spark.segment_search as module
from elanus.core.clustering import Cluster
from elanus.core.ids import FieldID
from elanus.core.spheres import spheres_around
from elanus.expr import compile_filter
from elanus.spark.searches import segment_sets
from elanus.spark.segment import may_match
from elanus.storage.stats_log import KeyStatsBuilder, write_stats_log

CLUSTERS = 16


class Clustered(World):
    """Segments around distant places. ``searched``: how many queries met a segment."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        chance = np.random.default_rng(3)
        self.places = (chance.normal(size=(CLUSTERS, DIM)) * 20).astype(np.float32)
        self.noise = chance.normal(size=(CLUSTERS, 50, DIM)).astype(np.float32)

    def fill(self, *, keys: list[int] | None = None) -> None:
        for number, place in enumerate(self.places):
            rows = place + self.noise[number]
            ids = list(range(100 * number, 100 * number + 50)) if keys is None else keys
            self.add(ids, rows)
            stats = KeyStatsBuilder()
            stats.add(pa.array(ids))
            path = f"stats_log/{number}"
            spheres = spheres_around(place[None], [rows], np.zeros(50, np.int64))
            write_stats_log(self.store, path, stats.finish(), spheres)
            field = self.schema.field("v").field_id
            self.manifests[-1] = replace(
                self.manifests[-1], stats_logs=(path,), cluster=Cluster(field, None, None)
            )


@pytest.fixture
def world(tmp_path: Path) -> Clustered:
    return Clustered(tmp_path)


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many queries each search of a segment had."""
    found: list[int] = []
    opened = module._opened

    def counting(*args):  # type: ignore[no-untyped-def]
        segment = opened(*args)
        search = segment.index.search
        segment.index.search = lambda queries, *rest: found.append(len(queries)) or search(queries, *rest)
        return segment

    monkeypatch.setattr(module, "_opened", counting)
    return found


@pytest.mark.parametrize("sets", [1, 3])
def test_a_query_meets_the_clusters_near_to_it_alone(world: Clustered, met: list[int], sets: int) -> None:
    world.fill()
    queries = world.places[:10] + 0.5
    answers = world.hits(world.plan(k=5), queries, sets)
    assert [[key for key, _ in hits] for hits in answers] == [world.nearest(q, 5) for q in queries]
    assert sum(met) < 0.4 * 10 * CLUSTERS
    met.clear()
    for number, manifest in enumerate(world.manifests):
        world.manifests[number] = replace(manifest, stats_logs=("stats_log/gone",))
    assert world.hits(world.plan(k=5), queries, sets) == answers, "without the spheres all are searched"
    assert sum(met) == 10 * CLUSTERS


def test_a_radius_and_a_ratio_apply_too(world: Clustered, met: list[int]) -> None:
    world.fill()
    query = world.places[3:4]
    near = world.hits(world.plan(k=100, params={"radius": 30.0}), query)
    assert {key // 100 for key, _ in near[0]} == {3}
    assert met == [1]
    met.clear()
    some = world.hits(world.plan(k=60, params={"segment_filter_ratio": 0.1}), query)
    assert len({key // 100 for key, _ in some[0]}) == len(met) == 2, "as many as have 60 rows"
    met.clear()
    world.hits(world.plan(k=60, params={"segment_filter_ratio": 0.1}, exact=True), query)
    assert len(met) >= 2


def test_a_key_in_all_clusters_is_found_once_and_takes_no_place(world: Clustered) -> None:
    """The nearest cluster has one key only: the other hits are in clusters that its rows rule out."""
    world.fill(keys=[7] * 50)
    world.add([1, 2], world.places[:2] * 0 + 1000)
    (hits,) = world.hits(world.plan(k=3), world.places[:1])
    assert [key for key, _ in hits] == [7, 1, 2]


def test_a_filter_rules_out_ranges_of_a_scalar_key(world: Clustered) -> None:
    world.fill()
    key = world.schema.fields[0]
    assert (key.name, key.field_id) == ("id", FieldID(100))
    ranges = [
        replace(m, cluster=Cluster(key.field_id, 100 * n, 100 * n + 49))
        for n, m in enumerate(world.manifests)
    ]
    snapshot = replace(world.snapshot, segments=tuple(ranges))

    def left(where: str) -> list[int]:
        shares = segment_sets(snapshot, world.plan(filter=where), 4)
        return sorted(m.segment_id - 1000 for share in shares for m in share)

    assert left("id == 310") == [3]
    assert left("id in [120, 1510] or id < 10") == [0, 1, 15]
    assert left("id == 370") == [], "between two ranges"
    assert left("") == list(range(CLUSTERS))
    chosen = compile_filter("id > 1500", world.schema)
    unknown = replace(ranges[0], cluster=Cluster(key.field_id, None, None))
    assert [may_match(m, chosen, world.schema) for m in (ranges[0], ranges[15], unknown)] == [
        False,
        True,
        True,
    ]


def test_deleted_rows_rule_nothing_out(world: Clustered) -> None:
    world.fill()
    world.delete(20, *range(48))
    (hits,) = world.hits(world.plan(k=5), world.places[:1])
    alive = world.nearest(world.places[0], 5, lambda key: key >= 48)
    assert [key for key, _ in hits] == alive
