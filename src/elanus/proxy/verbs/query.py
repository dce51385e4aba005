"""The query verb: rows by filter or key, their number, and aggregates over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from elanus.api.querynode import NodeQuery
from elanus.core.aggregation import Aggregation, combined, finished
from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.errors import InvalidParameter
from elanus.core.ordering import order_places
from elanus.core.rate_limits import Rate
from elanus.core.requests import check_answer_size, check_query_window
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp
from elanus.core.trail import step
from elanus.proxy.api import Query, QueryResult
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.read_path import ReadPath, check_same_collection, plan_filter, read_partitions
from elanus.proxy.verbs.aggregates import aggregation_of
from elanus.proxy.verbs.elements import chosen_elements, columns_read, elements_before
from elanus.proxy.verbs.family import Verbs
from elanus.proxy.verbs.noting import note_answer, note_read
from elanus.proxy.verbs.outputs import COUNT, asks_for_count

_LAST_KEY = "elanus_last_key"
"""The name of a value in filters of this module."""


class Querying(Verbs):
    def query(self, request: Query) -> QueryResult:
        reads, cached = self._proxy.reads, request.collection
        self._proxy.admission.read(cached, Rate.QUERY, 1)
        step("plan")
        with reads.begin(request.timeout_s) as patience:
            check_same_collection(cached, request.collection_id)
            schema = cached.view.schema
            check_query_window(request.limit, request.offset)
            counting = asks_for_count(request.output_fields) and not request.group_by
            aggregating = None if counting else self._aggregation(request)
            is_rows = not counting and aggregating is None
            outputs = cached.plans.outputs(request.output_fields if is_rows else (), with_key=True)
            bound = plan_filter(cached, request.filter, request.filter_values)
            partitions = read_partitions(cached, request.partitions, bound)
            if bound.matches_all and request.ids is None and request.limit is None and is_rows:
                raise InvalidParameter(
                    "empty expression should be used with limit: invalid parameter: "
                    "give a filter, ids or a limit"
                )
            if counting and request.limit is not None:
                raise InvalidParameter(
                    "count entities with pagination is not allowed: invalid parameter: "
                    "leave limit and offset out"
                )
            step("fix the timestamp")
            read_ts = reads.read_timestamp(cached, request.consistency, patience)
            extra = (*(by.field for by in request.order), *columns_read(bound)) if is_rows else ()
            more = 0 if request.after is None else 1  # of the first row, no element may be left
            note_read(cached, request.consistency, read_ts, bound)
            step("query on query nodes")
            wanted = NodeQuery(
                collection_id=cached.collection_id,
                partition_ids=partitions,
                filter=bound,
                primary_keys=None if request.ids is None else _key_array(schema, request.ids),
                output_fields=tuple(dict.fromkeys((*outputs.columns, *extra))),
                limit=None if request.limit is None else request.offset + request.limit + more,
                read_ts=read_ts,
                ignore_growing=request.ignore_growing,
                answer_bytes_max=self._proxy.limits.answer_bytes_max,
                expired_until=cached.expired_until(read_ts),
                order=request.order if is_rows else (),
                aggregation=None if aggregating is None else aggregating[0],
                spared_fields=outputs.spared_unless(extra),
            )
            if counting:
                count = pa.array([reads.nodes.count(wanted, patience)], pa.int64())
                return QueryResult({COUNT: count}, (COUNT,), (), schema, wanted.read_ts)
            with outputs.naming_keys():
                rows = reads.nodes.query(wanted, patience)
        step("cut and encode the answer")
        if aggregating is not None:
            return _groups(rows, request, *aggregating, wanted.read_ts)
        outputs = outputs.found_in(rows)
        elements = None
        if bound.element_filter is None:
            fields = {n: column.slice(request.offset) for n, column in rows.items() if n in outputs.columns}
        else:
            key = schema.primary_field.name
            skipped = None if request.after is None else elements_before(request.after, rows[key])
            chosen = chosen_elements(bound, rows, request.limit, request.offset, skipped)
            elements, kept = chosen.elements, pa.array(chosen.rows)
            fields = {n: column.take(kept) for n, column in rows.items() if n in outputs.columns}
        size_bytes = sum(column.nbytes for column in fields.values())
        key_count = len(fields[schema.primary_field.name])
        check_answer_size(key_count, size_bytes, self._proxy.limits.answer_bytes_max)
        note_answer("{} rows", key_count)
        return QueryResult(fields, outputs.names, outputs.dynamic, schema, wanted.read_ts, elements)

    def _aggregation(self, request: Query) -> tuple[Aggregation, tuple[str, ...]] | None:
        schema = request.collection.view.schema
        return aggregation_of(schema, request.output_fields, request.group_by, request.order)


def _groups(
    partial: Mapping[str, pa.Array],
    request: Query,
    aggregation: Aggregation,
    names: tuple[str, ...],
    read_ts: Timestamp,
) -> QueryResult:
    """Return the groups in the requested order, by default in that of their keys."""
    columns = finished(combined([partial], aggregation), aggregation)
    if request.order:
        places = pa.array(order_places(columns, request.order))
        columns = {name: column.take(places) for name, column in columns.items()}
    fields = {name: columns[name].slice(request.offset, request.limit) for name in names}
    return QueryResult(fields, names, (), request.collection.view.schema, read_ts)


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
    consistency = ReadConsistency(ConsistencyLevel.STRONG)
    bound = cached.plans.filter(text, values)
    partitions = read_partitions(cached, (partition,) if partition else (), bound)
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
            f"{key} > {{{_LAST_KEY}}} and ({text})", {**values, _LAST_KEY: keys[-1].as_py()}
        )


def _key_array(schema: CollectionSchema, ids: object) -> pa.Array:
    field = schema.primary_field
    try:
        return pa.array(ids, field.arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidParameter(
            f"ids do not fit the primary key {field.name} of type {field.data_type.name}: {error}"
        ) from error
