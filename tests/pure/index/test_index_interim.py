"""Interim indexes: rows in place, codes that grow with them, and the answers of an exact scan."""

from __future__ import annotations

import itertools
from typing import Any

import faiss
import numpy as np
import pytest
from index_data import recall
from test_index_coded_scan import K, data, spec_of

from elanus.core.nullable import NullableVectors
from elanus.core.types import DataType
from elanus.index import (
    Codebook,
    InterimIndex,
    RowMask,
    SearchParams,
    brute_force,
    interim_index,
    resolve_index,
)

CUTS = (0, 3000, 3500, 6000)
ROWS = CUTS[-1]
DIM = 128


def halves() -> tuple[np.ndarray, np.ndarray]:
    rows, queries = data()
    return rows[:ROWS], queries


def interim(metric: str = "L2", data_type: DataType = DataType.FLOAT_VECTOR) -> InterimIndex:
    """Rows that arrived in three parts, the first two of which were joined before."""
    spec = spec_of(metric, data_type)
    rows = halves()[0].astype(spec.form.dtype)
    parts = [rows[a:b] for a, b in itertools.pairwise(CUTS)]
    book = Codebook(spec)
    first = book.codes_of([(parts[0], None), (parts[1], None)])
    assert first is not None
    return interim_index(spec, rows, book.codes_of([(rows[: CUTS[2]], first), (parts[2], None)]))


@pytest.mark.parametrize("metric", ["L2", "IP", "COSINE"])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_it_finds_what_a_scan_of_all_rows_finds(metric: str, share: float) -> None:
    rows, queries = halves()
    mask = RowMask.from_bool(np.random.default_rng(4).random(ROWS) < share)
    index = interim(metric)
    exact = brute_force(DataType.FLOAT_VECTOR, rows.shape[1], index.spec.metric_type).kind.over_rows
    assert exact is not None
    truth = exact(index.spec, rows).search(queries, K, SearchParams(), mask)
    found = index._coded.nearest(index._checked(queries), K, mask, 1)
    assert recall(found.rows, truth.rows) >= 0.98
    searched = index.search(queries, K, SearchParams(), mask)
    assert recall(searched.rows, truth.rows) >= 0.98
    assert mask.contains(searched.rows).all()
    assert (index.reconstruct(np.array([0, ROWS - 1])) == rows[[0, ROWS - 1]]).all()


@pytest.mark.parametrize("data_type", [DataType.FLOAT16_VECTOR, DataType.INT8_VECTOR])
def test_narrow_vectors_have_codes_too(data_type: DataType) -> None:
    index = interim("L2", data_type)
    queries = halves()[1].astype(index.spec.form.dtype)
    truth = index._exact.nearest(index._checked(queries), K, None, 1)
    assert recall(index.search(queries, K, SearchParams()).rows, truth.rows) >= 0.98


def test_its_work_is_that_of_the_codes() -> None:
    index = interim()
    rows_ns = index._exact.work_ns(1, None)
    assert 0 < index.work_ns(1, SearchParams(), None) < rows_ns / 2
    few = np.zeros(ROWS, dtype=bool)
    few[:10] = True
    assert index.work_ns(1, SearchParams(), RowMask.from_bool(few)) < rows_ns / 100


def test_its_memory_counts_the_codes() -> None:
    index = interim("COSINE")
    rows = halves()[0]
    codes_bytes = ROWS * (rows.shape[1] / 8 + 8)
    assert index.codes_bytes == pytest.approx(codes_bytes, rel=0.4)
    assert index.memory_bytes == rows.nbytes + 4 * ROWS + index.codes_bytes


def test_rows_that_codes_cannot_distinguish_get_none() -> None:
    noise = np.random.default_rng(2).normal(size=(ROWS, 256)).astype(np.float32)
    book = Codebook(spec_of())
    assert book.codes_of([(noise, None)]) is None
    assert not book.is_usable


def test_rows_without_a_vector_have_no_codes() -> None:
    rows = halves()[0]
    valid = np.ones(ROWS + 1, dtype=bool)
    valid[3] = False
    book = Codebook(spec_of())
    assert book.codes_of([(NullableVectors(rows, valid), None)]) is None
    assert book.codes_of([(rows, None)]) is not None


@pytest.mark.parametrize(
    ("sent", "data_type", "dim", "takes"),
    [
        ({"index_type": "HNSW"}, DataType.FLOAT_VECTOR, 64, True),
        ({"index_type": "IVF_FLAT"}, DataType.BFLOAT16_VECTOR, 64, True),
        ({"index_type": "FLAT"}, DataType.FLOAT_VECTOR, 64, False),
        ({"index_type": "HNSW"}, DataType.FLOAT_VECTOR, 60, False),
        ({"index_type": "HNSW"}, DataType.FLOAT_VECTOR, 66, False),
        ({"index_type": "BIN_FLAT"}, DataType.BINARY_VECTOR, 64, False),
        ({"index_type": "SPARSE_WAND"}, DataType.SPARSE_FLOAT_VECTOR, 0, False),
    ],
)
def test_which_fields_have_codes(sent: dict[str, str], data_type: DataType, dim: int, takes: bool) -> None:
    assert Codebook.takes(resolve_index(sent, data_type, dim)) is takes


@pytest.mark.parametrize("cut", [512, 1024, 1000])
def test_codes_are_joined_at_any_row(cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """faiss writes beyond its memory when it merges codes behind a multiple of 512 rows of 128 dimensions."""
    block_bytes = 32 * DIM // 8

    def checked(self: Any, other: Any, first: int) -> None:
        assert self.ntotal == 0 or self.ntotal % block_bytes
        merge(self, other, first)

    merge = faiss.IndexIVFPQFastScan.merge_from
    monkeypatch.setattr(faiss.IndexIVFPQFastScan, "merge_from", checked)
    rows = np.random.default_rng(1).normal(size=(2 * cut, 8)).astype(np.float32)
    rows = rows @ np.random.default_rng(2).normal(size=(8, DIM)).astype(np.float32)
    spec = resolve_index({"index_type": "HNSW", "metric_type": "L2"}, DataType.FLOAT_VECTOR, DIM)
    book = Codebook(spec)
    parts = [rows[:cut], rows[cut:]]
    codes = [book.codes_of([(part, None)]) for part in parts]
    joined = book.codes_of(list(zip(parts, codes, strict=True)))
    at_once = book.codes_of([(rows, None)])
    assert joined is not None
    assert at_once is not None
    found, expected = (of.search(rows[:: cut // 4], 5) for of in (joined, at_once))
    np.testing.assert_array_equal(found[0], expected[0])
    assert joined.ntotal == 2 * cut
