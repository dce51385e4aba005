"""Sets of rows as bits and as numbers, compared with plain booleans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from elanus.core.lookup import PackedRows, RowNumbers
from elanus.core.row_sets import bits_at, bits_of, bits_set, bools_of, narrowed, numbers_of, numbers_of_bits

FLAGS = st.integers(0, 200).flatmap(lambda n: arrays(np.bool_, n))


def packed(flags: np.ndarray) -> PackedRows:
    return PackedRows(np.packbits(flags, bitorder="little"))


@given(flags=FLAGS)
def test_bits_and_numbers_are_the_same_set(flags: np.ndarray) -> None:
    bits, numbers = packed(flags), RowNumbers(np.flatnonzero(flags)[::-1].astype(np.uint32))
    assert bits_set(bits.bits) == int(flags.sum())
    for found in (bits, numbers):
        np.testing.assert_array_equal(bools_of(found, len(flags)), flags)
        np.testing.assert_array_equal(bits_of(found, len(flags)), bits.bits)
        np.testing.assert_array_equal(np.sort(numbers_of(found)), np.flatnonzero(flags))
    np.testing.assert_array_equal(bits_at(bits.bits, np.arange(len(flags))), flags)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.05, 0.07, 0.5, 1.0])
def test_numbers_of_sparse_and_of_dense_bits_are_ascending(share: float) -> None:
    flags = np.random.default_rng(2).random(10_001) < share
    found = numbers_of_bits(packed(flags).bits)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.flatnonzero(flags))


@given(flags=FLAGS, data=st.data())
def test_narrowed(flags: np.ndarray, data: st.DataObject) -> None:
    among = data.draw(arrays(np.bool_, len(flags)))
    for found in (packed(flags), RowNumbers(np.flatnonzero(flags))):
        inside = narrowed(found, packed(among))
        outside = narrowed(found, packed(among), without=True)
        np.testing.assert_array_equal(bools_of(inside, len(flags)), flags & among)
        np.testing.assert_array_equal(bools_of(outside, len(flags)), flags & ~among)
        assert type(inside) is type(outside) is type(found)
