"""Recall, percentiles and the choice of ef are what they are defined to be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.metrics import Choice, Latencies, percentile, recall, smallest_ef


def test_recall_counts_found_neighbors_whatever_their_order() -> None:
    assert recall([[3, 1], [9, 8]], [[1, 2], [8, 9]]) == 0.75


def test_recall_measures_against_the_neighbors_that_exist() -> None:
    assert recall([[7], []], [[7], []]) == 1.0


def test_recall_without_neighbors_or_with_answers_missing_is_refused() -> None:
    with pytest.raises(ValueError):
        recall([[]], [[]])
    with pytest.raises(ValueError):
        recall([[1]], [[1], [2]])


def test_percentiles_are_interpolated() -> None:
    assert percentile([4, 1, 3, 2], 50) == 2.5
    assert percentile([1, 2, 3, 4, 5], 100) == 5
    with pytest.raises(ValueError):
        percentile([], 50)


@given(
    st.lists(st.integers(10, 500), min_size=1, max_size=30, unique=True).map(sorted),
    st.integers(1, 600),
)
def test_the_smallest_ef_is_that_of_a_walk_through_the_grid(grid: list[int], needed: int) -> None:
    sweeps: list[int] = []

    def recall_at(ef: int) -> float:
        sweeps.append(ef)
        return min(1.0, ef / needed)

    passing = [ef for ef in grid if ef >= needed]
    ef = passing[0] if passing else grid[-1]
    assert smallest_ef(grid, recall_at, 1.0) == Choice(ef, min(1.0, ef / needed))
    assert len(sweeps) == len(set(sweeps)) <= len(grid).bit_length() + 1


def test_clients_side_by_side_add_their_rates_and_pool_their_latencies() -> None:
    both = Latencies.of([[1000, 3000], [2000, 2000, 2000, 2000]], [2.0, 1.0])
    assert both == Latencies(p50_ms=2.0, p99_ms=pytest.approx(2.95), calls_per_s=5.0, calls=6)


def test_repeats_give_the_median_of_each_figure() -> None:
    runs = [Latencies(1, 9, 100, 10), Latencies(3, 7, 300, 30), Latencies(2, 8, 200, 20)]
    assert Latencies.median_of(runs) == Latencies(2, 8, 200, 60)
