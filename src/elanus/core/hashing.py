"""The hashes that map a primary key to its shard, over whole columns.

Both are the reference's, so a row goes to the same shard as in Milvus. They are implemented here over
arrays because no library hashes a whole column at once; tests compare them with ``mmh3`` and ``zlib``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

UInt32s = npt.NDArray[np.uint32]

STRING_BYTES_HASHED = 100
_CRC_POLYNOMIAL = np.uint32(0xEDB88320)
_EIGHT = np.uint32(8)


def hash_int64(keys: npt.NDArray[np.int64]) -> UInt32s:
    """murmur3-32 (seed 0) of each key's eight little-endian bytes, with the top bit cleared.

    shape (n,) → (n,). The algorithm is A. Appleby's MurmurHash3_x86_32.
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
    h ^= _EIGHT
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h & np.uint32(0x7FFFFFFF)


def hash_strings(keys: pa.StringArray) -> UInt32s:
    """crc32 (IEEE 802.3) of each key's first 100 UTF-8 bytes. No nulls. shape (n,) → (n,).

    D. V. Sarwate's table algorithm, one byte position of all keys at a time. The keys are processed longest
    first, so that the keys with a byte at a given position are a prefix.
    """
    offsets, data = _bytes_of(keys)
    lengths = np.minimum(np.diff(offsets), STRING_BYTES_HASHED)
    longest_first = np.argsort(-lengths, kind="stable")
    starts, lengths = offsets[:-1][longest_first], lengths[longest_first]
    crc = np.full(len(lengths), 0xFFFFFFFF, dtype=np.uint32)
    positions = np.arange(lengths[0] if len(lengths) else 0)
    for position, reaching in enumerate(np.searchsorted(-lengths, -positions, side="left")):
        part = crc[:reaching]
        indexes = (part ^ data[starts[:reaching] + position]).astype(np.uint8)
        part >>= _EIGHT
        part ^= _CRC_TABLE.take(indexes)
    hashes = np.empty_like(crc)
    hashes[longest_first] = ~crc
    return hashes


def _bytes_of(keys: pa.StringArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the keys' offsets, shape (n + 1,), and the bytes they point into, without copying the bytes."""
    _, offsets, data = keys.buffers()
    if offsets is None:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    ends = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return ends.astype(np.int64), np.frombuffer(data or b"", dtype=np.uint8)


def _crc_table() -> UInt32s:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> np.uint32(1)) ^ _CRC_POLYNOMIAL, table >> np.uint32(1))
    return table


_CRC_TABLE = _crc_table()
