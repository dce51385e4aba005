"""Clones: a new collection whose first rows are those of another one as of a moment, in the same files.

A clone copies nothing. Its manifests name the files of the source, and say up to which moment each file
counts (`elanus.core.segments.BinlogFile.until`): a file may also have rows and deletes that came later. Row
ids, timestamps, field ids and partition ids stay what they were, so a delete up to the moment concerns the
same rows in the clone as in the source. Rows written into the clone go into files of its own, and its
compactions replace borrowed files by own ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from elanus.core.segments import BinlogFile, DeltaLog, IndexFile, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp


def as_of(manifests: Iterable[SegmentManifest], moment: Timestamp) -> tuple[SegmentManifest, ...]:
    """Return what the segments held at ``moment``; segments without any rows then are left out."""
    cut = (_segment_as_of(manifest, moment) for manifest in manifests)
    return tuple(manifest for manifest in cut if manifest.insert_logs)


def deletes_as_of(logs: Iterable[DeltaLog], moment: Timestamp) -> tuple[DeltaLog, ...]:
    """Return the deletes up to ``moment``."""
    return tuple(replace(log, file=_cut(log.file, moment)) for log in logs if log.file.ts_min <= moment)


def folded_until(manifests: Iterable[SegmentManifest]) -> Timestamp:
    """Return the earliest moment of which the files still have all rows: earlier deletes are folded in."""
    return max((manifest.folded_until for manifest in manifests), default=NO_TIMESTAMP)


def lent_indexes(
    manifests: Iterable[SegmentManifest], files: Iterable[IndexFile], moment: Timestamp
) -> tuple[tuple[SegmentManifest, IndexFile], ...]:
    """Return the index files of segments that have the same rows at ``moment``, each with its segment.

    Rows that came later may be in a file that is cut: the index has their numbers, as the file does.
    """
    by_id = {manifest.segment_id: manifest for manifest in manifests}
    whole = {m.segment_id: m for m in as_of(by_id.values(), moment) if m.rows == by_id[m.segment_id].rows}
    return tuple((whole[f.segment_id], f) for f in files if _is_over(whole.get(f.segment_id), f))


def _is_over(manifest: SegmentManifest | None, file: IndexFile) -> bool:
    return manifest is not None and manifest.rows == file.rows


def _segment_as_of(manifest: SegmentManifest, moment: Timestamp) -> SegmentManifest:
    if manifest.commit_ts != NO_TIMESTAMP:  # all rows have this timestamp, whatever the files say
        return manifest if manifest.commit_ts <= moment else replace(manifest, insert_logs=(), stats_logs=())
    files = tuple(_cut(file, moment) for file in manifest.insert_logs if file.ts_min <= moment)
    return replace(manifest, insert_logs=files)


def _cut(file: BinlogFile, moment: Timestamp) -> BinlogFile:
    """Return the file up to ``moment``. One that was cut before, for a clone, stays cut there."""
    return file if file.ts_max <= moment else replace(file, until=moment, ts_max=moment)
