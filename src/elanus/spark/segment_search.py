"""Searches of the segments of a snapshot: what a task of the kNN join does. Arrow and numpy, no Spark.

The index code is that of the query node, and so is the rule by which hits are merged (`elanus.core.reduce`):
a join returns what searches as of the same timestamp return. A segment without an index file, a growing one
for example, is compared row by row, and so is every segment where the caller asks for exact hits.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog

from elanus.core.errors import Internal, InvalidParameter
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.reduce import PrimaryKeys, comparable_keys, may_hide, merge, primary_keys, worst_winners
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.segment_filter import ratio_of
from elanus.core.segments import BinlogFile, DeltaLog, IndexFile, SegmentManifest
from elanus.core.sphere_pruning import SpherePruning
from elanus.core.spheres import BOUNDED, Spheres
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.types import Matrix
from elanus.index import (
    DamagedIndexFile,
    Hits,
    IndexSpec,
    RowMask,
    SearchParams,
    VectorIndex,
    brute_force,
    load,
    no_hits,
    over_rows,
    resolve_field_index,
)
from elanus.spark.segment import SegmentRead, segment_rows
from elanus.storage.computed import read_field_vectors
from elanus.storage.delta_log import read_delta_log
from elanus.storage.port import CorruptObject, ObjectMissing, ObjectStore
from elanus.storage.stats_log import read_spheres

_HITS_MAX = 1 << 22
"""How many candidates are merged at a time: the queries of a block are taken in shares accordingly."""
_log = structlog.get_logger("spark")


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The input that all tasks of a join share. Pickles.

    ``index_params``: the definition of the field's index, empty without one. ``indexes``: the built ones by
    segment. ``params``: of the search, as clients send them. ``exact``: compare all rows, whatever the index.
    """

    store_url: str
    schema: CollectionSchema
    field: str
    index_params: Mapping[str, str]
    indexes: Mapping[SegmentID, IndexFile]
    delta_logs: Mapping[str, tuple[DeltaLog, ...]]
    read_ts: Timestamp
    k: int
    params: Mapping[str, Any]
    filter: str = ""
    expired_until: Timestamp = NO_TIMESTAMP
    exact: bool = False

    @property
    def spec(self) -> IndexSpec:
        """The index that the field's searches are for: the declared one, else plain rows."""
        field = self.schema.field(self.field)
        if self.index_params:
            return resolve_field_index(self.index_params, field)
        return brute_force(field.data_type, field.dim, field.vector.default_metric)

    def read(self, manifest: SegmentManifest, columns: tuple[str, ...] = ()) -> SegmentRead:
        return SegmentRead(
            store_url=self.store_url,
            schema=self.schema,
            manifest=manifest,
            delta_logs=self.delta_logs.get(manifest.vchannel, ()),
            read_ts=self.read_ts,
            columns=columns,
            filter=self.filter,
            expired_until=self.expired_until,
        )


@dataclass(frozen=True, slots=True)
class Neighbors:
    """The hits of query i are ``offsets[i]:offsets[i + 1]``, best first. ``scores``: float32, in the metric's
    own terms; ``keys``: the primary keys."""

    offsets: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    keys: PrimaryKeys


@dataclass(frozen=True, slots=True)
class SearchedSegment:
    """A segment in memory. ``keys``: of all its rows, any value where a row is not visible.

    ``spheres``: those around its vectors, if a compaction by the searched field made it; ``group``: what was
    clustered as a whole.
    """

    keys: PrimaryKeys
    mask: RowMask
    index: VectorIndex
    group: tuple[str, PartitionID]
    spheres: Spheres | None = None


class SegmentSet:
    """Segments that one task searches together. Delta logs are decoded once for all of them."""

    def __init__(self, plan: SearchPlan, manifests: Sequence[SegmentManifest], store: ObjectStore) -> None:
        """Open the segments. Raises `InvalidParameter` for a file that is gone: the lease has ended."""
        self._plan = plan
        self._bigger = plan.spec.metric_type.bigger_is_better
        # one decoded log at a time is not enough: the segments of a vchannel need the same ones
        read_log = lru_cache(maxsize=None)(lambda path, file: read_delta_log(store, file))

        def log(_: ObjectStore, file: BinlogFile) -> pa.Table:
            return read_log(file.path, file)

        try:
            opened = (_opened(plan, manifest, store, log) for manifest in manifests if manifest.rows)
            self._segments = [segment for segment in opened if segment is not None]
        except ObjectMissing as error:
            raise InvalidParameter(
                f"{error} is gone from {plan.store_url}: the snapshot's lease has ended; run the join again, "
                "with a larger lease_s"
            ) from error

    def nearest(self, queries: Matrix, k: int, params: SearchParams, threads: int = 1) -> Neighbors:
        """Return the ``k`` nearest visible rows of the set with distinct keys, for each query."""
        share = max(1, _HITS_MAX // max(1, k * len(self._segments)))
        starts = range(0, max(1, len(queries)), share)
        return _joined([self._nearest(queries[at : at + share], k, params, threads) for at in starts])

    def _nearest(self, queries: Matrix, k: int, params: SearchParams, threads: int) -> Neighbors:
        if not self._segments:
            none = primary_keys(pa.array([], self._plan.schema.primary_field.arrow_type))
            return Neighbors(np.zeros(len(queries) + 1, np.int64), np.empty(0, np.float32), none)
        depth, prunes = k, True
        while True:
            pruning = self._pruning(queries, k, params) if prunes else None
            segments, hits = self._hits(queries, depth, params, threads, pruning)
            scores = np.concatenate([h.distances for h in hits], axis=1)
            rows = np.concatenate([h.rows for h in hits], axis=1)
            keys = _keys([s.keys for s in segments], [h.rows for h in hits])
            by_segment = comparable_keys(keys).reshape(len(hits), len(queries), depth)
            ranks = by_segment.transpose(1, 0, 2).reshape(len(queries), -1)
            merged = merge(scores, ranks, k, larger_is_better=self._bigger, valid=rows >= 0)
            if pruning is not None and not pruning.is_sound(worst_winners(scores, merged, k)):
                prunes = False
                continue
            if not may_hide(scores, depth, merged, k, larger_is_better=self._bigger):
                break
            depth *= 2
        query_of = np.repeat(np.arange(len(queries)), np.diff(merged.offsets))
        segment_of, place = np.divmod(merged.positions, depth)
        at = (segment_of * len(queries) + query_of) * depth + place
        won = keys[at] if isinstance(keys, np.ndarray) else keys.take(pa.array(at))
        return Neighbors(merged.offsets, scores[query_of, merged.positions], won)

    def _pruning(self, queries: Matrix, k: int, params: SearchParams) -> SpherePruning | None:
        """Return how the segments are searched; None: each for all queries. As query nodes do it."""
        segments, metric = self._segments, self._plan.spec.metric_type
        if metric not in BOUNDED or not any(s.spheres is not None for s in segments):
            return None
        return SpherePruning(
            [s.spheres for s in segments],
            [s.group for s in segments],
            queries,
            metric,
            k,
            radius=None if params.window is None else params.window.radius,
            ratio=0.0 if self._plan.exact else ratio_of(self._plan.params),
            rows=[s.index.rows for s in segments],
        )

    def _hits(
        self,
        queries: Matrix,
        depth: int,
        params: SearchParams,
        threads: int,
        pruning: SpherePruning | None,
    ) -> tuple[list[SearchedSegment], list[Hits]]:
        """Return which segments were searched, some twice, and their hits; at least one."""
        if pruning is None:
            found = [s.index.search(queries, depth, params, s.mask, threads) for s in self._segments]
            return self._segments, found
        metric = self._plan.spec.metric_type
        segments, hits = [self._segments[0]], [no_hits(len(queries), depth, metric)]
        for number in pruning.order:
            wanted = pruning.wanted(number)
            if wanted is not None and not wanted.any():
                continue
            segment = self._segments[number]
            asked = queries if wanted is None else queries[wanted]
            own = segment.index.search(asked, depth, params, segment.mask, threads)
            if segment.index.has_raw_vectors:
                pruning.note(own.distances, wanted)
            every = no_hits(len(queries), depth, metric) if wanted is not None else own
            if wanted is not None:
                every.distances[wanted], every.rows[wanted] = own.distances, own.rows
            segments.append(segment)
            hits.append(every)
        return segments, hits


def _opened(
    plan: SearchPlan, manifest: SegmentManifest, store: ObjectStore, log: Any
) -> SearchedSegment | None:
    """Return the segment, or None if no row of it is visible."""
    rows = segment_rows(plan.read(manifest), store, log)
    field = plan.schema.field(plan.field)
    if not rows.visible.any():
        return None
    index = None if plan.exact else _built(plan, manifest, field, store)
    if index is None:
        vectors = read_field_vectors(store, manifest, plan.schema, field)
        spec = plan.spec
        index = over_rows(field.data_type, field.dim, spec.metric_type, vectors, spec.params)
    keys = rows.keys.combine_chunks()
    if pa.types.is_integer(keys.type):
        keys = keys.fill_null(0)
    mask, group = RowMask.from_bool(rows.visible), (manifest.vchannel, manifest.partition_id)
    return SearchedSegment(primary_keys(keys), mask, index, group, _spheres(manifest, field, store))


def _spheres(manifest: SegmentManifest, field: FieldSchema, store: ObjectStore) -> Spheres | None:
    """Return the spheres around the vectors of a segment that a compaction by this field made."""
    if manifest.cluster is None or manifest.cluster.field_id != field.field_id:
        return None
    try:
        return read_spheres(store, manifest.stats_logs)
    except (ObjectMissing, CorruptObject) as error:
        _log.warning("spheres of a segment lost", segment=manifest.segment_id, error=str(error))
        return None


def _built(
    plan: SearchPlan, manifest: SegmentManifest, field: FieldSchema, store: ObjectStore
) -> VectorIndex | None:
    """Return the segment's index, mapped into memory; None if it has none, or if the file is damaged."""
    file = plan.indexes.get(manifest.segment_id)
    if file is None:
        return None
    spec = dataclasses.replace(resolve_field_index(file.params, field), memory_mapped=True)
    if spec.metric is not plan.spec.metric:
        return None  # built before the index was defined again, with another metric
    with tempfile.TemporaryDirectory(prefix="elanus-") as scratch:  # a mapping outlives the name
        try:
            index = load(store.local_path(file.path, Path(scratch)), spec)
        except DamagedIndexFile as error:
            _log.warning("index file damaged; comparing all rows", path=file.path, error=str(error))
            return None
    if index.rows != manifest.rows:
        raise Internal(
            f"index file {file.path} has {index.rows} rows, segment {file.segment_id} has {manifest.rows}"
        )
    assert isinstance(index, VectorIndex), f"the index {file.path} of a vector field"
    return index


def _keys(keys: Sequence[PrimaryKeys], rows: Sequence[npt.NDArray[np.int64]]) -> PrimaryKeys:
    """Return the keys of hits, list after list, query after query; any key for padding."""
    places = [np.maximum(r, 0).reshape(-1) for r in rows]
    if all(isinstance(k, np.ndarray) for k in keys):
        return np.concatenate([np.asarray(k)[at] for k, at in zip(keys, places, strict=True)])
    return pa.concat_arrays([k.take(pa.array(at)) for k, at in zip(keys, places, strict=True)])


def _joined(parts: Sequence[Neighbors]) -> Neighbors:
    counts = np.concatenate([np.diff(p.offsets) for p in parts])
    keys = [p.keys for p in parts]
    all_keys = np.concatenate(keys) if isinstance(keys[0], np.ndarray) else pa.concat_arrays(keys)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    return Neighbors(offsets, np.concatenate([p.scores for p in parts]), all_keys)


def vectors_of(read: SegmentRead, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.Array, Matrix]]:
    """Yield keys and vectors of batches with these two columns; rows without a vector are left out."""
    field = read.schema.field(read.columns[1])
    for batch in batches:
        kept = batch.filter(batch.column(1).is_valid())
        if kept.num_rows:
            yield kept.column(0), field.vector.to_matrix(kept.column(1))
