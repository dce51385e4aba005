"""How an engine with a Parquet reader of its own finds the rows of a snapshot: files in groups.

Most files of a collection are *whole*: each of their rows is visible, which the manifest alone shows. Their
rows are read without a look at keys or timestamps, so that a count reads nothing but the files' footers. The
other files are checked row by row: the timestamp against the snapshot's, the key against the deletes. These
files differ in their `FileFacts`, which the engine joins by the name of the file: the number of groups does
not grow with the number of files or of imports.

Spark (`elanus.spark.native`) and DuckDB (`elanus.spark.duck`) build their queries from this plan. Its rows
are those that `elanus.spark.segment` returns row group by row group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from elanus.api.connector import CollectionSnapshot
from elanus.core.errors import NotSupported
from elanus.core.ids import PartitionID
from elanus.core.rows import absent_column
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.segments import BinlogFile, SegmentManifest
from elanus.core.time_to_live import moment_us, moments_of_expiry
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.storage.binlog import absent_fields
from elanus.storage.parquet import opened
from elanus.storage.paths import INSERT_LOG
from elanus.storage.port import ObjectStore

_FOOTERS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One insert log or delta log, by its path in the store.

    ``stamp``: the timestamp of all its rows; 0: they have their own. ``shown_until``: rows that are later are
    no part of the snapshot. Of insert logs also: ``partition_id``, and ``deletes_from``, the timestamp up to
    which deletes have been applied to the file already.
    """

    path: str
    stamp: Timestamp
    shown_until: Timestamp
    partition_id: PartitionID = PartitionID(0)
    deletes_from: Timestamp = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Insert logs that are read in one way.

    ``whole``: every row is visible. ``deletable``: deletes may concern some rows. ``absent``: the fields that
    these files lack, since they are older.
    """

    files: tuple[FileFacts, ...]
    whole: bool
    deletable: bool
    absent: frozenset[str]


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """``fields``: the columns of the result. ``deletes``: the delta logs that may concern a row.

    ``expired_until``: rows that are not later have expired. ``expiry``: the field with the moment at which a
    row expires, None if there is none; a row is visible if that is later than ``now_us``. Groups that lack
    the field have no rows that its default lets expire.
    """

    schema: CollectionSchema
    fields: tuple[FieldSchema, ...]
    groups: tuple[FileGroup, ...]
    deletes: tuple[FileFacts, ...]
    expired_until: Timestamp
    expiry: FieldSchema | None
    now_us: int


def scan_plan(snapshot: CollectionSnapshot, store: ObjectStore, columns: tuple[str, ...] = ()) -> ScanPlan:
    """Plan a scan of these columns, of all that clients can have if none are named.

    Reads no rows. If fields were added to the collection, the footers of the files are read, since nothing
    else says which files have them. Raises `FieldNotFound`, and `NotSupported` for a column that has
    to be computed from others.
    """
    schema = snapshot.schema
    names = columns or tuple(f.name for f in schema.fields if schema.returns(f))
    fields = tuple(schema.field(name) for name in names)
    expiry = schema.field(schema.ttl_field) if schema.ttl_field else None
    needed = {f.name for f in (*fields, *([expiry] if expiry else []))}
    now_us = moment_us(snapshot.read_ts)
    expired_without = _expired_without(expiry, now_us)
    latest = _latest_deletes(snapshot)
    groups: dict[tuple[bool, bool, frozenset[str]], list[FileFacts]] = {}
    horizon: dict[str, Timestamp] = {}
    shown = [(m, file) for m in snapshot.segments for file in m.insert_logs if _shows_any(m, file, snapshot)]
    for (manifest, file), absent in zip(shown, _absent(shown, schema, needed, store), strict=True):
        if expired_without & absent:
            continue
        oldest = max(manifest.commit_ts or file.ts_min, manifest.deletes_from)
        deletable = latest.get(manifest.vchannel, NO_TIMESTAMP) > oldest
        whole = not deletable and _shows_all(manifest, file, snapshot)
        facts = FileFacts(
            file.path,
            manifest.commit_ts,
            min((not manifest.commit_ts and file.until) or MAX_TIMESTAMP, snapshot.read_ts),
            manifest.partition_id,
            manifest.deletes_from,
        )
        groups.setdefault((whole, deletable, absent), []).append(facts)
        if deletable:
            horizon[manifest.vchannel] = min(oldest, horizon.get(manifest.vchannel, MAX_TIMESTAMP))
    return ScanPlan(
        schema,
        fields,
        tuple(FileGroup(tuple(files), *key) for key, files in groups.items()),
        tuple(_deletes(snapshot, horizon)),
        snapshot.expired_until,
        expiry,
        now_us,
    )


def location(url: str, path: str = "", s3: str = "s3") -> str:
    """Return where another program finds an object of the store at ``url``: a path, or a URL.

    ``s3``: the scheme by which that program knows S3.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return str(Path(unquote(parts.path)) / path)
    root = f"{s3 if parts.scheme == 's3' else parts.scheme}://{parts.netloc}/{unquote(parts.path).strip('/')}"
    return f"{root.rstrip('/')}/{path}"


def facts_table(files: Iterable[FileFacts], paths: Mapping[str, str] | None = None) -> pa.Table:
    """Return facts as columns, ``__file`` among them. ``paths``: by which other name a file is known."""
    held = list(files)
    columns = {
        "__file": pa.array([paths[f.path] if paths else f.path for f in held], pa.string()),
        "__fixed": pa.array([f.stamp for f in held], pa.int64()),
        "__shown_until": pa.array([f.shown_until for f in held], pa.int64()),
        "__partition": pa.array([f.partition_id for f in held], pa.int64()),
        "__deletes_from": pa.array([f.deletes_from for f in held], pa.int64()),
    }
    return pa.table(columns)


def _expired_without(expiry: FieldSchema | None, now_us: int) -> frozenset[str]:
    """Return the field of the moments of expiry if rows that are older than the field have expired."""
    if expiry is None or not expiry.is_added or moments_of_expiry(absent_column(expiry, 1))[0] > now_us:
        return frozenset()
    return frozenset((expiry.name,))


def _shows_any(manifest: SegmentManifest, file: BinlogFile, snapshot: CollectionSnapshot) -> bool:
    oldest, newest = manifest.commit_ts or file.ts_min, manifest.commit_ts or file.ts_max
    return oldest <= snapshot.read_ts and newest > snapshot.expired_until


def _shows_all(manifest: SegmentManifest, file: BinlogFile, snapshot: CollectionSnapshot) -> bool:
    oldest, newest = manifest.commit_ts or file.ts_min, manifest.commit_ts or file.ts_max
    cut = file.until and not manifest.commit_ts
    return not cut and newest <= snapshot.read_ts and oldest > snapshot.expired_until


def _latest_deletes(snapshot: CollectionSnapshot) -> dict[str, Timestamp]:
    """Return the latest delete of each vchannel, or a later moment."""
    return {
        vchannel: max(
            (d.file.ts_max for d in logs if d.file.ts_min <= snapshot.read_ts), default=NO_TIMESTAMP
        )
        for vchannel, logs in snapshot.delta_logs.items()
    }


def _deletes(snapshot: CollectionSnapshot, horizon: Mapping[str, Timestamp]) -> Iterator[FileFacts]:
    """Yield the delta logs with deletes later than the oldest row that a vchannel's deletes may concern."""
    for vchannel, oldest in horizon.items():
        for log in snapshot.delta_logs[vchannel]:
            file = log.file
            if file.ts_max > oldest and file.ts_min <= snapshot.read_ts:
                shown_until = min(file.until or MAX_TIMESTAMP, snapshot.read_ts)
                yield FileFacts(file.path, file.deletes_ts, shown_until)


def _absent(
    files: list[tuple[SegmentManifest, BinlogFile]],
    schema: CollectionSchema,
    names: set[str],
    store: ObjectStore,
) -> Iterator[frozenset[str]]:
    """Yield which of the fields each file lacks."""
    added = [field for field in schema.added_fields if field.name in names]
    if not added:
        yield from (frozenset[str]() for _ in files)
        return

    def lacking(of: tuple[SegmentManifest, BinlogFile]) -> frozenset[str]:
        with opened(store, of[1].path, INSERT_LOG) as parquet:
            lacks = absent_fields(parquet.schema_arrow, names, added)
        for field in lacks.values():
            if field.is_function_output:
                raise NotSupported(
                    f"field {field.name} is computed from others in files that are older than it: leave it "
                    'out of columns, or read with spark.read.format("elanus")'
                )
        return frozenset(lacks)

    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        yield from pool.map(lacking, files)
