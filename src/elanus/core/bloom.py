"""A Bloom filter over primary keys: "certainly not here" or "perhaps here", for many keys at once.

This is the split-block Bloom filter of the Parquet format (parquet-format, *BloomFilter.md*), hashed with
XXH64, seed 0, as that specification requires: over the eight little-endian bytes of an int64, or the UTF-8
bytes of a string. A filter is an array of 256-bit blocks. The upper half of a key's hash selects one block,
and the lower half selects one bit in each of the block's eight words.

Inputs and outputs are arrays; Python handles single keys only to hash strings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

BITS_PER_KEY = 12
"""About one false "perhaps" in 200."""
_WORDS = 8
_PROBED_TOGETHER = 1 << 16
"""Keys whose masks, 64 bytes each, are in memory at the same time."""
_SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31],
    dtype=np.uint32,
)
_PRIME1 = np.uint64(0x9E3779B185EBCA87)
_PRIME2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME3 = np.uint64(0x165667B19E3779F9)
_PRIME4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME5 = np.uint64(0x27D4EB2F165667C5)


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """``words``: uint32 (blocks, 8)."""

    words: npt.NDArray[np.uint32]

    @classmethod
    def of_hashes(cls, hashes: npt.NDArray[np.uint64]) -> BloomFilter:
        """Return a filter that holds the keys with these hashes (`hash_keys`)."""
        blocks = max(1, math.ceil(len(hashes) * BITS_PER_KEY / (32 * _WORDS)))
        words = np.zeros((blocks, _WORDS), dtype=np.uint32)
        block, masks = _probes(hashes, blocks)
        for word in range(_WORDS):
            np.bitwise_or.at(words[:, word], block, masks[:, word])
        return cls(words)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> BloomFilter:
        return cls(np.frombuffer(data, dtype="<u4").reshape(-1, _WORDS))

    def to_bytes(self) -> bytes:
        """Return the blocks in order, each as eight little-endian words."""
        return self.words.astype("<u4", copy=False).tobytes()

    def may_contain(self, keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        """For each key whether it may be in the filter; false is certain. shape (n,)."""
        hashes = hash_keys(keys)
        found = np.empty(len(hashes), np.bool_)
        for start in range(0, len(hashes), _PROBED_TOGETHER):
            together = slice(start, start + _PROBED_TOGETHER)
            block, masks = _probes(hashes[together], len(self.words))
            found[together] = ((self.words[block] & masks) == masks).all(axis=1)
        return found


def hash_keys(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """XXH64 (seed 0) of each key. shape (n,)."""
    if pa.types.is_integer(keys.type):
        return _xxh64_of_int64(keys.to_numpy())
    utf8 = keys.cast(pa.binary()).to_pylist()
    return np.fromiter(map(xxhash.xxh64_intdigest, utf8), dtype=np.uint64, count=len(utf8))


def _xxh64_of_int64(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """XXH64 (Y. Collet) specialized to eight-byte inputs, over whole arrays."""
    h = _rotate(keys.astype("<i8").view(np.uint64) * _PRIME2, 31) * _PRIME1
    h ^= _PRIME5 + np.uint64(8)
    h = _rotate(h, 27) * _PRIME1 + _PRIME4
    h ^= h >> np.uint64(33)
    h *= _PRIME2
    h ^= h >> np.uint64(29)
    h *= _PRIME3
    h ^= h >> np.uint64(32)
    return h


def _rotate(values: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _probes(
    hashes: npt.NDArray[np.uint64], blocks: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Each hash's block number, shape (n,), and its eight one-bit masks, shape (n, 8)."""
    block = ((hashes >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32)
    low = hashes.astype(np.uint32)  # the lower half
    masks = np.uint32(1) << ((low[:, None] * _SALT) >> np.uint32(27))
    return block.astype(np.int64), masks
