"""Estimates of how many rows of a segment the deletes of a delta log affect, without reading the segment.

The keys that a delta log deletes are looked up in the segment's statistics: a key that is not found there is
certainly not in the segment, and one in 200 absent keys is counted wrongly. Neither file ever changes, so an
estimate is kept as long as its segment. Only a segment that looks worth rewriting is counted exactly, from
its key column: an upsert of a new key leaves a delete that affects no row, which statistics cannot detect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from elanus.core.ids import ALL_PARTITIONS
from elanus.core.offload import Offload
from elanus.core.schema import TIMESTAMP_FIELD
from elanus.core.segments import DeltaLog, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.storage.binlog import read_columns
from elanus.storage.delta_log import PARTITION_COLUMN, PRIMARY_KEY_COLUMN, dead_rows, read_delta_log
from elanus.storage.port import CorruptObject, ObjectMissing, ObjectStore
from elanus.storage.stats_log import KeyStats, read_stats_logs


@dataclass(frozen=True, slots=True)
class Concerned:
    """How many rows of a segment a delta log may affect, and the corresponding share of the log's size."""

    rows: int
    bytes: int


_NOTHING = Concerned(0, 0)
_Key = tuple[str, str]
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class Reader:
    """The means of reading files off the event loop."""

    store: ObjectStore
    offload: Offload


class DeadRows:
    """Estimates and counts of dead rows, cached per segment. ``offload(function, *args)`` runs blocking I/O
    off the event loop. Methods raise whatever reading raises."""

    def __init__(self, store: ObjectStore, offload: Offload) -> None:
        self._store = store
        self._offload = offload
        self.reader = Reader(store, offload)
        self._known: dict[_Key, Concerned] = {}
        self._counted: dict[str, tuple[frozenset[str], int]] = {}

    async def prepare(self, segments: Mapping[str, tuple[SegmentManifest, Sequence[DeltaLog]]]) -> None:
        """Estimate the given segments, keyed by the path of their manifests, against the delta logs given
        with each."""
        unknown = {
            path: (manifest, [d for d in deltas if (path, d.file.path) not in self._known])
            for path, (manifest, deltas) in segments.items()
        }
        unknown = {path: found for path, found in unknown.items() if found[1]}
        if unknown:
            self._known |= await self._offload(_estimate, self._store, unknown)

    def estimate(self, manifest_path: str, deltas: Sequence[DeltaLog]) -> Concerned:
        """Return the sum over delta logs that `prepare` has estimated."""
        found = [self._known[manifest_path, delta.file.path] for delta in deltas]
        return Concerned(sum(c.rows for c in found), sum(c.bytes for c in found))

    async def count(
        self,
        manifest_path: str,
        manifest: SegmentManifest,
        primary_key: str,
        deltas: Sequence[DeltaLog],
        fold_until: Timestamp,
    ) -> int:
        """Count the rows that these delta logs, all of which are within ``fold_until``, delete.

        The count is cached until the set of delta logs changes; a count of zero is kept forever.
        """
        paths = frozenset(delta.file.path for delta in deltas)
        counted, rows = self._counted.get(manifest_path, (None, 0))
        if counted != paths:
            rows = await self._offload(_count, self._store, manifest, primary_key, deltas, fold_until)
            self._counted[manifest_path] = (paths, rows)
            if not rows:
                self._known |= {(manifest_path, delta.file.path): _NOTHING for delta in deltas}
        return rows

    def keep(self, is_kept: Callable[[str], bool]) -> None:
        """Forget all segments but those whose manifests' paths are kept."""
        self._known = {key: found for key, found in self._known.items() if is_kept(key[0])}
        self._counted = {path: found for path, found in self._counted.items() if is_kept(path)}


def _estimate(
    store: ObjectStore, segments: Mapping[str, tuple[SegmentManifest, list[DeltaLog]]]
) -> dict[_Key, Concerned]:
    logs = {d.file.path: d.file for _, deltas in segments.values() for d in deltas}
    deletes = {path: read_delta_log(store, file) for path, file in logs.items()}
    found: dict[_Key, Concerned] = {}
    for path, (manifest, deltas) in segments.items():
        stats = _stats(store, manifest)
        for delta in deltas:
            keys = _keys(deletes[delta.file.path], manifest)
            possible = np.zeros(len(keys), dtype=np.bool_)
            for one in stats or ():
                possible |= one.may_contain(keys)
            rows = int(possible.sum()) if stats is not None else len(keys)
            size_bytes = delta.file.size_bytes * rows // max(1, delta.file.rows)
            found[path, delta.file.path] = Concerned(rows, size_bytes)
    return found


def _stats(store: ObjectStore, manifest: SegmentManifest) -> tuple[KeyStats, ...] | None:
    """Return the segment's statistics; None if they cannot be read: any key may then be in the segment."""
    try:
        return tuple(read_stats_logs(store, manifest.stats_logs))
    except (ObjectMissing, CorruptObject) as error:
        _log.error("segment statistics not readable", segment=manifest.segment_id, error=str(error))
        return None


def _keys(deletes: pa.Table, manifest: SegmentManifest) -> pa.Array:
    """Return the distinct keys that are deleted in the segment's partition."""
    partitions = deletes.column(PARTITION_COLUMN).to_numpy()
    concerns = (partitions == ALL_PARTITIONS) | (partitions == manifest.partition_id)
    return pc.unique(deletes.column(PRIMARY_KEY_COLUMN).filter(pa.array(concerns)))


def _count(
    store: ObjectStore,
    manifest: SegmentManifest,
    primary_key: str,
    deltas: Sequence[DeltaLog],
    fold_until: Timestamp,
) -> int:
    table = read_columns(store, manifest, [primary_key, TIMESTAMP_FIELD])
    deletes = [read_delta_log(store, delta.file) for delta in deltas]
    row_ts = table.column(TIMESTAMP_FIELD).to_numpy()
    return int(dead_rows(table.column(primary_key), row_ts, deletes, manifest.partition_id, fold_until).sum())
