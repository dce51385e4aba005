"""Clusters of vectors: centroids from a sample, and which rows each of them gets. No Spark here.

The survey trains several centroids for each segment and groups near ones (`elanus.core.spheres.grouped`): a
segment with several small spheres is described better than one with a large one, and segments get about the
same size. Rows without a vector are a cluster of their own, the last one. Clusters are by Euclidean distance,
whatever the metric of searches: no index is known when segments are rewritten.

Memory: the sample, and the numbers of rows; vectors are read in pieces from mapped files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from elanus.api.datanode import CompactionOrder
from elanus.core.clustering import Numbers, Slice
from elanus.core.errors import Internal
from elanus.core.nullable import NullableVectors, Valid
from elanus.core.schema import FieldSchema
from elanus.core.segments import BinlogFile
from elanus.core.spheres import Spheres, grouped, spheres_around
from elanus.core.types import Matrix
from elanus.index import nearest_centroids, train_centroids
from elanus.pipeline.ordering import Rows, Vectors
from elanus.storage.binlog import absent_fields
from elanus.storage.parquet import opened
from elanus.storage.paths import INSERT_LOG
from elanus.storage.port import ObjectStore

SAMPLE_BYTES_MAX = 256 << 20
_CENTROIDS_A_SEGMENT = 16
_CENTROIDS_MAX = 4096
_CENTROID_VALUES_MAX = 1 << 22
_SAMPLE_OF_CENTROID = 64
"""How many vectors of the sample a centroid is the center of, about."""
_SAMPLE_OF_CENTROID_MIN = 4
_SAMPLE_MIN = 20_000
_READ_OF_SAMPLE = 4
"""The row groups that are read have so many times as many rows as are taken from them."""
_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class VectorClusters:
    """``centroids``: float32 (n, dim). ``clusters``: int64 (n,), the cluster of each; they are ascending, and
    the rows without a vector are the cluster after the last."""

    centroids: Matrix
    clusters: Numbers

    @property
    def without_vector(self) -> int:
        return int(self.clusters[-1]) + 1 if len(self.clusters) else 0

    def clusters_of(self, vectors: Vectors, rows: Rows) -> Numbers:
        """Return the cluster of each of these rows. ``vectors``: of all rows."""
        found = np.full(len(rows), self.without_vector, dtype=np.int64)
        if len(self.centroids):
            has_vector, pieces = _pieces(vectors, rows)
            found[has_vector] = self.clusters[nearest_centroids(self.centroids, pieces)]
        return found

    def of_cluster(self, cluster: int) -> Matrix:
        """Return the centroids of a cluster; none for the rows without a vector."""
        found: Matrix = self.centroids[self.clusters == cluster]
        return found


def survey_vectors(order: CompactionOrder, store: ObjectStore) -> VectorClusters:
    """Return the clusters of the inputs' vectors. Dead rows count as well."""
    clustering = order.clustering
    assert clustering is not None, "an order to make clusters"
    field = order.schema.by_id[clustering.field_id]
    centroids_max = min(_CENTROIDS_MAX, _CENTROID_VALUES_MAX // field.dim)
    centroids_max = max(clustering.clusters, min(_CENTROIDS_A_SEGMENT * clustering.clusters, centroids_max))
    wanted = min(
        max(_SAMPLE_MIN, _SAMPLE_OF_CENTROID * centroids_max), SAMPLE_BYTES_MAX // field.row_bytes_estimate
    )
    sample, share = sample_vectors(store, order.insert_logs, field, wanted, order.plan_id)
    if not len(sample):
        return VectorClusters(np.empty((0, field.dim), np.float32), np.empty(0, np.int64))
    clusters = max(1, math.ceil(clustering.clusters * share))
    count = min(centroids_max, max(clusters, len(sample) // _SAMPLE_OF_CENTROID_MIN))
    centroids = train_centroids(sample, count, seed=order.plan_id)
    rows = np.bincount(nearest_centroids(centroids, [sample]), minlength=len(centroids))
    groups = list(grouped(centroids, rows, clusters))
    numbers = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return VectorClusters(np.ascontiguousarray(centroids[np.concatenate(groups)]), numbers)


@dataclass(frozen=True, slots=True)
class _RowGroup:
    path: str
    number: int
    rows: int


def sample_vectors(
    store: ObjectStore, files: Sequence[BinlogFile], field: FieldSchema, wanted: int, seed: int
) -> tuple[Matrix, float]:
    """Return about ``wanted`` vectors of the files, (n, width), and the share of the rows that have one.

    Reads a few times as many, in row groups drawn at random, however many rows there are. Files that lack
    the field, because it was added later, have no vectors to draw. Raises `ObjectMissing`, `CorruptObject`.
    """
    chance = np.random.default_rng(seed)
    groups = _row_groups(store, files, field)
    drawn: dict[str, list[_RowGroup]] = {}
    read = 0
    for place in chance.permutation(len(groups)).tolist():
        if read >= _READ_OF_SAMPLE * wanted:
            break
        drawn.setdefault(groups[place].path, []).append(groups[place])
        read += groups[place].rows
    parts: list[Matrix] = [field.vector.empty(0, field.dim)]
    found = 0
    for path, its_groups in drawn.items():
        # Opened again: few files are drawn from, and an open file keeps in memory what is read of it.
        with opened(store, path, INSERT_LOG) as parquet:
            for group in sorted(its_groups, key=lambda group: group.number):
                read_group = parquet.read_row_group(group.number, columns=[field.name], use_threads=False)
                vectors = field.vector.to_matrix(read_group.column(0).combine_chunks().drop_null())
                found += len(vectors)
                taken = min(len(vectors), math.ceil(wanted * group.rows / read))
                parts.append(vectors[np.sort(chance.choice(len(vectors), taken, replace=False))])
    total = sum(file.rows for file in files)
    have_field = sum(group.rows for group in groups)
    share = 0.0 if not read else found / read * have_field / total
    return np.concatenate(parts), share


def _row_groups(store: ObjectStore, files: Sequence[BinlogFile], field: FieldSchema) -> list[_RowGroup]:
    """Return the row groups of the files that have the field."""
    groups: list[_RowGroup] = []
    for file in files:
        with opened(store, file.path, INSERT_LOG) as parquet:
            if field.is_added and absent_fields(parquet.schema_arrow, [field.name], [field]):
                continue
            sizes = [parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)]
        groups += [_RowGroup(file.path, number, rows) for number, rows in enumerate(sizes)]
    return groups


def part_of(vectors: Vectors, row_ids: Numbers, centroids: Matrix, one: Slice) -> tuple[Rows, Spheres | None]:
    """Return the rows of one part of a cluster, ascending, and the spheres around them.

    All parts are cut from the same order of rows, by centroid and then by row id. ``vectors``, ``row_ids``:
    of all rows of the cluster. Without centroids for rows with vectors, the spheres are not known: None.
    """
    everything = np.arange(len(row_ids))
    has_vector, pieces = _pieces(vectors, everything)
    if not len(centroids):
        rows = _cut(row_ids, np.zeros(len(row_ids), np.int64), one)
        return rows, None if has_vector[rows].any() else spheres_around(centroids, (), np.empty(0, np.int64))
    if not has_vector.all():
        raise Internal("a cluster of vectors has rows without a vector")
    nearest = nearest_centroids(centroids, pieces)
    rows = _cut(row_ids, nearest, one)
    return rows, spheres_around(centroids, _pieces(vectors, rows)[1], nearest[rows])


def _cut(row_ids: Numbers, by: Numbers, one: Slice) -> Rows:
    if one.parts == 1:
        return np.arange(len(row_ids))
    ranked = np.lexsort((row_ids, by))
    first, last = (len(row_ids) * n // one.parts for n in (one.part, one.part + 1))
    rows: Rows = np.sort(ranked[first:last])
    return rows


def _pieces(vectors: Vectors, rows: Rows) -> tuple[Valid, Iterator[Matrix]]:
    """Return which of the rows have a vector, (rows,), and these vectors, some at a time.

    ``vectors``: of all rows, no lists.
    """
    has_vector, places, matrix = np.ones(len(rows), dtype=np.bool_), rows, cast(Matrix, vectors)
    if isinstance(vectors, NullableVectors):
        has_vector = vectors.valid[rows]
        places = (np.cumsum(vectors.valid) - 1)[rows[has_vector]]
        matrix = vectors.vectors
    starts = range(0, len(places), _ROWS_AT_ONCE)
    return has_vector, (matrix[places[first : first + _ROWS_AT_ONCE]] for first in starts)
