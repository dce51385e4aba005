"""The query verb: rows by filter or key, and their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from elanus.api.querynode import NodeQuery
from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.errors import InvalidParameter
from elanus.core.requests import check_answer_size, check_query_window
from elanus.core.schema import CollectionSchema
from elanus.proxy.api import Query, QueryResult
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.read_path import ReadPath, check_same_collection, plan_filter, read_partitions
from elanus.proxy.verbs.family import Verbs
from elanus.proxy.verbs.outputs import COUNT, asks_for_count

_LAST_KEY = "elanus_last_key"
"""The name of a value in filters of this module."""


class Querying(Verbs):
    def query(self, request: Query) -> QueryResult:
        reads, cached = self._proxy.reads, request.collection
        with reads.begin(request.timeout_s) as patience:
            check_same_collection(cached, request.collection_id)
            schema = cached.view.schema
            check_query_window(request.limit, request.offset)
            counting = asks_for_count(request.output_fields)
            outputs = cached.plans.outputs(() if counting else request.output_fields, with_key=True)
            partitions = read_partitions(cached, request.partitions)
            bound = plan_filter(cached, request.filter, request.filter_values)
            if bound.matches_all and request.ids is None and request.limit is None and not counting:
                raise InvalidParameter(
                    "empty expression should be used with limit: invalid parameter: "
                    "give a filter, ids or a limit"
                )
            if counting and request.limit is not None:
                raise InvalidParameter(
                    "count entities with pagination is not allowed: invalid parameter: "
                    "leave limit and offset out"
                )
            read_ts = reads.read_timestamp(cached, request.consistency, patience)
            wanted = NodeQuery(
                collection_id=cached.collection_id,
                partition_ids=partitions,
                filter=bound,
                primary_keys=None if request.ids is None else _key_array(schema, request.ids),
                output_fields=outputs.columns,
                limit=None if request.limit is None else request.offset + request.limit,
                read_ts=read_ts,
                ignore_growing=request.ignore_growing,
                answer_bytes_max=self._proxy.limits.answer_bytes_max,
                expired_until=cached.expired_until(read_ts),
            )
            if counting:
                count = pa.array([reads.nodes.count(wanted, patience)], pa.int64())
                return QueryResult({COUNT: count}, (COUNT,), (), schema, wanted.read_ts)
            rows = reads.nodes.query(wanted, patience)
        fields = {name: column.slice(request.offset) for name, column in rows.items()}
        size_bytes = sum(column.nbytes for column in fields.values())
        key_count = len(fields[schema.primary_field.name])
        check_answer_size(key_count, size_bytes, self._proxy.limits.answer_bytes_max)
        return QueryResult(fields, outputs.names, outputs.dynamic, schema, wanted.read_ts)


def matching_keys(
    reads: ReadPath,
    cached: CachedCollection,
    text: str,
    values: Mapping[str, object],
    partition: str,
    keys_max: int,
) -> Iterator[pa.Array]:
    """Yield the primary keys of the rows that a filter matches now; sees every acknowledged write.

    They come in ascending order, at most ``keys_max`` at a time, all as of the moment of the first read.
    """
    key = cached.view.schema.primary_field.name
    partitions = read_partitions(cached, (partition,) if partition else ())
    consistency = ReadConsistency(ConsistencyLevel.STRONG)
    bound = cached.plans.filter(text, values)
    while True:
        with reads.begin() as patience:
            read_ts = reads.read_timestamp(cached, consistency, patience)
            wanted = NodeQuery(
                collection_id=cached.collection_id,
                partition_ids=partitions,
                filter=bound,
                primary_keys=None,
                output_fields=(key,),
                limit=keys_max,
                read_ts=read_ts,
                expired_until=cached.expired_until(read_ts),
            )
            keys = reads.nodes.query(wanted, patience)[key]
        if len(keys):
            yield keys
        if len(keys) < keys_max:
            return
        consistency = ReadConsistency(guarantee_ts=read_ts, pinned=True)
        bound = cached.plans.filter(
            f"({text}) and {key} > {{{_LAST_KEY}}}", {**values, _LAST_KEY: keys[-1].as_py()}
        )


def _key_array(schema: CollectionSchema, ids: object) -> pa.Array:
    field = schema.primary_field
    try:
        return pa.array(ids, field.arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidParameter(
            f"ids do not fit the primary key {field.name} of type {field.data_type.name}: {error}"
        ) from error
