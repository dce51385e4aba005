"""Virtual and physical channels: names, and which of them a row goes to."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.ids import CollectionID

PCHANNEL_PREFIX = "by-dev-rootcoord-dml"


def pchannel_name(number: int) -> str:
    return f"{PCHANNEL_PREFIX}_{number}"


def vchannel_name(pchannel: str, collection_id: CollectionID, shard: int) -> str:
    return f"{pchannel}_{collection_id}v{shard}"


def pchannel_of(vchannel: str) -> str:
    """The pchannel that carries a vchannel."""
    return vchannel.rsplit("_", 1)[0]


def hash_int64(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """murmur3-32 (seed 0) of each key's eight little-endian bytes, with the top bit cleared.

    shape (n,) → (n,). The algorithm is A. Appleby's MurmurHash3_x86_32, spelled out over whole arrays
    because no library hashes a column at once; a test holds it against ``mmh3`` key by key.
    """
    c1, c2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
    words = np.ascontiguousarray(keys, dtype="<i8").view("<u4").reshape(-1, 2)
    h = np.zeros(len(words), dtype=np.uint32)
    for column in (0, 1):
        k = words[:, column] * c1
        k = (k << np.uint32(15)) | (k >> np.uint32(17))
        h ^= k * c2
        h = (h << np.uint32(13)) | (h >> np.uint32(19))
        h = h * np.uint32(5) + np.uint32(0xE6546B64)
    h ^= np.uint32(8)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h & np.uint32(0x7FFFFFFF)


def hash_string(key: str) -> int:
    """crc32 (IEEE) of the key's first 100 bytes, as the reference does."""
    return zlib.crc32(key.encode()[:100])


def shard_of_keys(keys: pa.Array, shards: int) -> npt.NDArray[np.int64]:
    """The shard number of each primary key (int64 or string). shape (n,), values in [0, shards)."""
    if shards == 1:
        return np.zeros(len(keys), dtype=np.int64)
    if pa.types.is_integer(keys.type):
        hashes = hash_int64(keys.to_numpy(zero_copy_only=False))
        return (hashes % np.uint32(shards)).astype(np.int64)
    return np.fromiter(map(hash_string, keys.to_pylist()), dtype=np.int64, count=len(keys)) % shards
