"""MHJACCARD and MINHASH_LSH: scores by definition, buckets, and the exact search behind them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.metrics import Metric
from elanus.core.types import DataType
from elanus.index import (
    IndexSpec,
    RowMask,
    SearchParams,
    Window,
    brute_force,
    build,
    check_metric,
    load,
    over_rows,
    resolve_index,
    with_metric,
)
from elanus.index.minhash_lsh import MinHashLshIndex

BINARY = DataType.BINARY_VECTOR
ROWS, HASHES = 500, 16
DIM = HASHES * 32
RNG = np.random.default_rng(11)
SIGNATURES = RNG.integers(0, 2**32, (ROWS, HASHES), dtype=np.uint32)
SIGNATURES[100:120] = SIGNATURES[100]  # near duplicates: 0 to 9 of 16 elements differ
for n in range(100, 120):
    SIGNATURES[n, : (n - 100) // 2] = RNG.integers(0, 2**32, (n - 100) // 2)
CODES = SIGNATURES.view(np.uint8)


def spec_of(**params: object) -> IndexSpec:
    sent = {"index_type": "MINHASH_LSH", "metric_type": "MHJACCARD"}
    return resolve_index({**sent, **{name: str(value) for name, value in params.items()}}, BINARY, DIM)


def built(bands: int = 8) -> MinHashLshIndex:
    index = build(spec_of(mh_lsh_band=bands), CODES, 1)
    assert isinstance(index, MinHashLshIndex)
    return index


def expected(query: np.ndarray) -> np.ndarray:
    return np.asarray((query == SIGNATURES).mean(axis=1), dtype=np.float32)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("queries", [1, 20])
def test_a_score_is_the_share_of_equal_elements(bits: int, queries: int) -> None:
    wanted = CODES[100 : 100 + queries]
    index = over_rows(BINARY, DIM, Metric.MHJACCARD, CODES, {"mh_element_bit_width": bits})
    hits = index.search(wanted, 5, SearchParams())
    rows, asked = CODES.view(f"<u{bits // 8}"), wanted.view(f"<u{bits // 8}")
    for i, query in enumerate(asked):
        scores = (rows == query).mean(axis=1)
        assert hits.distances[i].tolist() == pytest.approx(sorted(scores, reverse=True)[:5])
        assert scores[hits.rows[i]].tolist() == pytest.approx(hits.distances[i].tolist())


def test_rows_in_a_bucket_of_the_query_are_found() -> None:
    index = built()
    near = np.flatnonzero(expected(SIGNATURES[100]) > 0.8)
    assert np.isin(near, index.candidates(CODES[100])).all()
    assert len(index.candidates(CODES[100])) < 30
    hits = index.search(CODES[100:101], 5, SearchParams())
    assert hits.distances[0].tolist() == sorted(expected(SIGNATURES[100]), reverse=True)[:5]


def test_too_few_rows_in_buckets_have_all_compared() -> None:
    hits = built().search(CODES[7:8], 3, SearchParams())
    assert hits.rows[0, 0] == 7
    assert (hits.rows[0] >= 0).all()
    assert hits.distances[0].tolist() == sorted(expected(SIGNATURES[7]), reverse=True)[:3]


def test_a_mask_and_a_window_are_kept() -> None:
    visible = np.arange(ROWS) % 2 == 1
    mask = RowMask.from_bool(visible)
    hits = built().search(CODES[100:101], 4, SearchParams(), mask)
    scores = np.where(visible, expected(SIGNATURES[100]), -1)
    assert hits.distances[0].tolist() == sorted(scores, reverse=True)[:4]
    window = Window(0.5, 0.9, bigger_is_better=True)
    hits = built().search(CODES[100:101], ROWS, SearchParams(window=window))
    found = set(hits.rows[0][hits.rows[0] >= 0].tolist())
    scores = expected(SIGNATURES[100])
    assert found == set(np.flatnonzero((scores > 0.5) & (scores <= 0.9)).tolist())


def test_a_file_brings_the_index_back(tmp_path: Path) -> None:
    index = built(4)
    index.save(tmp_path / "one")
    back = load(tmp_path / "one", index.spec)
    assert isinstance(back, MinHashLshIndex)
    assert back.candidates(CODES[110]).tolist() == index.candidates(CODES[110]).tolist()
    assert back.reconstruct(np.array([3, 499])).tolist() == CODES[[3, 499]].tolist()
    assert back.memory_bytes == CODES.nbytes + 4 * ROWS * 12


def test_the_kind_and_its_parameters() -> None:
    assert spec_of().params == {"mh_element_bit_width": 32, "mh_lsh_band": 1, "with_raw_data": False}
    automatic = resolve_index(with_metric({}, "MinHash"), BINARY, DIM)
    assert (automatic.index_type, automatic.metric) == ("MINHASH_LSH", Metric.MHJACCARD)
    assert resolve_index({}, BINARY, DIM).index_type == "BIN_FLAT"
    assert brute_force(BINARY, DIM, Metric.MHJACCARD).index_type == "BIN_FLAT"
    check_metric(automatic, "MinHash")
    check_metric(spec_of(mh_element_bit_width=8), "")


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"mh_element_bit_width": 24}, "should be 8, 16, 32 or 64 and divide the dimension 512, but got 24"),
        ({"mh_lsh_band": 17}, "mh_lsh_band (17) should not exceed the number of elements in a signature, 16"),
        ({"mh_lsh_band": 0}, "should be in range"),
        ({"metric_type": "JACCARD"}, "MINHASH_LSH does not support it"),
        ({"index_type": "BIN_FLAT"}, "BIN_FLAT does not support it"),
    ],
)
def test_bad_parameters(params: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        spec_of(**params)
    assert text in refusal.value.message


def test_the_output_of_a_function_needs_its_metric_and_its_element_width() -> None:
    other = resolve_index({"index_type": "BIN_FLAT", "metric_type": "JACCARD"}, BINARY, DIM)
    with pytest.raises(
        InvalidParameter, match="MinHash function output field must be MHJACCARD, got JACCARD"
    ):
        check_metric(other, "MinHash")
    with pytest.raises(InvalidParameter, match="must be 32, got 8"):
        check_metric(spec_of(mh_element_bit_width=8), "MinHash")
