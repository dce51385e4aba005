"""Dividing a search among cores: only spare ones are used, and the answer is that of one core."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pytest

from elanus.core.metrics import Metric
from elanus.core.schema import DataType
from elanus.index import (
    RawVectors,
    RowMask,
    SearchParams,
    brute_force,
    build,
    parallel,
    plan,
    resolve_index,
)
from elanus.index.parallel import SpareCores, fan_out

LIMIT_S = 60.0
DIM = 24
ROWS = 3000


def test_a_search_gets_the_cores_that_no_other_uses() -> None:
    cores = SpareCores(4, lambda: 1)
    with cores.taken(2) as first, cores.taken(5) as second, cores.taken(5) as third:
        assert (first, second, third) == (2, 0, 0)
    with cores.taken(9) as alone:
        assert alone == 3


def test_cores_are_spare_again_after_a_failure() -> None:
    cores = SpareCores(2, lambda: 1)

    def fail(_: int) -> None:
        raise ValueError("defect")

    with pytest.raises(ValueError, match="defect"):
        fan_out(fail, [1, 2], cores=cores)
    with cores.taken(1) as granted:
        assert granted == 1


def test_shares_run_side_by_side_where_a_core_is_spare() -> None:
    both = threading.Barrier(2)

    def work(share: int) -> int:
        both.wait(LIMIT_S)  # passes only if another thread works at the same time
        return -share

    assert fan_out(work, [1, 2], cores=SpareCores(2, lambda: 1)) == [-1, -2]


def test_without_more_threads_the_caller_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exhausted:
        def submit(self, work: Callable[[], None]) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(parallel, "_threads", Exhausted)
    assert fan_out(lambda share: -share, [1, 2, 3], cores=SpareCores(2, lambda: 1)) == [-1, -2, -3]


@pytest.mark.parametrize("cores", [1, 2, 5])
def test_results_keep_the_order_of_the_shares(cores: int) -> None:
    assert fan_out(lambda share: share * share, range(40), cores=SpareCores(cores, lambda: 1)) == [
        n * n for n in range(40)
    ]


def test_a_busy_machine_and_a_limit_of_one_thread_leave_the_work_to_the_caller() -> None:
    cores = SpareCores(2, lambda: 1)
    with cores.taken(1):
        threads = fan_out(lambda _: threading.get_ident(), [1, 2, 3], cores=cores)
    assert set(threads) == {threading.get_ident()}
    limited = fan_out(lambda _: threading.get_ident(), [1, 2], 1, SpareCores(9, lambda: 1))
    assert set(limited) == {threading.get_ident()}


def test_cores_that_other_programs_use_are_not_spare() -> None:
    with SpareCores(4, lambda: 3).taken(4) as granted:  # the caller and two others
        assert granted == 1
    with SpareCores(4, lambda: 9).taken(4) as granted:
        assert granted == 0


def test_the_system_says_how_many_threads_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = tmp_path / "loadavg"
    load.write_text("6.05 5.72 4.87 7/301 4242\n")
    monkeypatch.setattr(parallel, "_LOAD", load)
    assert parallel.running_threads() == 7
    load.unlink()
    assert parallel.running_threads() == 1


def test_work_is_divided_into_shares_that_are_worth_a_thread() -> None:
    assert plan.shares_for(0.7e6, 8) == 1
    assert plan.shares_for(1.3e6, 8) == 3
    assert plan.shares_for(1e9, 8) == 8 * plan.SHARES_PER_THREAD
    assert plan.shares_for(1e9, 1) == 1


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any work is divided, whether or not a core is spare for its shares."""
    monkeypatch.setattr(plan, "SHARE_MIN_NS", 1.0)


@pytest.mark.parametrize("data_type", [DataType.FLOAT_VECTOR, DataType.FLOAT16_VECTOR])
@pytest.mark.parametrize("metric", [Metric.L2, Metric.IP, Metric.COSINE])
@pytest.mark.parametrize("share", [1.0, 0.6, 0.03, 0.002])
@pytest.mark.parametrize("queries", [1, 3, 12])
def test_a_divided_scan_finds_what_one_core_finds(
    data_type: DataType, metric: Metric, share: float, queries: int, divided: None
) -> None:
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(ROWS, DIM)).astype(np.float32)
    asked = rng.normal(size=(queries, DIM)).astype(np.float32)
    index = RawVectors(brute_force(data_type, DIM, metric), rows)
    mask = None if share == 1 else RowMask.from_bool(rng.random(ROWS) < share)
    alone = index.search(asked, 10, SearchParams(), mask)
    for threads in (2, 3, 7):
        found = index.search(asked, 10, SearchParams(), mask, threads)
        np.testing.assert_array_equal(found.rows, alone.rows)
        np.testing.assert_array_equal(found.distances, alone.distances)


def test_visible_rows_at_one_end_only(divided: None) -> None:
    rows = np.arange(ROWS * DIM, dtype=np.float32).reshape(ROWS, DIM)
    visible = np.zeros(ROWS, dtype=bool)
    visible[: ROWS // 4] = True
    index = RawVectors(brute_force(DataType.FLOAT_VECTOR, DIM, Metric.L2), rows)
    found = index.search(rows[-1:], 3, SearchParams(), RowMask.from_bool(visible), 4)
    assert found.rows.tolist() == [[ROWS // 4 - 1, ROWS // 4 - 2, ROWS // 4 - 3]]


@pytest.mark.parametrize(("kind", "threads"), [("DISKANN", 1), ("HNSW_PQ", 2)])
def test_few_codewords_are_trained_by_one_thread(
    kind: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several wait for each other at each of many short steps."""
    used: list[int] = []
    train = faiss.IndexPQ.train

    def counted(self: faiss.IndexPQ, rows: np.ndarray) -> None:
        used.append(faiss.omp_get_max_threads())
        train(self, rows)

    monkeypatch.setattr(faiss.IndexPQ, "train", counted)
    sent = {"index_type": kind, "metric_type": "L2"} | ({"m": "4", "nbits": "8"} if kind == "HNSW_PQ" else {})
    spec = resolve_index(sent, DataType.FLOAT_VECTOR, 8)
    build(spec, np.random.default_rng(1).random((300, 8), dtype=np.float32), threads=2)
    assert used == [threads]
