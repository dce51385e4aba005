"""The recall of live searches, measured at their own timestamps, and the limit of its cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from explained_reads import DIM, FIELD, SCHEMA, VECTOR, Asked, block, search_of, segment, snapshot, vectors

from elanus.core.ids import ALL_PARTITIONS, CollectionID
from elanus.core.metrics import TRUTH, Metric
from elanus.core.recall import Misses, wilson
from elanus.core.schema import DataType
from elanus.core.target_recall import MISS_FACTOR
from elanus.core.timestamps import Timestamp
from elanus.expr import compile_filter
from elanus.index import VectorIndex, build, resolve_index, true_params
from elanus.index.curve import RecallCurve
from elanus.querynode.block import Block
from elanus.querynode.deletes import DeleteBatch
from elanus.querynode.recall import PAUSE_MIN_S, PIN_S, RecallSampler
from elanus.querynode.search import search
from elanus.querynode.snapshot import Snapshot
from elanus.querynode.vectors import VectorColumn

POOR = {"index_type": "IVF_FLAT", "nlist": "64"}
ROWS = 5000


class World:
    """A sampler whose thread never runs: the tests measure. ``cpu_s``: what each sample costs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, target: float = 0.95, cost_s: float = 0.0) -> None:
        self.now_s = 100.0
        self.cpu_s = 0.0
        self.cost_s = cost_s
        self.counted: list[tuple[str, str, float]] = []
        self.sampler = RecallSampler(
            0.01,
            target,
            lambda *sample: self.counted.append(sample),
            now_s=lambda: self.now_s,
            cpu_s=self._cpu,
        )
        monkeypatch.setattr("threading.Thread.start", lambda _: None)

    def _cpu(self) -> float:
        self.cpu_s += self.cost_s
        return self.cpu_s

    def measured(self, of: Snapshot, asked: Asked, number: int = 0) -> float:
        """Search, and measure this search. Returns the pause."""
        self.sampler.take_next()
        request = search_of(asked, compile_filter(asked.filter, SCHEMA))
        request = replace(request, queries=vectors(ROWS)[number : number + 1] + np.float32(0.05))
        self.sampler.offer(of, request, search(of, request, 1))
        return self.sampler.measure_one()


def of_ivf(**params: str) -> Snapshot:
    return snapshot(segment(1, block(ROWS, {**POOR, **params})), index=POOR)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_nothing_is_known_of_a_collection_that_was_released(world: World) -> None:
    """It may have been dropped because it missed too much, or get a better index."""
    of, asked = of_ivf(), Asked(params={"target_recall": 0.9})
    world.measured(of, asked)
    assert world.sampler.measured()
    world.sampler.forget(CollectionID(of.collection_id + 1))
    assert world.sampler.measured()
    world.sampler.forget(of.collection_id)
    assert not world.sampler.measured()
    assert not world.sampler._misses


def test_a_search_of_a_collection_that_was_released_makes_room_for_another(world: World) -> None:
    of, request = of_ivf(), search_of(Asked(), compile_filter("", SCHEMA))
    hits = search(of, request, 1)
    world.sampler.offer(of, request, hits)
    world.sampler.forget(of.collection_id)
    assert world.sampler.measure_one() == 0
    world.sampler.offer(of, request, hits)
    assert world.sampler.measure_one() > 0
    assert world.sampler.measured()


def test_searches_with_a_target_learn_what_they_miss(world: World) -> None:
    """The index promises more than it holds: the curve says that one list is enough for any target."""
    of, asked = of_ivf(), Asked(params={"target_recall": 0.9})
    request = search_of(asked, compile_filter("", SCHEMA))
    (index,) = (b.vectors[VECTOR].index for b in of.segments[0].blocks)
    assert index is not None
    index.curve = RecallCurve(np.array([10]), np.array([1, 64]), np.array([[0.95, 1.0]]))
    try:
        assert world.sampler.aimed(request) is request
        for number in range(60):
            world.measured(of, asked, number)
        learned = world.sampler.aimed(request)
        assert float(learned.params[MISS_FACTOR]) > 2
        poor = search_of(Asked(params={"ef": 10}), compile_filter("", SCHEMA))
        assert world.sampler.aimed(poor) is poor
    finally:
        index.curve = None


def test_what_was_missed_counts_against_what_was_promised() -> None:
    misses = Misses()
    assert misses.factor == 1
    for _ in range(400):
        misses.add(recall=0.8, target=0.9, factor=1.0)
    assert misses.factor == pytest.approx(2, rel=0.1)
    for _ in range(2000):  # with twice the care the target is reached: the factor stays
        misses.add(recall=0.9, target=0.9, factor=2.0)
    assert misses.factor == pytest.approx(2, rel=0.1)


def test_a_small_effort_is_measured_and_named(world: World) -> None:
    of, asked = of_ivf(), Asked(params={"nprobe": 1})
    for number in range(60):
        world.measured(of, asked, number)
    (found,) = world.sampler.measured()
    assert (found.field, found.index, found.band, found.samples) == ("vector", "IVF_FLAT", "all rows", 60)
    assert found.recall == pytest.approx(_offline(of, asked, 60), abs=1e-9)
    assert (found.low, found.high) == wilson(found.recall, 60)
    assert found.recall < 0.8
    assert found.cause.startswith("nprobe 1 is too small")
    assert len(world.counted) == 60


def _offline(of: Snapshot, asked: Asked, count: int) -> float:
    """The recall by numpy."""
    found = 0.0
    for number in range(count):
        query = vectors(ROWS)[number] + np.float32(0.05)
        truth = np.argsort(((vectors(ROWS) - query) ** 2).sum(axis=1))[:10]
        request = replace(search_of(asked, compile_filter("", SCHEMA)), queries=query[None])
        found += len(np.intersect1d(search(of, request, 1).ids, truth)) / 10
    return found / count


def test_an_exhaustive_search_has_recall_one(world: World) -> None:
    for number in range(20):
        world.measured(of_ivf(), Asked(params={"nprobe": 64}), number)
    (found,) = world.sampler.measured()
    assert (found.recall, found.cause) == (1.0, "")


def test_bands_of_filters_are_apart(world: World) -> None:
    of = of_ivf()
    for text in ("", "price < 500", "price < 20", "price == 3"):
        world.measured(of, Asked(filter=text))
    bands = {found.band for found in world.sampler.measured()}
    assert bands == {"all rows", "10 % or more", "1 % to 10 %", "less than 1 %"}


def test_writes_after_the_search_make_no_difference(world: World) -> None:
    rows = block(ROWS, POOR)
    of, asked = snapshot(segment(1, rows), index=POOR), Asked(params={"nprobe": 64})
    world.sampler.take_next()
    request = search_of(asked, compile_filter("", SCHEMA))
    hits = search(of, request, 1)
    world.sampler.offer(of, request, hits)
    gone = DeleteBatch.of(pa.array(hits.ids), np.full(len(hits.ids), request.read_ts + 1), ALL_PARTITIONS)
    assert rows.delete(gone) == 10
    world.sampler.measure_one()
    (found,) = world.sampler.measured()
    assert found.recall == 1.0


def test_truth_comes_from_the_files_where_the_index_has_only_codes(world: World) -> None:
    codes = {"index_type": "IVF_PQ", "nlist": "8", "m": "4", "nbits": "4"}
    index = build(resolve_index({"metric_type": "L2", **codes}, DataType.FLOAT_VECTOR, DIM), vectors(ROWS), 1)
    assert isinstance(index, VectorIndex)
    fetched: list[int] = []

    def fetch(rows: np.ndarray) -> np.ndarray:
        fetched.append(len(rows))
        return vectors(ROWS)[rows]

    plain = block(ROWS)
    column = VectorColumn(FIELD, index, fetch, lambda: None)
    rows = Block(SCHEMA, plain._columns, {VECTOR: column}, plain.row_ts)
    of, asked = snapshot(segment(1, rows), index=codes), Asked(params={"nprobe": 8})
    request = replace(
        search_of(asked, compile_filter("", SCHEMA)), params=true_params(Metric.L2, asked.params)
    )
    truth = np.argsort(((vectors(ROWS) - request.queries[0]) ** 2).sum(axis=1))[:10]
    assert search(of, request, 1).ids.tolist() == truth.tolist()
    assert sum(fetched) == ROWS
    for number in range(60):
        world.measured(of, asked, number)
    (found,) = world.sampler.measured()
    assert found.recall < 0.8
    assert "codes" in found.cause


def test_a_range_search_is_compared_within_its_range() -> None:
    params = true_params(Metric.L2, {"radius": 9.0, "range_filter": 1.0, "ef": 4})
    assert params["radius"] == 9.0
    assert params["range_filter"] == 1.0
    assert "ef" not in params
    assert TRUTH in params


def test_the_pause_keeps_the_share_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, cost_s=0.02)
    assert world.measured(of_ivf(), Asked()) == pytest.approx(2.0)
    assert World(monkeypatch).measured(of_ivf(), Asked()) == PAUSE_MIN_S


def test_only_one_search_is_taken_until_the_pause_is_over(world: World) -> None:
    of, bound = of_ivf(), compile_filter("", SCHEMA)
    request = search_of(Asked(), bound)
    hits = search(of, request, 1)
    for _ in range(5):
        world.sampler.offer(of, request, hits)
    world.sampler.measure_one()
    world.sampler.measure_one()
    assert len(world.counted) == 1
    world.sampler.offer(of, request, hits)
    assert world.sampler.measure_one() == 0.0


def test_a_sample_that_waited_too_long_is_dropped(world: World) -> None:
    of, request = of_ivf(), search_of(Asked(), compile_filter("", SCHEMA))
    world.sampler.offer(of, request, search(of, request, 1))
    world.now_s += PIN_S + 1
    world.sampler.measure_one()
    assert world.counted == []


def test_searches_that_compare_all_rows_are_not_measured(world: World) -> None:
    world.measured(snapshot(segment(1, block(100))), Asked())
    assert world.sampler.measured() == []


def test_a_share_of_zero_measures_nothing() -> None:
    sampler = RecallSampler(0.0, 0.9)
    of, request = of_ivf(), search_of(Asked(), compile_filter("", SCHEMA))
    sampler.offer(of, request, search(of, request, 1))
    assert sampler.measure_one() == 0.0
    sampler.close()


def test_a_search_as_of_the_past_is_compared_with_the_past(world: World) -> None:
    of = snapshot(segment(1, block(ROWS, POOR, ts=10)), segment(2, block(50, ts=900)), index=POOR)
    request = replace(
        search_of(Asked(params={"nprobe": 64}), compile_filter("", SCHEMA)), read_ts=Timestamp(500)
    )
    world.sampler.offer(of, request, search(of, request, 1))
    world.sampler.measure_one()
    assert world.counted == [("IVF_FLAT", "all rows", 1.0)]


def test_the_thread_measures_and_ends() -> None:
    import threading

    done, others = threading.Event(), set(threading.enumerate())
    sampler = RecallSampler(1.0, 0.9, lambda *_: done.set())
    of, request = of_ivf(), search_of(Asked(), compile_filter("", SCHEMA))
    sampler.offer(of, request, search(of, request, 1))
    assert done.wait(60)
    sampler.close()
    assert "recall" not in {thread.name for thread in set(threading.enumerate()) - others}


def test_a_search_does_not_fail_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done = threading.Event()
    sampler = RecallSampler(1.0, 0.9, lambda *_: done.set())
    of, request = of_ivf(), search_of(Asked(), compile_filter("", SCHEMA))
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse)
        sampler.offer(of, request, search(of, request, 1))
        sampler.close()  # there is no thread to wait for
    sampler = RecallSampler(1.0, 0.9, lambda *_: done.set())
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse)
        sampler.offer(of, request, search(of, request, 1))
    sampler.offer(of, request, search(of, request, 1))
    assert done.wait(60), "the next search is measured when there are threads again"
    sampler.close()
