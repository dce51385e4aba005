"""Stats logs: which primary keys an insert log may hold, as one small JSON object next to it.

A reader with deletes to apply, or keys to look up, checks every segment's statistics first and skips the
segments that cannot hold them: first by key range, then by Bloom filter. A false "perhaps" costs a lookup,
never a wrong answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.storage.bloom import BloomFilter, hash_keys
from elanus.storage.paths import FORMAT_VERSION
from elanus.storage.port import CorruptObject, ObjectStore


class _Document(msgspec.Struct, frozen=True):
    """The JSON. ``bloom`` is base64 of `BloomFilter.to_bytes`."""

    format_version: int
    rows: int
    pk_min: int | str
    pk_max: int | str
    bloom: bytes


_KEYS_AT_ONCE_MIN = 4096
_documents = msgspec.json.Decoder(_Document)  # at import, see `elanus.storage.manifests`


@dataclass(frozen=True, slots=True)
class KeyStats:
    """Row count, smallest and largest primary key (inclusive), and the keys' Bloom filter."""

    rows: int
    pk_min: int | str
    pk_max: int | str
    bloom: BloomFilter

    def may_contain(self, keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        """For each key whether a row with it may exist; false is certain. shape (n,)."""
        in_range = pc.and_(pc.greater_equal(keys, self.pk_min), pc.less_equal(keys, self.pk_max))
        possible = np.array(in_range.to_numpy(zero_copy_only=False))
        if possible.any():
            possible[possible] = self.bloom.may_contain(keys.filter(pa.array(possible)))
        return possible


class KeyStatsBuilder:
    """Collects the statistics of keys that arrive batch by batch. Keeps eight bytes per key.

    Small batches are held back until there are a few thousand keys: the cost per batch would exceed the cost
    of its keys.
    """

    def __init__(self) -> None:
        self._waiting: list[pa.Array] = []
        self._waiting_keys = 0
        self._hashes: list[npt.NDArray[np.uint64]] = []
        self._lowest: list[Any] = []
        self._highest: list[Any] = []

    def add(self, keys: pa.Array) -> None:
        """Add keys: at least one, all of one type (int64 or string), no nulls."""
        self._waiting.append(keys)
        self._waiting_keys += len(keys)
        if self._waiting_keys >= _KEYS_AT_ONCE_MIN:
            self._take()

    def _take(self) -> None:
        keys = pa.concat_arrays(self._waiting)
        self._waiting, self._waiting_keys = [], 0
        bounds = pc.min_max(keys).as_py()
        self._lowest.append(bounds["min"])
        self._highest.append(bounds["max"])
        self._hashes.append(hash_keys(keys))

    def finish(self) -> KeyStats:
        """The statistics of all added keys. Raises `ValueError` when there are none."""
        if self._waiting:
            self._take()
        hashes = np.concatenate(self._hashes)
        return KeyStats(len(hashes), min(self._lowest), max(self._highest), BloomFilter.of_hashes(hashes))


def write_stats_log(store: ObjectStore, path: str, stats: KeyStats) -> None:
    document = _Document(FORMAT_VERSION, stats.rows, stats.pk_min, stats.pk_max, stats.bloom.to_bytes())
    store.put(path, msgspec.json.encode(document))


def read_stats_logs(store: ObjectStore, paths: Sequence[str]) -> list[KeyStats]:
    """The statistics of each path, in order. Raises `ObjectMissing` and `CorruptObject`."""
    return [_read(store, path) for path in paths]


def _read(store: ObjectStore, path: str) -> KeyStats:
    try:
        document = _documents.decode(store.get(path))
        bloom = BloomFilter.from_bytes(document.bloom)
    except ValueError as error:  # msgspec's errors are ValueErrors too
        raise CorruptObject(f"{path} is not a stats log: {error}") from error
    if document.format_version != FORMAT_VERSION:
        raise CorruptObject(
            f"{path} has format version {document.format_version}, this release reads {FORMAT_VERSION}"
        )
    return KeyStats(document.rows, document.pk_min, document.pk_max, bloom)
