"""Insert, upsert and delete."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from elanus.core.errors import InvalidFilter, InvalidParameter, PartlyWritten
from elanus.core.ids import ALL_PARTITIONS, PartitionID
from elanus.core.rate_limits import Rate
from elanus.core.timestamps import Timestamp
from elanus.expr import BoundFilter
from elanus.proxy.api.writes import Delete, Insert, MutationResult
from elanus.proxy.role.named_partitions import refuse_partition_names
from elanus.proxy.role.shards import keys_by_shard
from elanus.proxy.role.writes import KeyDelete
from elanus.proxy.verbs.family import VerbFamily
from elanus.proxy.verbs.partial_writes import partial_mutation
from elanus.proxy.verbs.query import matching_keys
from elanus.proxy.verbs.row_writes import (
    gets_fresh_keys,
    refuse_repeated_keys,
    row_write,
    write_partition,
)


class Mutations(VerbFamily):
    def insert(self, request: Insert) -> MutationResult:
        keys, ts = self._write(request, replaces=False)
        return MutationResult(keys, insert_count=len(keys), delete_count=0, upsert_count=0, ts=ts)

    def upsert(self, request: Insert) -> MutationResult:
        keys, ts = self._write(request, replaces=True)
        count = len(keys)
        return MutationResult(keys, insert_count=count, delete_count=count, upsert_count=count, ts=ts)

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
            refuse_repeated_keys(cached.view.schema.primary_field.name, request.rows)
        rows = self._proxy.embedder.with_vectors(cached.view.schema, request.rows)
        keys, write = row_write(cached, partition_id, rows, self._proxy.ids.take, replaces=replaces)
        try:
            ts = self._proxy.call(self._proxy.write_rows(write, cached.view.pchannels))
        except PartlyWritten as error:
            verb = "upserted" if replaces else "inserted"
            again = replaces and not gets_fresh_keys(cached)
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
        keys = _filter_of(request).primary_keys()
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
            return _deleted(pa.array([], pa.int64()), self._proxy.stamp())
        return replace(result, delete_count=count)

    def _delete_keys(self, request: Delete, partition_id: PartitionID, keys: pa.Array) -> MutationResult:
        """Delete keys at one timestamp."""
        cached = request.collection
        if len(keys) == 0:
            return _deleted(keys, self._proxy.stamp())
        self._proxy.admission.spend(cached, Rate.DELETE, keys.nbytes)
        delete = KeyDelete(cached.collection_id, partition_id, keys_by_shard(keys, cached.view.vchannels))
        try:
            ts = self._proxy.call(self._proxy.delete_keys(delete, cached.view.pchannels))
        except PartlyWritten as error:
            raise partial_mutation("deleted", keys, cached, error, may_repeat=True) from error
        self._proxy.own_writes.note(request.client, cached.collection_id, ts)
        self._proxy.measures.deleted(len(keys))
        return _deleted(keys, ts)


def _filter_of(request: Delete) -> BoundFilter:
    """Return the compiled filter. Raises `InvalidFilter`, `InvalidParameter` if it chooses too much."""
    if not request.filter.strip():
        raise InvalidParameter(
            "delete plan can't be empty or always true: give a filter, such as pk in [1, 2]"
        )
    try:
        chosen = request.collection.plans.filter(request.filter, request.filter_values)
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
    return chosen


def _deleted(keys: pa.Array, ts: Timestamp) -> MutationResult:
    return MutationResult(keys, insert_count=0, delete_count=len(keys), upsert_count=0, ts=ts)
