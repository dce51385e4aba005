"""Clustering compaction decisions: how many clusters there are, where one ends, which segments they become.

A clustering compaction rewrites the segments of a partition and vchannel so that each of the new ones holds a
range of the values of one field, the clustering key. A filter on that field then skips most segments, by the
smallest and the largest value in each (`elanus.expr.prune`). Vectors have clusters instead of ranges:
`elanus.core.spheres`.

The boundaries between clusters are quantiles of a sample, so clusters are of about equal size. A cluster that
is too large for a segment, because the sample was not exact or because one value occurs very often, is cut
into several segments. Rows without a value are in the first cluster.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.ids import FieldID, SegmentID

Key = int | float | str
Numbers = npt.NDArray[np.int64]

FILL = 0.9
"""How full segments become on average: boundaries from a sample are not exact, and few clusters are cut."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The values of the clustering key in a segment: the smallest and the largest, both inclusive.

    None: not known, because no row has a value or because one is NaN. Rows without a value are not counted.
    Both are None for a vector: the segment's stats log has spheres instead.
    """

    field_id: FieldID
    low: Key | None
    high: Key | None


@dataclass(frozen=True, slots=True)
class Clustering:
    """The segments that a clustering compaction makes: about ``clusters``, of at most ``rows_max`` rows each.

    The new segments have the ids from ``first_id`` on, at most ``ids`` of them.
    """

    field_id: FieldID
    clusters: int
    rows_max: int
    first_id: SegmentID
    ids: int

    def segment_id(self, number: int) -> SegmentID:
        return SegmentID(self.first_id + number)

    def may_make(self, segment_id: SegmentID) -> bool:
        """Whether the id is one of those that the new segments have."""
        return self.first_id <= segment_id < self.first_id + self.ids


@dataclass(frozen=True, slots=True)
class Slice:
    """One new segment: part ``part`` of ``parts`` of a cluster, in the order of the clustering key."""

    cluster: int
    part: int
    parts: int


def cluster_count(rows: int, rows_max: int) -> int:
    """Return how many clusters so many rows make, in segments of at most ``rows_max``."""
    return max(1, math.ceil(rows / max(1, FILL * rows_max)))


def segments_max(rows: int, rows_max: int) -> int:
    """Return how many segments there are at most: clusters that are too large are cut."""
    return cluster_count(rows, rows_max) + math.ceil(rows / max(1, rows_max))


def clustering_of(field_id: FieldID, rows: int, rows_max: int, first_id: SegmentID) -> Clustering:
    """Return the clustering of inputs with so many rows. The ids up to `segments_max` must be free."""
    return Clustering(
        field_id, cluster_count(rows, rows_max), rows_max, first_id, segments_max(rows, rows_max)
    )


def boundaries(sample: pa.Array, clusters: int) -> tuple[Key, ...]:
    """Return the values at which clusters begin, ascending and distinct, from a sample of the rows' values.

    The first cluster has the values below all of them. There are fewer than ``clusters - 1`` if a value is so
    frequent that two boundaries would be equal.
    """
    values = sample.drop_null()
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    if not len(values):
        return ()
    ordered = values.take(pc.sort_indices(values))
    places = [len(ordered) * number // clusters for number in range(1, clusters)]
    found = ordered.take(pa.array(places, pa.int64())).to_pylist()
    return tuple(value for value in dict.fromkeys(found) if value != ordered[0].as_py())


def clusters_of(values: pa.Array, starts: Sequence[Key]) -> Numbers:
    """Return the cluster of each row. ``starts``: see `boundaries`. NaN is in the last one."""
    if not starts:
        return np.zeros(len(values), dtype=np.int64)
    if pa.types.is_string(values.type):
        encoded = values.dictionary_encode()
        # Python orders texts by code points: the same order as that of their UTF-8 bytes.
        numbers = np.array([bisect_right(starts, text) for text in encoded.dictionary.to_pylist()], np.int64)
        places = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        found: Numbers = numbers[places] if len(numbers) else np.zeros(len(values), dtype=np.int64)
    else:
        known = values.fill_null(0).to_numpy(zero_copy_only=False)
        found = np.searchsorted(np.array(starts, dtype=known.dtype), known, side="right").astype(np.int64)
    if values.null_count:
        found[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return found


def slices(rows: Sequence[int], rows_max: int) -> list[Slice]:
    """Return the segments that clusters with so many rows become; none for a cluster without rows."""
    found = []
    for cluster, count in enumerate(rows):
        parts = math.ceil(count / rows_max)
        found += [Slice(cluster, part, parts) for part in range(parts)]
    return found


def cluster_of(field_id: FieldID, values: pa.Array) -> Cluster:
    """Return the description of a segment with these values."""
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return Cluster(field_id, None, None)
    bounds = pc.min_max(values).as_py()
    return Cluster(field_id, bounds["min"], bounds["max"])
