"""Measured recall as arithmetic: what counts as found, the interval, the windows and the cause."""

from __future__ import annotations

import numpy as np
import pytest

from elanus.core.ids import CollectionID
from elanus.core.recall import WINDOW_SAMPLES, Measured, Sample, Tally, band_of, merged, recall_of, wilson


def scores(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize(
    ("hits", "of_hits", "truth", "of_truth", "recall"),
    [
        ([1, 2, 3, 4], (1, 2, 3, 4), [1, 2, 3, 4], (1, 2, 3, 4), 1.0),
        ([1, 2, 5, 6], (1, 2, 5, 6), [1, 2, 3, 4], (1, 2, 3, 4), 0.5),
        ([1], (1,), [1, 2], (1, 2), 0.5),
        ([], (), [1, 2], (1, 2), 0.0),
        ([], (), [], (), 1.0),
        (["a", "c"], (1, 2), ["a", "b"], (1, 2), 1.0),  # c is as near as b
        (["a", "c", "d"], (1, 2, 2), ["a", "b"], (1, 2), 1.0),
    ],
)
def test_recall_of_one_query(
    hits: list[object],
    of_hits: tuple[float, ...],
    truth: list[object],
    of_truth: tuple[float, ...],
    recall: float,
) -> None:
    assert recall_of(hits, scores(*of_hits), truth, scores(*of_truth)) == recall


@pytest.mark.parametrize(
    ("matching", "rows", "band"),
    [
        (100, 100, "all rows"),
        (0, 0, "all rows"),
        (99, 100, "10 % or more"),
        (10, 100, "10 % or more"),
        (9, 100, "1 % to 10 %"),
        (0, 100, "less than 1 %"),
    ],
)
def test_bands_of_selectivity(matching: int, rows: int, band: str) -> None:
    assert band_of(matching, rows) == band


def test_the_interval_of_wilson() -> None:
    assert wilson(0.0, 0) == (0.0, 1.0)
    low, high = wilson(0.9, 100)
    assert (round(low, 4), round(high, 4)) == (0.8256, 0.9448)
    assert wilson(1.0, 100)[1] == pytest.approx(1.0)
    assert wilson(1.0, 100)[0] < 0.97


def test_the_interval_holds_the_true_recall_95_times_in_100() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(1000):
        low, high = wilson(float(rng.binomial(10, 0.9, size=200).mean() / 10), 200)
        held += low <= 0.9 <= high
    assert held >= 950


def test_after_two_thousand_samples_recall_is_within_a_hundredth() -> None:
    rng = np.random.default_rng(4)
    tally = Tally()
    for found in rng.binomial(10, 0.93, size=2000):
        tally.add(Sample(found / 10))
    assert abs(tally.recall - 0.93) <= 0.01
    low, high = tally.interval
    assert low <= 0.93 <= high


def test_old_samples_are_forgotten() -> None:
    tally = Tally()
    for _ in range(3 * WINDOW_SAMPLES):
        tally.add(Sample(0.0))
    for _ in range(2 * WINDOW_SAMPLES + 1):
        tally.add(Sample(1.0))
    assert tally.recall == 1.0
    assert tally.samples <= 2 * WINDOW_SAMPLES


def filled(*samples: Sample, times: int = 200) -> Tally:
    tally = Tally()
    for _ in range(times):
        for sample in samples:
            tally.add(sample)
    return tally


def test_a_target_that_is_met_has_no_cause() -> None:
    assert filled(Sample(1.0)).cause(0.95) == ""
    assert filled(Sample(0.9, 1.0, "ef 10"), times=3).cause(0.95) == "", "too few samples"


@pytest.mark.parametrize(
    ("sample", "cause"),
    [
        (Sample(0.5, 1.0, "ef 10"), "ef 10 is too small"),
        (Sample(0.5, 0.9, "nprobe 1", codes=True), "nprobe 1 is too small"),
        (Sample(0.5, 0.5, "nprobe 64", codes=True), "compares codes"),
        (Sample(0.5, 0.55, "ef 64"), "built with too little"),
        (Sample(0.5), "built with too little"),
    ],
)
def test_the_cause_of_a_missed_target(sample: Sample, cause: str) -> None:
    assert cause in filled(sample).cause(0.95)


def measured(samples: int, recall: float, cause: str = "", band: str = "all rows") -> Measured:
    return Measured(CollectionID(1), "v", "HNSW", band, samples, recall, *wilson(recall, samples), cause)


def test_what_several_processes_measured_is_as_if_one_had() -> None:
    other = measured(50, 1.0, band="less than 1 %")
    found = merged([[measured(300, 0.8, "ef 10 is too small"), other], [measured(100, 0.6)], []], 0.9)
    assert found == [measured(400, 0.75, "ef 10 is too small"), other]


def test_many_samples_may_show_what_none_of_the_processes_can() -> None:
    few = measured(20, 0.85)
    assert few.high > 0.9
    (one,) = merged([[few]] * 20, 0.9)
    assert one.high < 0.9
    assert one.cause == "each process has too few samples to say why"
    assert merged([[few], [few]], 0.9)[0].cause == ""
