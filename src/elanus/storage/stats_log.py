"""Stats logs: which primary keys an insert log may hold, as one small JSON object next to it.

If a compaction by a vector made the segment, it also has the spheres around the vectors
(`elanus.core.spheres`), by which searches skip the segment.

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

from elanus.core.bloom import BloomFilter, hash_keys
from elanus.core.spheres import Spheres
from elanus.storage.documents import FIRST_VERSION, Data, decode_document, encode_document, version_of
from elanus.storage.port import CorruptObject, ObjectStore


class _Spheres(msgspec.Struct, frozen=True):
    """``centroids``: little-endian float32, one vector after the other; ``radii``, ``angles``: float64."""

    dim: int
    centroids: bytes
    radii: bytes
    angles: bytes


class _Content(msgspec.Struct, frozen=True, omit_defaults=True):
    """``bloom`` is base64 of `BloomFilter.to_bytes`; ``spheres``: None without."""

    rows: int
    pk_min: int | str
    pk_max: int | str
    bloom: bytes
    spheres: _Spheres | None = None


_KEYS_AT_ONCE_MIN = 4096
_contents = msgspec.json.Decoder(_Content)  # at import, see `elanus.storage.documents`


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
        """Return the statistics of all added keys. Raises `ValueError` when there are none."""
        if self._waiting:
            self._take()
        hashes = np.concatenate(self._hashes)
        return KeyStats(len(hashes), min(self._lowest), max(self._highest), BloomFilter.of_hashes(hashes))


def write_stats_log(store: ObjectStore, path: str, stats: KeyStats, spheres: Spheres | None = None) -> None:
    around = None if spheres is None else _encoded(spheres)
    content = _Content(stats.rows, stats.pk_min, stats.pk_max, stats.bloom.to_bytes(), around)
    store.put(path, encode_document("stats", content))


def read_stats_logs(store: ObjectStore, paths: Sequence[str]) -> list[KeyStats]:
    """Return the statistics of each path, in order. Raises `ObjectMissing` and `CorruptObject`."""
    return [_read(store, path) for path in paths]


def read_spheres(store: ObjectStore, paths: Sequence[str]) -> Spheres | None:
    """Return the spheres around the vectors of a segment with these stats logs; None if they are not known.

    Raises `ObjectMissing` and `CorruptObject`.
    """
    if len(paths) != 1:
        return None  # a compaction writes one
    content = _content(paths[0], store.get(paths[0]))
    return None if content.spheres is None else _decoded(paths[0], content.spheres)


def _read(store: ObjectStore, path: str) -> KeyStats:
    content = _content(path, store.get(path))
    try:
        bloom = BloomFilter.from_bytes(content.bloom)
    except ValueError as error:
        raise CorruptObject(f"{path} is not a stats log: {error}") from error
    return KeyStats(content.rows, content.pk_min, content.pk_max, bloom)


def _content(path: str, data: Data) -> _Content:
    if version_of(path, data) != FIRST_VERSION:
        return decode_document(path, "stats", data, _contents)
    try:
        return _contents.decode(data)  # the fields were next to the version
    except ValueError as error:  # msgspec's errors are ValueErrors too
        raise CorruptObject(f"{path} is not a stats log: {error}") from error


def _encoded(spheres: Spheres) -> _Spheres:
    return _Spheres(
        spheres.centroids.shape[1],
        spheres.centroids.astype("<f4").tobytes(),
        spheres.radii.astype("<f8").tobytes(),
        spheres.angles.astype("<f8").tobytes(),
    )


def _decoded(path: str, found: _Spheres) -> Spheres:
    try:
        centroids = np.frombuffer(found.centroids, "<f4").reshape(-1, found.dim)
        radii, angles = np.frombuffer(found.radii, "<f8"), np.frombuffer(found.angles, "<f8")
    except ValueError as error:
        raise CorruptObject(f"{path} has unreadable spheres: {error}") from error
    if not len(centroids) == len(radii) == len(angles):
        raise CorruptObject(f"{path} has {len(centroids)} centroids, but {len(radii)} radii")
    return Spheres(centroids, radii, angles)
