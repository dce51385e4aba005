"""The hashes of primary keys are the reference's, over whole columns, and decide the shard."""

from __future__ import annotations

import zlib

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.channels import pchannel_name, pchannel_of, shard_of_keys, vchannel_name
from elanus.core.hashing import hash_int64, hash_strings
from elanus.core.ids import CollectionID

int64s = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(int64s, max_size=50))
def test_integers_hash_as_murmur3_of_their_bytes(keys: list[int]) -> None:
    expected = [mmh3.hash(key.to_bytes(8, "little", signed=True), signed=False) & 0x7FFFFFFF for key in keys]
    assert hash_int64(np.array(keys, dtype=np.int64)).tolist() == expected


def test_integers_hash_from_any_memory() -> None:
    keys = np.arange(20, dtype=np.int64)
    assert hash_int64(keys[::3]).tolist() == hash_int64(keys)[::3].tolist()


@given(st.lists(st.text(max_size=130), max_size=40), st.integers(0, 40))
def test_strings_hash_as_crc32_of_their_first_hundred_bytes(keys: list[str], skipped: int) -> None:
    expected = [zlib.crc32(key.encode()[:100]) for key in keys]
    assert hash_strings(pa.array(keys, pa.string())).tolist() == expected
    assert hash_strings(pa.array(keys, pa.string()).slice(skipped)).tolist() == expected[skipped:]


def test_bytes_after_the_hundredth_do_not_count_even_within_a_character() -> None:
    same = ["ü" * 50, "ü" * 50 + "a", "ü" * 60]
    assert len(set(hash_strings(pa.array(same)).tolist())) == 1
    cut = ["a" + "ü" * 50, "a" + "ü" * 49 + "é"]  # both have the byte C3 at position 100
    assert len(set(hash_strings(pa.array(cut)).tolist())) == 1
    assert len(set(hash_strings(pa.array(["a" * 99, "a" * 100, "a" * 101])).tolist())) == 2


@pytest.mark.parametrize("shards", [1, 2, 7, 16])
@pytest.mark.parametrize("keys", [pa.array(range(5000)), pa.array([f"k{n}" for n in range(5000)])])
def test_shards_are_the_hash_modulo_and_are_all_used(keys: pa.Array, shards: int) -> None:
    found = shard_of_keys(keys, shards)
    hashes = hash_int64(keys.to_numpy()) if pa.types.is_integer(keys.type) else hash_strings(keys)
    assert found.dtype == np.int64
    assert found.tolist() == [int(h) % shards for h in hashes]
    assert np.bincount(found, minlength=shards).min() > 5000 / shards * 0.8


def test_a_key_keeps_its_shard_whatever_it_comes_with() -> None:
    keys = pa.array([f"user-{n}" * (n % 20 + 1) for n in range(300)])
    together = shard_of_keys(keys, 3)
    assert [int(shard_of_keys(keys.slice(n, 1), 3)[0]) for n in range(300)] == together.tolist()


@pytest.mark.parametrize("keys", [pa.array([], pa.string()), pa.array([], pa.int64()), pa.array(["", ""])])
def test_no_keys_and_empty_keys_are_keys_too(keys: pa.Array) -> None:
    assert len(shard_of_keys(keys, 4)) == len(keys)


def test_a_vchannel_names_its_pchannel() -> None:
    vchannel = vchannel_name(pchannel_name(11), CollectionID(4242), 3)
    assert vchannel == "by-dev-rootcoord-dml_11_4242v3"
    assert pchannel_of(vchannel) == "by-dev-rootcoord-dml_11"
