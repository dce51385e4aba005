"""The Bloom filter: no false "no", few false "perhaps", and the hashes and bits the specification names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.bloom import BloomFilter, hash_keys

INT64 = st.integers(-(2**63), 2**63 - 1)


def bloom_of(keys: pa.Array) -> BloomFilter:
    return BloomFilter.of_hashes(hash_keys(keys))


@given(keys=st.lists(INT64, max_size=50))
def test_integers_hash_as_xxh64_of_their_little_endian_bytes(keys: list[int]) -> None:
    expected = [xxhash.xxh64_intdigest(key.to_bytes(8, "little", signed=True)) for key in keys]
    assert hash_keys(pa.array(keys, pa.int64())).tolist() == expected


def test_strings_hash_as_xxh64_of_their_utf8_bytes() -> None:
    keys = ["", "a", "käse", "x" * 500]
    assert hash_keys(pa.array(keys)).tolist() == [xxhash.xxh64_intdigest(key.encode()) for key in keys]


@given(
    keys=st.one_of(
        st.lists(INT64, min_size=1, max_size=300).map(lambda keys: pa.array(keys, pa.int64())),
        st.lists(st.text(max_size=20), min_size=1, max_size=300).map(pa.array),
    )
)
def test_a_key_that_was_put_in_is_never_denied(keys: pa.Array) -> None:
    assert bloom_of(keys).may_contain(keys).all()
    assert BloomFilter.from_bytes(bloom_of(keys).to_bytes()).may_contain(keys).all()


def test_few_other_keys_pass() -> None:
    inside = pa.array(np.arange(20_000) * 7)
    outside = pa.array(np.arange(20_000) * 7 + 3)
    assert bloom_of(inside).may_contain(outside).mean() < 0.01


def test_an_empty_filter_denies_everything() -> None:
    empty = bloom_of(pa.array([], pa.int64()))
    assert not empty.may_contain(pa.array([0, 1, -1])).any()


@pytest.mark.parametrize("blocks", [1, 3])
def test_bits_lie_where_the_parquet_specification_puts_them(blocks: int) -> None:
    """The specification's own pseudo code, one key at a time."""
    salt = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
    keys = pa.array(range(blocks * 20))
    expected = [[0] * 8 for _ in range(blocks)]
    for key in keys.to_pylist():
        digest = xxhash.xxh64_intdigest(key.to_bytes(8, "little"))
        block = ((digest >> 32) * blocks) >> 32
        for word in range(8):
            expected[block][word] |= 1 << (((digest & 0xFFFFFFFF) * salt[word] & 0xFFFFFFFF) >> 27)
    assert bloom_of(keys).words.tolist() == expected
