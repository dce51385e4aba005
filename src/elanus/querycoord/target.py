"""The segments of a loaded collection that should be served, as of one read of the persisted state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from elanus.api.datacoord import DataCoordApi
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.querynode import SegmentServing
from elanus.api.recovery import DamagedManifest, RecoveryInfo, VchannelRecovery
from elanus.api.rootcoord import RootCoordApi
from elanus.core.catalog import Collection, Index
from elanus.core.estimate import segment_memory_bytes
from elanus.core.ids import FieldID, PartitionID, SegmentID
from elanus.core.placement import Piece
from elanus.core.schema import CollectionSchema
from elanus.core.segments import DeltaLog, IndexFile, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.querycoord.state import Load


@dataclass(frozen=True, slots=True)
class Target:
    """The segments to serve of one collection.

    ``files``: the finished index files of each segment. ``unbuilt``: outputs of compactions that wait for an
    index. ``left_out``: the fields that are not loaded: their indexes are not in ``indexes`` and ``files``.
    ``writes``: as in `elanus.querycoord.visible_from.Settled`.
    """

    collection: Collection
    partition_ids: tuple[PartitionID, ...]
    recovery: RecoveryInfo
    segments: Mapping[SegmentID, SegmentManifest]
    indexes: tuple[Index, ...]
    files: Mapping[SegmentID, tuple[IndexFile, ...]]
    unbuilt: tuple[SegmentID, ...]
    left_out: frozenset[FieldID] = frozenset()
    writes: Mapping[Timestamp, Timestamp] = field(default_factory=dict)

    @property
    def damaged(self) -> dict[SegmentID, DamagedManifest]:
        """The flushed segments of the load that should be served too, but whose manifests cannot be read."""
        return {
            d.manifest.segment_id: d
            for d in self.recovery.damaged
            if d.manifest.partition_id in self.partition_ids
        }

    @property
    def unserved(self) -> tuple[DeltaLog, ...]:
        """The delta logs of writes that take effect with a version that has their rows."""
        return tuple(log for vchannel in self.recovery.vchannels for log in vchannel.unserved)

    def vchannel(self, name: str) -> VchannelRecovery:
        return next(v for v in self.recovery.vchannels if v.vchannel == name)

    def is_served(self, serving: SegmentServing | None) -> bool:
        """Whether a node has the segment as it should be: with its indexes, once they are built."""
        if serving is None:
            return False
        return all(file.index_id in serving.index_ids for file in self.files.get(serving.segment_id, ()))

    def pieces(self, segment_ids: Iterable[SegmentID]) -> list[Piece]:
        """Return the segments, each with the memory it will take: its vectors once, and its files.

        Vectors that an index leaves on disk, and those of fields that are not loaded, take none.
        """
        vectors = self.collection.schema.vector_fields
        width = sum(field.row_bytes_estimate for field in vectors if field.field_id not in self.left_out)
        filed = sum(
            field.row_bytes_estimate for field in vectors if field.dim and field.field_id in self.left_out
        )
        return [self._piece(segment_id, width, filed) for segment_id in segment_ids]

    def _piece(self, segment_id: SegmentID, width: int, filed: int) -> Piece:
        """``width`` and ``filed``: bytes of a row's vectors that are loaded, and of those that are not."""
        manifest = self.segments[segment_id]
        files = self.files.get(segment_id, ())
        rows = manifest.rows
        insert_log_bytes = max(0, manifest.size_bytes - rows * filed)
        if not files:  # of thousands of segments, most are too small for an index
            size_bytes = segment_memory_bytes(
                rows=rows, vector_row_bytes=width, insert_log_bytes=insert_log_bytes
            )
            return Piece(segment_id, self.collection.collection_id, size_bytes)
        size_bytes = segment_memory_bytes(
            rows=rows,
            vector_row_bytes=width,
            insert_log_bytes=insert_log_bytes,
            vector_index_bytes=sum(file.size_bytes for file in files if file.metric_type),
            scalar_index_bytes=sum(file.size_bytes for file in files if not file.metric_type),
            index_disk_bytes=sum(file.disk_bytes for file in files),
        )
        return Piece(segment_id, self.collection.collection_id, size_bytes)


async def find_target(
    load: Load,
    root: RootCoordApi,
    data: DataCoordApi,
    index: IndexCoordApi,
    held: tuple[SegmentID, ...] = (),
) -> Target:
    """Read the target of a load.

    ``held``: segments that are served now; the target's successors say what became of them. Raises
    `CollectionNotFound`.
    """
    collection = await root.collection_by_id(load.collection_id)
    partition_ids = load.partitions_of(collection)
    recovery = await data.recovery_info(load.collection_id, held)
    if recovery.schema is not None and _is_changing(collection.schema, recovery.schema):
        collection = replace(collection, schema=recovery.schema)
    wanted = frozenset(partition_ids)
    segments = {m.segment_id: m for m in recovery.flushed if m.partition_id in wanted}
    # Files last: an output whose index has been built by now is loaded with it at once.
    left_out = load.left_out(collection.schema)
    fields = collection.schema.by_id.keys() - left_out
    indexes = tuple(i for i in await index.indexes(load.collection_id) if i.field_id in fields)
    outputs = tuple(s for s, manifest in segments.items() if manifest.parents)
    unbuilt = await index.unbuilt(load.collection_id, outputs) if outputs else ()
    files: dict[SegmentID, tuple[IndexFile, ...]] = {}
    for file in await index.index_files(load.collection_id):
        if file.field_id not in fields:
            continue
        files[file.segment_id] = (*files.get(file.segment_id, ()), file)
    return Target(collection, partition_ids, recovery, segments, indexes, files, unbuilt, left_out)


def _is_changing(shown: CollectionSchema, written: CollectionSchema) -> bool:
    """Whether a collection's rows are about to be read by other fields, or to expire by another field."""
    return shown.by_id.keys() != written.by_id.keys() or shown.ttl_field != written.ttl_field
