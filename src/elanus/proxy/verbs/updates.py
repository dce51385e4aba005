"""Partial updates: the present rows are read, and whole rows are upserted.

The read sees every acknowledged write, in the partitions in which an upsert replaces rows: its own, or all if
a partition key decides. So a row counts as new only if these are loaded; else one in a partition that is not
would lose the fields that are not sent. Another client's write to the same row between the read and the
upsert is overwritten, as in the reference: there is no lock on rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from elanus.api.querynode import NodeQuery
from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.errors import CollectionNotLoaded, InvalidParameter, PartitionNotLoaded
from elanus.core.ids import ALL_PARTITIONS, PartitionID
from elanus.core.partial_update import check_update, kept_fields, updated
from elanus.core.rate_limits import Action
from elanus.proxy.api.writes import Insert, MutationResult, Update
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.verbs.mutations import Mutations
from elanus.proxy.verbs.row_writes import write_partition

_KEYS_SHOWN_MAX = 10
_REMEDY = "a partial update reads the rows that are there; load the collection, or send whole rows"


class Updates(Mutations):
    def update(self, request: Update) -> MutationResult:
        cached, rows = request.collection, request.rows
        schema = cached.view.schema
        if rows.num_rows == 0:
            raise InvalidParameter("no rows to write: num_rows is 0")
        self._proxy.admission.allow(Action.WRITING, cached)
        partition_id = write_partition(cached, request.partition)
        check_update(schema, rows, request.changes)
        kept = kept_fields(schema, rows, request.changes)
        if kept:
            found = self._present(cached, partition_id, rows.column(schema.primary_field.name), kept)
            rows = updated(schema, rows, request.changes, found)
        return self.upsert(Insert(cached, request.partition, rows, request.client))

    def _present(
        self, cached: CachedCollection, partition_id: PartitionID, keys: pa.Array, fields: tuple[str, ...]
    ) -> Mapping[str, pa.Array]:
        """Return the rows with these keys of one partition, or of all (`ALL_PARTITIONS`).

        Raises `CollectionNotLoaded`, `PartitionNotLoaded`, and others.
        """
        reads = self._proxy.reads
        key = cached.view.schema.primary_field.name
        all_partitions = tuple(cached.partitions.values())
        with reads.begin() as patience:
            read_ts = reads.read_timestamp(cached, ReadConsistency(ConsistencyLevel.STRONG), patience)
            wanted = NodeQuery(
                collection_id=cached.collection_id,
                partition_ids=all_partitions if partition_id == ALL_PARTITIONS else (partition_id,),
                filter=cached.plans.filter("", {}),
                primary_keys=keys,
                output_fields=(key, *fields),
                limit=None,
                read_ts=read_ts,
                answer_bytes_max=self._proxy.limits.answer_bytes_max,
                expired_until=cached.expired_until(read_ts),
            )
            try:
                return reads.nodes.query(wanted, patience)
            except CollectionNotLoaded as error:
                raise type(error)(f"failed to query: {error.message}: {_REMEDY}") from error
            except PartitionNotLoaded as error:
                if partition_id != ALL_PARTITIONS:
                    raise PartitionNotLoaded(f"failed to query: {error.message}: {_REMEDY}") from error
                found = reads.nodes.query(replace(wanted, partition_ids=()), patience)
                unknown = keys.filter(pc.invert(pc.is_in(keys, found[key])))
                if unknown:
                    raise PartitionNotLoaded(
                        f"failed to query: {error.message}: the rows with the primary keys "
                        f"{unknown.slice(0, _KEYS_SHOWN_MAX).to_pylist()} are in no loaded partition, and "
                        f"may be in others: {_REMEDY}"
                    ) from error
                return found
