"""The requests by which a query node gets ready for a version: built from the target of the load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from elanus.api.querynode import (
    FieldIndexSpec,
    LoadCollection,
    LoadSegment,
    UnrecoveredSegment,
    WatchVchannel,
)
from elanus.api.recovery import DamagedManifest
from elanus.core.ids import SegmentID
from elanus.core.segments import DeltaLog, SegmentManifest
from elanus.core.timestamps import MAX_TIMESTAMP, Timestamp
from elanus.core.unreadable import unreadable_text
from elanus.core.warmup import warmed_indexes
from elanus.querycoord.target import Target


def load_request(target: Target, whole: bool) -> LoadCollection:
    """Return the request that says what a node serves of the collection."""
    collection = target.collection
    return LoadCollection(
        collection.collection_id,
        collection.schema,
        target.partition_ids,
        tuple(FieldIndexSpec(i.field_id, i.index_id, i.params) for i in target.indexes),
        collection.vchannels,
        whole,
        warmed_indexes(
            target.indexes,
            {field.field_id for field in collection.schema.searched_fields},
            collection.properties,
        ),
        target.left_out,
    )


def watch_request(
    target: Target, vchannel: str, *, leads: bool, again: tuple[SegmentID, ...] = ()
) -> WatchVchannel:
    """Return the request to follow a vchannel. ``leads``: whether the node serves its growing rows."""
    recovery = target.vchannel(vchannel)
    return WatchVchannel(
        target.collection.collection_id,
        vchannel,
        recovery.checkpoint,
        tuple(m for m in recovery.growing if m.partition_id in target.partition_ids),
        recovery.excluded,
        recovery.delta_logs,
        rows=leads,
        leaving=target.collection.leaving,
        damaged=tuple(map(_unrecovered, recovery.damaged)),
        again=again,
        unserved=recovery.unserved,
        moments=_of_logs(target.writes, recovery.delta_logs),
    )


def segment_request(target: Target, segment_id: SegmentID) -> LoadSegment:
    """Return the request to load a flushed segment with the index files that it has."""
    manifest = target.segments[segment_id]
    recovery = target.vchannel(manifest.vchannel)
    return LoadSegment(
        target.collection.collection_id,
        manifest,
        target.files.get(segment_id, ()),
        recovery.delta_logs,
        recovery.checkpoint,
        _of_segment(target.writes, manifest, recovery.delta_logs),
        tuple(log.file.path for log in recovery.unserved),
    )


def _of_logs(writes: Mapping[Timestamp, Timestamp], logs: Iterable[DeltaLog]) -> dict[Timestamp, Timestamp]:
    """Return the moments of the writes whose deletes may be in the delta logs."""
    if not writes:
        return {}
    first = min((log.file.ts_min for log in logs), default=MAX_TIMESTAMP)
    return {commit: moment for commit, moment in writes.items() if commit >= first}


def _of_segment(
    writes: Mapping[Timestamp, Timestamp], manifest: SegmentManifest, logs: Iterable[DeltaLog]
) -> dict[Timestamp, Timestamp]:
    """Return the moments of the writes that delete rows of a segment: by delta logs, or folded into it."""
    folded = {c: m for c, m in writes.items() if c <= manifest.folded_until < m}
    later = {c: m for c, m in writes.items() if c > manifest.deletes_from}
    return {**folded, **_of_logs(later, logs)}


def _unrecovered(damaged: DamagedManifest) -> UnrecoveredSegment:
    of = damaged.manifest
    text = unreadable_text(of.segment_id, of.partition_id, damaged.reason)
    return UnrecoveredSegment(of.segment_id, of.partition_id, text)
