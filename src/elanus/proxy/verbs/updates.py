"""Partial updates: the present rows are read, and whole rows are upserted.

The read sees every acknowledged write. Another client's write to the same row between the read and the upsert
is overwritten, as in the reference: there is no lock on rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from elanus.api.querynode import NodeQuery
from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.errors import CollectionNotLoaded, InvalidParameter
from elanus.core.partial_update import check_update, kept_fields, updated
from elanus.core.rate_limits import Action
from elanus.proxy.api.writes import Insert, MutationResult, Update
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.verbs.mutations import Mutations
from elanus.proxy.verbs.row_writes import write_partition

_REMEDY = "a partial update reads the rows that are there; load the collection, or send whole rows"


class Updates(Mutations):
    def update(self, request: Update) -> MutationResult:
        cached, rows = request.collection, request.rows
        schema = cached.view.schema
        if rows.num_rows == 0:
            raise InvalidParameter("no rows to write: num_rows is 0")
        self._proxy.admission.allow(Action.WRITING, cached)
        write_partition(cached, request.partition)
        check_update(schema, rows, request.changes)
        kept = kept_fields(schema, rows, request.changes)
        if kept:
            found = self._present(cached, rows.column(schema.primary_field.name), kept)
            rows = updated(schema, rows, request.changes, found)
        return self.upsert(Insert(cached, request.partition, rows, request.client))

    def _present(
        self, cached: CachedCollection, keys: pa.Array, fields: tuple[str, ...]
    ) -> Mapping[str, pa.Array]:
        """Return the rows with these keys. Raises `CollectionNotLoaded`, among others."""
        reads = self._proxy.reads
        with reads.begin() as patience:
            read_ts = reads.read_timestamp(cached, ReadConsistency(ConsistencyLevel.STRONG), patience)
            wanted = NodeQuery(
                collection_id=cached.collection_id,
                partition_ids=(),
                filter=cached.plans.filter("", {}),
                primary_keys=keys,
                output_fields=(cached.view.schema.primary_field.name, *fields),
                limit=None,
                read_ts=read_ts,
                answer_bytes_max=self._proxy.limits.answer_bytes_max,
                expired_until=cached.expired_until(read_ts),
            )
            try:
                return reads.nodes.query(wanted, patience)
            except CollectionNotLoaded as error:
                raise type(error)(f"failed to query: {error.message}: {_REMEDY}") from error
