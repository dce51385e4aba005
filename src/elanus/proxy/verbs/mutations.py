"""Insert, upsert, delete and flush."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from elanus.api.datacoord import FlushOutcome
from elanus.core.errors import (
    CollectionNotFound,
    InvalidFilter,
    InvalidParameter,
    PartlyWritten,
    SchemaMismatch,
)
from elanus.core.ids import ALL_PARTITIONS, CollectionID, PartitionID, SegmentID
from elanus.core.quarantine import misfit_rows
from elanus.core.rate_limits import Action, Rate
from elanus.core.timestamps import Timestamp
from elanus.proxy.api import DEFAULT_PARTITION, Delete, FlushResult, Insert, MutationResult
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.fresh_keys import TakeIds, keys_in_shards_of, keys_of_ids
from elanus.proxy.role.read_path import refuse_partition_names
from elanus.proxy.role.writes import KeyDelete, RowWrite, keys_by_shard, rows_by_shard, shards_by_partition
from elanus.proxy.verbs.family import Verbs
from elanus.proxy.verbs.partial import partial_mutation
from elanus.proxy.verbs.query import matching_keys


class Mutations(Verbs):
    def insert(self, request: Insert) -> MutationResult:
        keys, ts = self._write(request, replaces=False)
        return MutationResult(keys, len(keys), 0, 0, ts)

    def upsert(self, request: Insert) -> MutationResult:
        keys, ts = self._write(request, replaces=True)
        return MutationResult(keys, len(keys), len(keys), len(keys), ts)

    def _write(self, request: Insert, *, replaces: bool) -> tuple[pa.Array, Timestamp]:
        cached = request.collection
        partition_id = write_partition(cached, request.partition)
        rate = Rate.UPSERT if replaces else Rate.INSERT
        self._proxy.admission.write(cached, rate, request.rows.nbytes)
        self._pressure.before_write(cached.collection_id, request.rows.nbytes)
        count = request.rows.num_rows
        if count == 0:
            raise InvalidParameter("no rows to write: num_rows is 0")
        if replaces:
            _refuse_repeated_keys(cached.view.schema.primary_field.name, request.rows)
        rows = self._proxy.embedder.with_vectors(cached.view.schema, request.rows)
        keys, write = row_write(cached, partition_id, rows, self._proxy.ids.take, replaces=replaces)
        try:
            ts = self._proxy.call(self._proxy.write_rows(write, cached.view.pchannels))
        except PartlyWritten as error:
            verb = "upserted" if replaces else "inserted"
            again = replaces and not _gets_fresh_keys(cached)
            raise partial_mutation(verb, keys, cached, error, may_repeat=again) from error
        self._proxy.own_writes.note(request.client, cached.collection_id, ts)
        self._proxy.measures.inserted(count)
        return keys, ts

    def delete(self, request: Delete) -> MutationResult:
        """Delete the keys that a filter names, or else the keys of the rows that it matches now.

        Named keys are deleted at one timestamp. Matching rows are deleted in steps of bounded size, each at a
        timestamp of its own, in the order of their keys. After a failure the steps before it remain done, and
        the same delete may be repeated. The result has the keys that were deleted last.
        """
        cached = request.collection
        self._proxy.admission.write(cached, Rate.DELETE, 0)
        refuse_partition_names(cached, (request.partition,) if request.partition else ())
        partition_id = cached.partition_id(request.partition) if request.partition else ALL_PARTITIONS
        if not request.filter.strip():
            raise InvalidParameter(
                "delete plan can't be empty or always true: give a filter, such as pk in [1, 2]"
            )
        try:
            chosen = cached.plans.filter(request.filter, request.filter_values)
        except InvalidFilter as error:
            raise InvalidFilter(f"failed to create delete plan: {error.message}", error.position) from error
        if chosen.matches_all:
            raise InvalidParameter(
                f"delete plan can't be empty or always true : {request.filter}: "
                "name the rows, or drop the partition or collection"
            )
        if chosen.is_approximate:
            raise InvalidParameter(
                "failed to create delete plan: a Bloom filter also finds rows that are not in its set, so it "
                "cannot choose what to delete: use membership_match with type=roaring, or list the values"
            )
        keys = chosen.primary_keys()
        if keys is not None:
            return self._delete_keys(request, partition_id, keys)
        count, result = 0, None
        for keys in matching_keys(
            self._proxy.reads,
            cached,
            request.filter,
            request.filter_values,
            request.partition,
            self._proxy.limits.delete_step_keys_max,
        ):
            result = self._delete_keys(request, partition_id, keys)
            count += result.delete_count
        if result is None:
            return MutationResult(pa.array([], pa.int64()), 0, 0, 0, self._proxy.stamp())
        return replace(result, delete_count=count)

    def _delete_keys(self, request: Delete, partition_id: PartitionID, keys: pa.Array) -> MutationResult:
        """Delete keys at one timestamp."""
        cached = request.collection
        if len(keys) == 0:
            return MutationResult(keys, 0, 0, 0, self._proxy.stamp())
        self._proxy.admission.spend(cached, Rate.DELETE, keys.nbytes)
        delete = KeyDelete(cached.collection_id, partition_id, keys_by_shard(keys, cached.view.vchannels))
        try:
            ts = self._proxy.call(self._proxy.delete_keys(delete, cached.view.pchannels))
        except PartlyWritten as error:
            raise partial_mutation("deleted", keys, cached, error, may_repeat=True) from error
        self._proxy.own_writes.note(request.consistency.client, cached.collection_id, ts)
        self._proxy.measures.deleted(len(keys))
        return MutationResult(keys, 0, len(keys), 0, ts)

    def flush(self, database: str, collections: Sequence[str]) -> FlushResult:
        cached = {name: self._collection(database, name) for name in collections}
        for resolved in cached.values():
            self._proxy.admission.allow(Action.DDL, resolved)
        data = self._proxy.coordinators.data
        outcomes = {
            name: self._proxy.define("flush", partial(data.flush, c.collection_id))
            for name, c in cached.items()
        }
        return _flush_result(outcomes)

    def flush_state(
        self, segment_ids: Sequence[int], database: str, collection: str, flush_ts: Timestamp
    ) -> bool:
        collection_id = CollectionID(0)
        if collection:
            collection_id = self._collection(database, collection).collection_id
        wanted = tuple(SegmentID(s) for s in segment_ids)
        data = self._proxy.coordinators.data
        return self._proxy.call(data.flush_finished(collection_id, wanted, flush_ts))

    def flush_all(self, database: str) -> Timestamp:
        """Flush every collection and return a timestamp from before the first flush.

        All rows up to that timestamp are flushed. Rows written to the first collection while the last one is
        flushed are not waited for.
        """
        coordinators = self._proxy.coordinators

        async def everything() -> Timestamp:
            flush_ts = await coordinators.root.alloc_timestamp(1)
            for collection in await coordinators.root.list_collections(database):
                with contextlib.suppress(CollectionNotFound):  # dropped since it was listed
                    await coordinators.data.flush(collection.collection_id)
            return flush_ts

        return self._proxy.define("flush all", everything)

    def flush_all_state(self, database: str, flush_ts: Timestamp) -> bool:
        """Covers the collections that the database has now, or all collections when no database is named."""
        coordinators = self._proxy.coordinators

        async def finished() -> bool:
            if not database:
                return await coordinators.data.flush_finished(CollectionID(0), (), flush_ts)
            for collection in await coordinators.root.list_collections(database):
                if not await coordinators.data.flush_finished(collection.collection_id, (), flush_ts):
                    return False
            return True

        return self._proxy.call(finished())


def write_partition(cached: CachedCollection, name: str) -> PartitionID:
    """Return the partition that a write goes to; `ALL_PARTITIONS`: each row goes by its partition key.

    ``name``: as the client gave it, or empty. Raises `PartitionNotFound`, `InvalidParameter`.
    """
    if cached.view.schema.partition_key is None:
        return cached.partition_id(name or DEFAULT_PARTITION)
    refuse_partition_names(cached, (name,) if name else ())
    return ALL_PARTITIONS


def row_write(
    cached: CachedCollection,
    partition_id: PartitionID,
    rows: pa.RecordBatch,
    take_ids: TakeIds,
    *,
    replaces: bool,
) -> tuple[pa.Array, RowWrite]:
    """Return the primary keys to report to the client, and the write to carry out.

    With automatic keys an upsert's rows get fresh keys, each in the shard of the key that it replaces, unless
    the collection keeps keys that clients send.
    An upsert's rows have distinct keys. Raises `SchemaMismatch` when the rows do not fit the schema.
    """
    view = cached.view
    replaced: pa.Array | None = None
    key_field = view.schema.primary_field
    first_id = take_ids(rows.num_rows)
    if replaces and _gets_fresh_keys(cached):
        replaced = rows.column(key_field.name)
        rows = _with_keys(rows, cached, keys_in_shards_of(replaced, len(view.vchannels), take_ids))
    elif key_field.auto_id and key_field.name not in rows.schema.names:
        rows = _with_keys(rows, cached, keys_of_ids(first_id, rows.num_rows, key_field.arrow_type))
    # Never true of decoded rows, which were decoded with this schema. In the log such rows would be lost.
    if reason := misfit_rows(rows, view.schema):
        raise SchemaMismatch(f"rows do not fit collection {view.name}: {reason}")
    keys = rows.column(key_field.name)
    shards = rows_by_shard(rows, keys, view.vchannels, replaced)
    if view.schema.partition_key is not None:
        shards = shards_by_partition(shards, view.schema.partition_key.name, cached.key_partitions)
    return keys, RowWrite(
        cached.collection_id,
        partition_id,
        shards,
        first_id,
        replaces=replaces,
    )


def _gets_fresh_keys(cached: CachedCollection) -> bool:
    """Whether an upsert's rows get keys other than those that were sent."""
    return cached.view.schema.primary_field.auto_id and not cached.keeps_sent_keys


def _with_keys(rows: pa.RecordBatch, cached: CachedCollection, keys: pa.Array) -> pa.RecordBatch:
    """Return the rows with these primary keys, columns in the schema's order."""
    schema = cached.view.schema
    columns = [keys if f is schema.primary_field else rows.column(f.name) for f in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)


def _refuse_repeated_keys(field: str, rows: pa.RecordBatch) -> None:
    """Refuse an upsert with several rows of one key, as the reference does.

    The rows of a batch have no order that its sender could rely on.
    """
    encoded = rows.column(field).dictionary_encode()
    if len(encoded.dictionary) == rows.num_rows:
        return
    repeated = int(np.argmax(np.bincount(encoded.indices.to_numpy()) > 1))
    raise InvalidParameter(
        "duplicate primary keys are not allowed in the same batch: several rows have the "
        f"{field} {encoded.dictionary[repeated].as_py()!r}; send one row of each key"
    )


def _flush_result(outcomes: dict[str, FlushOutcome]) -> FlushResult:
    return FlushResult(
        segment_ids={name: o.sealed for name, o in outcomes.items()},
        flushed_segment_ids={name: o.flushed for name, o in outcomes.items()},
        flush_ts={name: o.flush_ts for name, o in outcomes.items()},
    )
