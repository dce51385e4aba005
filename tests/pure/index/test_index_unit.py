"""Unit vectors and the way back, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from elanus.index.unit import joined, split, unit

SIDES = st.tuples(st.integers(1, 6), st.integers(2, 9))
ORDINARY = SIDES.flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.floats(-(2.0**60), 2.0**60, width=32))
)


@given(vectors=ORDINARY)
def test_restored_vectors_are_the_same_bits_unless_declared_lost(vectors: np.ndarray) -> None:
    units, way_back = split(vectors)
    restored = way_back.restored(units, np.arange(len(vectors)))
    same = (restored.view(np.int32) == vectors.view(np.int32)).all()
    assert same == way_back.lossless


def test_ordinary_vectors_lose_nothing() -> None:
    rng = np.random.default_rng(0)
    for scale in (1e-18, 1.0, 255.0, 1e18):
        vectors = (rng.normal(size=(500, 37)) * scale).astype(np.float32)
        vectors[3] = 0
        units, way_back = split(vectors)
        assert way_back.lossless
        some = np.array([3, 499, 3, 0])
        np.testing.assert_array_equal(way_back.restored(units[some], some), vectors[some])


def test_components_that_underflow_next_to_the_norm_are_declared_lost() -> None:
    assert not split(np.array([[1e20, 1e-22]], dtype=np.float32))[1].lossless


def test_length_one_at_both_ends_of_the_range() -> None:
    vectors = np.array([[3e38, 3e38], [1e-40, 0], [0, 0], [3, 4]], dtype=np.float32)
    np.testing.assert_allclose(np.linalg.norm(unit(vectors), axis=1), [1, 1, 0, 1], rtol=1e-6)


def test_parts_join_in_order() -> None:
    vectors = np.random.default_rng(1).normal(size=(10, 5)).astype(np.float32)
    units, _ = split(vectors)
    whole = joined([split(vectors[:4])[1], split(vectors[4:])[1]])
    np.testing.assert_array_equal(whole.restored(units, np.arange(10)), vectors)
    assert whole.memory_bytes == 10 * (8 + 2)
