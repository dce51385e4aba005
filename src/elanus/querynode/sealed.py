"""A sealed segment: loaded as a whole from its files, then changed only by deletes.

It holds scalars as Arrow columns (repetitive strings dictionary-encoded) and timestamps, the key index, and
vectors exactly once: in the built index if there is one, otherwise as one matrix. Large columns are mapped
from a local copy. The vectors of a field that cannot be searched, or whose index keeps only codes, stay on
the object store.

Loading is a synchronous function for a worker thread. Nothing refers to the segment until it returns, so a
load that fails leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from elanus.api.querynode import DamagedFile, LoadSegment
from elanus.core.errors import IndexConflict, Internal
from elanus.core.ids import FieldID, IndexID, PartitionID, SegmentID
from elanus.core.index_properties import MMAP_KEY
from elanus.core.schema import TIMESTAMP_FIELD, CollectionSchema, FieldSchema
from elanus.core.segments import IndexFile
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.types import Family
from elanus.index import (
    DamagedIndexFile,
    IndexSpec,
    JsonPath,
    ScalarIndex,
    SegmentIndex,
    VectorIndex,
    json_path_of,
    load,
    over_rows,
    resolve_field_index,
)
from elanus.querynode.block import Block, Bounds, Clustered
from elanus.querynode.deletes import WriteMoments
from elanus.querynode.delta_logs import DeltaLogs
from elanus.querynode.keys import SortedKeys
from elanus.querynode.vectors import VectorColumn
from elanus.querynode.warming import warm_file
from elanus.storage.computed import read_field_vectors
from elanus.storage.insert_logs import InsertLogs
from elanus.storage.mapped_columns import mapped
from elanus.storage.port import CorruptObject, ObjectMissing, ObjectStore
from elanus.storage.stats_log import read_spheres

_log = structlog.get_logger("querynode")
_ROWS_PER_DISTINCT_MIN = 4
"""Strings are dictionary-encoded if there are at least this many rows per distinct value."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class SealedSegment:
    """A loaded sealed segment.

    ``index_ids``: those of vector fields, then those of scalar fields.
    ``files``: the paths it was loaded from; two loads from the same files give the same segment.
    ``damaged``: index files that could not be used; their fields are served as if they had no index yet.
    ``complete_from``: rows deleted up to this timestamp have been removed; it cannot answer earlier reads.
    """

    segment_id: SegmentID
    partition_id: PartitionID
    vchannel: str
    parents: tuple[SegmentID, ...]
    index_ids: tuple[IndexID, ...]
    files: frozenset[str]
    blocks: tuple[Block, ...]
    complete_from: Timestamp = NO_TIMESTAMP
    damaged: tuple[DamagedFile, ...] = ()

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)

    @property
    def memory_bytes(self) -> int:
        return sum(block.memory_bytes for block in self.blocks)


def files_of(request: LoadSegment) -> frozenset[str]:
    """Return what identifies a loaded copy: the paths of its insert logs and index files."""
    insert_logs = {file.path for file in request.manifest.insert_logs}
    return frozenset(insert_logs | {file.path for file in request.indexes})


def load_sealed(
    request: LoadSegment,
    schema: CollectionSchema,
    specs: Mapping[FieldID, IndexSpec],
    store: ObjectStore,
    delta_logs: DeltaLogs,
    scratch: Path,
    warmed: Collection[IndexID] = (),
    shared: Path | None = None,
) -> SealedSegment:
    """Load a segment from its files, with the deletes in its delta logs applied.

    ``specs``: the indexes of the collection's vector fields. ``scratch``: a local directory for columns that
    are mapped, and for index files that the store does not have locally. ``warmed``: the indexes whose files
    are read even if they are mapped, so that the first searches need not read them. ``shared``: see
    `elanus.storage.mapped_columns.mapped`. Index files that are damaged or missing are left out and named in
    the segment. Raises `ObjectMissing`, `CorruptObject`, `FieldNotFound`, `IndexConflict` for an index of
    another metric, and `Internal` for one that does not fit the rows.
    """
    manifest = request.manifest
    blocks: tuple[Block, ...] = ()
    loader = _Loader(request, schema, specs, store, scratch, warmed, shared)
    if manifest.rows:
        blocks = (loader.block(),)
        blocks[0].make_key_filter()
    damaged = {file.path for file in loader.damaged}
    usable = [file for file in request.indexes if file.path not in damaged]
    scalars = {field.field_id for field in schema.scalar_fields if not field.is_searched}
    segment = SealedSegment(
        segment_id=manifest.segment_id,
        partition_id=manifest.partition_id,
        vchannel=manifest.vchannel,
        parents=manifest.parents,
        index_ids=(
            *(file.index_id for file in usable if file.field_id in specs.keys() - scalars),
            *(file.index_id for file in usable if file.field_id in scalars),
        ),
        files=files_of(request) - damaged,
        blocks=blocks,
        complete_from=_complete_from(request),
        damaged=tuple(loader.damaged),
    )
    _apply_delta_logs(segment, request, delta_logs)
    return segment


def _apply_delta_logs(segment: SealedSegment, request: LoadSegment, delta_logs: DeltaLogs) -> None:
    manifest = request.manifest
    later = [log.file for log in request.delta_logs if log.file.ts_max > manifest.deletes_from]
    if not later:
        return
    current = {log.file.path for log in request.delta_logs}
    moments = WriteMoments.of(request.moments)
    for run in delta_logs.deletes(manifest.vchannel, later, current):
        for batch in run.of_partition(manifest.partition_id, moments):
            for block in segment.blocks:
                block.delete(batch, after=manifest.deletes_from)


def _complete_from(request: LoadSegment) -> Timestamp:
    """Return before which timestamp a read misses rows that are deleted for good.

    Reads see the deletes of a write from a moment after its commit. If they are folded in, the rows that they
    delete are gone for reads before that moment too.
    """
    folded_until = request.manifest.folded_until
    seen_later = (moment for commit, moment in request.moments.items() if commit <= folded_until)
    return max(folded_until, *seen_later, NO_TIMESTAMP)


@dataclass(frozen=True, slots=True)
class _Loader:
    request: LoadSegment
    schema: CollectionSchema
    specs: Mapping[FieldID, IndexSpec]
    store: ObjectStore
    scratch: Path
    warmed: Collection[IndexID]
    shared: Path | None
    damaged: list[DamagedFile] = dataclasses.field(default_factory=list)

    def block(self) -> Block:
        with InsertLogs(self.store, [self.request.manifest], self.schema) as logs:
            columns, bounds, keys = self._columns(logs)
            row_ts = columns.pop(TIMESTAMP_FIELD)
            vectors = self._vectors(logs)
        for field in self.schema.searched_fields:
            if field.has_vector_lists and field.field_id in self.specs:
                vectors[field.field_id] = self._vector_lists(field, columns[field.name])
        return Block(
            self.schema,
            columns,
            vectors,
            np.asarray(row_ts, dtype=np.int64),
            bounds=bounds,
            indexes=self._scalar_indexes(),
            clustered=self._clustered(),
            keys=keys,
        )

    def _columns(self, logs: InsertLogs) -> tuple[dict[str, pa.Array], Bounds, SortedKeys]:
        """Return the scalar columns with the timestamps, the bounds of their values, and the keys."""
        fields = self.schema.scalar_fields
        table = logs.columns([TIMESTAMP_FIELD, *(field.name for field in fields)], self._unindexed())
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        del table
        bounds = {f.name: _bounds(columns[f.name]) for f in fields if f.kind.has_bounds}
        for field in fields:
            if field.kind.family is Family.TEXT and not field.is_primary:
                columns[field.name] = _encoded(columns[field.name])
        keys = self._map(columns)
        return columns, bounds, keys

    def _map(self, columns: dict[str, pa.Array]) -> SortedKeys:
        """Map columns in place, except those of fields that are to be held in memory; return the keys, whose
        codes are mapped with them."""
        held = {f.name for f in self.schema.fields if f.params.get(MMAP_KEY, "").lower() == "false"}
        primary = self.schema.primary_field.name
        keys = SortedKeys(columns[primary])
        own = {} if primary in held else keys.own_columns
        mappable = {name: column for name, column in columns.items() if name not in held}
        found = mapped({**mappable, **own}, self.scratch, self.shared)
        columns |= {name: found[name] for name in mappable}
        return keys if primary in held else keys.moved(columns[primary], found)

    def _clustered(self) -> Clustered | None:
        """Return the spheres of a cluster of vectors. Without them, searches look into the segment always."""
        manifest = self.request.manifest
        if manifest.cluster is None or manifest.cluster.field_id not in self.specs:
            return None
        field = self.schema.by_id.get(manifest.cluster.field_id)
        if field is None or field.kind.vector is None:
            return None
        try:
            spheres = read_spheres(self.store, manifest.stats_logs)
        except (ObjectMissing, CorruptObject) as error:
            _log.warning("spheres of a segment lost", segment=manifest.segment_id, error=str(error))
            return None
        group = (manifest.vchannel, manifest.partition_id)
        return None if spheres is None else Clustered(field.field_id, group, spheres)

    def _unindexed(self) -> list[FieldSchema]:
        """Return the fields of vectors whose searches compare all rows, since there is no index file."""
        fields = self.schema.vector_fields
        return [f for f in fields if f.field_id in self.specs and self._built(f) is None]

    def _vectors(self, logs: InsertLogs) -> dict[FieldID, VectorColumn]:
        exact = {field.field_id: self._exact(field, logs) for field in self._unindexed()}
        logs.close()  # index files may take long, and usually nothing more is read from the insert logs
        fields = self.schema.vector_fields
        return {f.field_id: exact.get(f.field_id) or self._indexed(f, logs) for f in fields}

    def _exact(self, field: FieldSchema, logs: InsertLogs) -> VectorColumn:
        metric, params = self.specs[field.field_id].metric_type, self.specs[field.field_id].params
        return VectorColumn.held(
            field, over_rows(field.data_type, field.dim, metric, logs.vectors(field), params)
        )

    def _indexed(self, field: FieldSchema, logs: InsertLogs) -> VectorColumn:
        """Return the vectors of a field with an index file, or that no search compares."""
        spec, built = self.specs.get(field.field_id), self._built(field)
        if spec is None or built is None:
            return self._filed(field, None, logs)
        index = self._index(built, field, spec)
        if index is None:
            return self._exact(field, logs)
        assert isinstance(index, VectorIndex), f"an index file of the vector field {field.name}"
        if index.has_raw_vectors:
            return VectorColumn.held(field, index)
        return self._filed(field, index, logs)

    def _filed(self, field: FieldSchema, index: VectorIndex | None, logs: InsertLogs) -> VectorColumn:
        """Vectors that memory does not hold: in files, or computed when they are first wanted."""
        manifest = self.request.manifest
        if not logs.lacks(field):
            return VectorColumn.filed(field, index, self.store, manifest.insert_logs)

        @cache
        def vectors() -> Any:
            return read_field_vectors(self.store, manifest, self.schema, field)

        return VectorColumn.read_once(field, index, vectors)

    def _vector_lists(self, field: FieldSchema, column: pa.Array) -> VectorColumn:
        """Return the index of lists whose column the block has."""
        spec, built = self.specs[field.field_id], self._built(field)
        index = None if built is None else self._index(built, field, spec)
        if index is None:
            return VectorColumn.of_lists(field, spec, column)
        assert isinstance(index, VectorIndex), f"an index file of the field {field.name} of vectors"
        return VectorColumn.held(field, index)

    def _scalar_indexes(self) -> dict[tuple[str, JsonPath], ScalarIndex]:
        """Return the scalar indexes by field name and JSON path. Without one, filters read the column."""
        indexes = {}
        fields = {f.field_id: f for f in self.schema.scalar_fields if not f.is_searched}
        for built in self.request.indexes:
            field = fields.get(built.field_id)
            index = None if field is None else self._index(built, field, None)
            if field is not None and index is not None:
                assert isinstance(index, ScalarIndex), f"index file {built.path} of a scalar field"
                indexes[field.name, json_path_of(index.spec, field) or ()] = index
        return indexes

    def _built(self, field: FieldSchema) -> IndexFile | None:
        return next((file for file in self.request.indexes if file.field_id == field.field_id), None)

    def _index(self, file: IndexFile, field: FieldSchema, declared: IndexSpec | None) -> SegmentIndex | None:
        """Return the index in a file; None, and a note in ``damaged``, if the file is damaged or missing.

        ``declared``: how the collection was loaded, for a field of vectors.
        """
        built = resolve_field_index(file.params, field)
        spec = built
        if declared is not None:
            spec = dataclasses.replace(built, memory_mapped=declared.memory_mapped)
        if declared is not None and spec.metric is not declared.metric:
            raise IndexConflict(
                f"the index of field {field.name} has metric {spec.metric}, the collection was loaded "
                f"with {declared.metric}: release and load the collection"
            )
        try:
            path = self.store.local_path(file.path, self.scratch)
        except ObjectMissing:
            self.damaged.append(DamagedFile(file.path, f"index file {file.path} is missing"))
            return None
        try:
            index = load(path, spec, stays=not path.is_relative_to(self.scratch))
            if spec.memory_mapped and file.index_id in self.warmed:
                warm_file(path)
        except DamagedIndexFile as error:
            self.damaged.append(DamagedFile(file.path, f"index file {file.path} is damaged: {error}"))
            return None
        finally:
            if path.is_relative_to(self.scratch):
                path.unlink(missing_ok=True)  # already read, or mapped: a mapping outlives the name
        if index.rows != self.request.manifest.rows:
            raise Internal(
                f"index file {file.path} has {index.rows} rows, segment {file.segment_id} has "
                f"{self.request.manifest.rows}"
            )
        return index


def _bounds(column: pa.Array) -> tuple[object, object]:
    """Return the minimum and the maximum value; None if they are unknown.

    They count as unknown if a value is NaN, which matches ``!=`` and is within no bounds.
    """
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return None, None
    found = pc.min_max(column).as_py()
    return found["min"], found["max"]


def _encoded(column: pa.Array) -> pa.Array:
    """Return a string column, dictionary-encoded if that saves enough."""
    encoded = column.dictionary_encode()
    return encoded if len(encoded.dictionary) * _ROWS_PER_DISTINCT_MIN <= len(column) else column
