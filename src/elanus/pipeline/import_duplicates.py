"""Which rows of an import are left out because of their keys. Plain Arrow: no Spark here.

The rows of one key have an order: the one that the collection has, then those of the files, in the order in
which the import names the files. `elanus.core.imports.Duplicates` says which of them stays. That is decided
by the keys alone, before a row is written, in two steps that divide the keys by their hash into *buckets*:
the keys of each part of the files are written to the object store, bucket by bucket; then a bucket's keys are
compared with each other and with those that the collection has. The task that imports a part is given the
numbers of the rows to leave out.

A bucket belongs to one shard, so only segments of one vchannel can have its keys, and of these only the ones
whose statistics do not rule that out are read. Memory: a bucket, about `_ROW_BYTES` for each of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.api.connector import CollectionSnapshot
from elanus.core.channels import shard_of_keys
from elanus.core.given_columns import keys_only
from elanus.core.imports import Duplicates
from elanus.core.schema import TIMESTAMP_FIELD, CollectionSchema
from elanus.core.segments import SegmentManifest
from elanus.core.time_to_live import moment_us, moments_of_expiry
from elanus.pipeline.import_files import fitting, given_rows
from elanus.pipeline.import_plan import FileRows, ImportPlan, LeftOut
from elanus.pipeline.import_rejects import Rejects
from elanus.storage.binlog import read_columns
from elanus.storage.delta_log import PRIMARY_KEY_COLUMN, dead_rows, read_delta_log
from elanus.storage.parquet import ROW_GROUP_ROWS_MAX
from elanus.storage.port import ObjectStore
from elanus.storage.stats_log import read_stats_logs

_ROW_BYTES = 96
_KEY, _ROW = "key", "row"

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket's keys: the batch ``number`` of each of the ``parts``' objects, in the order of the rows.

    ``existing``: a snapshot of the collection, where its rows matter.
    """

    schema: CollectionSchema
    number: int
    vchannel: str
    parts: tuple[str, ...]
    duplicates: Duplicates
    existing: CollectionSnapshot | None = None


def buckets_of(rows: int, shards: int, task_bytes_max: int) -> int:
    """Return a number of buckets, a multiple of the shards', that tasks have the memory for."""
    return shards * max(1, -(-rows * _ROW_BYTES // (shards * task_bytes_max)))


def write_keys(
    schema: CollectionSchema,
    parts: Sequence[FileRows],
    buckets: int,
    source: ObjectStore,
    store: ObjectStore,
    path: str,
    rejects_max: int = 0,
) -> None:
    """Write the keys of a part of the files with the numbers of their rows, as one object.

    Rows are numbered from 0, those whose key does not fit included. Raises `InvalidParameter` for such a row,
    or if there are more than ``rejects_max`` of them.
    """
    key = schema.primary_field
    found: list[list[pa.RecordBatch]] = [[] for _ in range(buckets)]
    form = pa.schema([(_KEY, key.arrow_type), (_ROW, pa.int64())])
    for keys, rows in _keys(schema, parts, source, Rejects(rejects_max) if rejects_max else None):
        bucket_of = shard_of_keys(keys, buckets)
        batch = pa.record_batch([keys, pa.array(rows)], schema=form)
        ordered = batch.take(pa.array(np.argsort(bucket_of, kind="stable")))
        first = 0
        for bucket, count in enumerate(np.bincount(bucket_of, minlength=buckets).tolist()):
            found[bucket].append(ordered.slice(first, count))
            first += count
    _put(store, path, form, [pa.Table.from_batches(batches, form) for batches in found])


def _keys(
    schema: CollectionSchema, parts: Sequence[FileRows], source: ObjectStore, rejects: Rejects | None
) -> Iterator[tuple[pa.Array, Numbers]]:
    own, column = keys_only(schema), schema.primary_field.name
    for given in given_rows(parts, source, own, ROW_GROUP_ROWS_MAX, column):
        for rows, at in fitting(own, given.table, given.rows, given.place, 0, rejects, column):
            first = given.number + at
            yield rows.column(0), np.arange(first, first + rows.num_rows)


def write_left_out(bucket: Bucket, store: ObjectStore, path: str) -> tuple[LeftOut | None, ...]:
    """Write the numbers of the rows that are left out, as one object; return them by part, None for none."""
    form = pa.schema([(_ROW, pa.int64())])
    tables = [_batch(store, part, bucket.number) for part in bucket.parts]
    gone = _gone(bucket, store, pa.chunked_array([t.column(_KEY) for t in tables]))
    found: list[LeftOut | None] = []
    batches: list[pa.Table] = []
    first = 0
    for table in tables:
        rows = table.column(_ROW).to_numpy()[gone[first : first + table.num_rows]]
        first += table.num_rows
        if not len(rows):
            found.append(None)
            continue
        digest = blake2b(rows.tobytes(), digest_size=16).hexdigest()
        found.append(LeftOut(path, len(batches), len(rows), digest))
        batches.append(pa.table([pa.array(rows)], schema=form))
    if batches:
        _put(store, path, form, batches)
    return tuple(found)


def left_out_rows(store: ObjectStore, plan: ImportPlan) -> Numbers:
    """Return the numbers of the rows of a plan that are left out, in their order."""
    found = [_batch(store, rows.path, rows.batch).column(_ROW).to_numpy() for rows in plan.left_out]
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *found]))


def _gone(bucket: Bucket, store: ObjectStore, keys: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return which rows are left out. ``keys``: in the order of the rows. shape (n,)."""
    if not len(keys):
        return np.zeros(0, dtype=np.bool_)
    encoded = keys.combine_chunks().dictionary_encode()
    key_of = encoded.indices.to_numpy()
    rows = np.arange(len(key_of))
    if bucket.duplicates is Duplicates.LAST:
        stays = np.full(len(encoded.dictionary), -1, dtype=np.int64)
        np.maximum.at(stays, key_of, rows)
    else:
        stays = np.full(len(encoded.dictionary), len(rows), dtype=np.int64)
        np.minimum.at(stays, key_of, rows)
    if bucket.existing is not None:
        stays[_existing(bucket.existing, bucket.vchannel, encoded.dictionary, store)] = -1
    return np.asarray(stays[key_of] != rows)


def _existing(
    of: CollectionSnapshot, vchannel: str, keys: pa.Array, store: ObjectStore
) -> npt.NDArray[np.bool_]:
    """Return which of these keys the collection has. ``keys``: each once. shape (n,)."""
    found = np.zeros(len(keys), dtype=np.bool_)
    deletes: Mapping[str, pa.Table] = {}
    for manifest in of.segments:
        if manifest.vchannel != vchannel or not manifest.insert_logs:
            continue
        possible = ~found
        if manifest.stats_logs:
            stats = read_stats_logs(store, manifest.stats_logs)
            possible &= np.any([one.may_contain(keys) for one in stats], axis=0)
        if possible.any():
            wanted = keys.filter(pa.array(possible))
            deletes = deletes or _deletes(of, vchannel, keys, store)
            there = _living(of, manifest, wanted, deletes, store)
            found |= pc.is_in(keys, value_set=there).to_numpy(zero_copy_only=False)
    return found


def _deletes(
    of: CollectionSnapshot, vchannel: str, keys: pa.Array, store: ObjectStore
) -> dict[str, pa.Table]:
    """Return the deletes of these keys, by the paths of their files."""
    found = {}
    for log in of.delta_logs.get(vchannel, ()):
        table = read_delta_log(store, log.file)
        found[log.file.path] = table.filter(pc.is_in(table.column(PRIMARY_KEY_COLUMN), value_set=keys))
    return found


def _living(
    of: CollectionSnapshot,
    manifest: SegmentManifest,
    wanted: pa.Array,
    deletes: Mapping[str, pa.Table],
    store: ObjectStore,
) -> pa.Array:
    """Return those of the wanted keys that visible rows of a segment have."""
    key, ttl_field = of.schema.primary_field.name, of.schema.ttl_field
    columns = [key, TIMESTAMP_FIELD, *([ttl_field] if ttl_field else [])]
    rows = read_columns(store, manifest, columns, of.schema.added_fields)
    rows = rows.filter(pc.is_in(rows.column(key), value_set=wanted))
    row_ts = rows.column(TIMESTAMP_FIELD).to_numpy()
    visible = (row_ts <= of.read_ts) & (row_ts > of.expired_until)
    if ttl_field:
        visible &= moments_of_expiry(rows.column(ttl_field).combine_chunks()) > moment_us(of.read_ts)
    after = pc.field(TIMESTAMP_FIELD) > int(manifest.deletes_from)
    later = [table.filter(after) for table in deletes.values()]
    visible &= ~dead_rows(rows.column(key), row_ts, later, manifest.partition_id, of.read_ts)
    return rows.column(key).filter(pa.array(visible)).combine_chunks()


def _put(store: ObjectStore, path: str, form: pa.Schema, tables: Sequence[pa.Table]) -> None:
    """Write tables as one batch each."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, form) as writer:
        for table in tables:
            whole = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=form)]
            writer.write_batch(whole[0])
    store.put(path, sink.getvalue())


def _batch(store: ObjectStore, path: str, number: int) -> pa.RecordBatch:
    with store.open(path) as file, pa.ipc.open_file(file) as reader:
        return reader.get_batch(number)
