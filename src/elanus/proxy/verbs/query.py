"""The query verb: rows by filter or key, their number, and aggregates over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from elanus.api.querynode import NodeQuery
from elanus.core.aggregation import Aggregation, combined, finished
from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.errors import InvalidParameter
from elanus.core.ids import PartitionID
from elanus.core.ordering import order_places
from elanus.core.rate_limits import Rate
from elanus.core.requests import check_columns_size, check_query_window
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp
from elanus.core.trail import step
from elanus.expr import BoundFilter
from elanus.proxy.api.query import Query, QueryResult
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.named_partitions import read_partitions
from elanus.proxy.role.outputs import COUNT, Outputs, asks_for_count
from elanus.proxy.role.read_path import ReadPath, check_same_collection, plan_filter
from elanus.proxy.verbs.aggregates import aggregation_of
from elanus.proxy.verbs.elements import chosen_elements, columns_read, elements_before
from elanus.proxy.verbs.family import VerbFamily
from elanus.proxy.verbs.noting import note_answer, note_read

_LAST_KEY = "elanus_last_key"
"""The name of a value in filters of this module."""


class Querying(VerbFamily):
    def query(self, request: Query) -> QueryResult:
        reads, cached = self._proxy.reads, request.collection
        self._proxy.admission.read(cached, Rate.QUERY, 1)
        step("plan")
        with reads.begin(request.timeout_s) as patience:
            check_same_collection(cached, request.collection_id)
            plan = _planned(request)
            step("fix the timestamp")
            read_ts = reads.read_timestamp(cached, request.consistency, patience)
            note_read(cached, request.consistency, read_ts, plan.filter)
            step("query on query nodes")
            wanted = self._node_query(request, plan, read_ts)
            if plan.counts:
                count = pa.array([reads.nodes.count(wanted, patience)], pa.int64())
                return QueryResult({COUNT: count}, (COUNT,), (), cached.view.schema, read_ts)
            with plan.outputs.naming_keys():
                rows = reads.nodes.query(wanted, patience)
        step("cut and encode the answer")
        if plan.aggregation is not None:
            return _groups(rows, request, plan.aggregation, plan.names, read_ts)
        return self._window_of(rows, request, plan, read_ts)

    def _node_query(self, request: Query, plan: _Plan, read_ts: Timestamp) -> NodeQuery:
        """Return what the query nodes are asked for."""
        cached = request.collection
        more = 0 if request.after is None else 1  # of the first row, no element may be left
        ids = request.ids
        return NodeQuery(
            collection_id=cached.collection_id,
            partition_ids=plan.partitions,
            filter=plan.filter,
            primary_keys=None if ids is None else _key_array(cached.view.schema, ids),
            output_fields=tuple(dict.fromkeys((*plan.outputs.columns, *plan.extra))),
            limit=None if request.limit is None else request.offset + request.limit + more,
            read_ts=read_ts,
            ignore_growing=request.ignore_growing,
            answer_bytes_max=self._proxy.limits.answer_bytes_max,
            expired_until=cached.expired_until(read_ts),
            order=request.order if plan.returns_rows else (),
            aggregation=plan.aggregation,
            spared_fields=plan.outputs.spared_unless(plan.extra),
        )

    def _window_of(
        self, rows: Mapping[str, pa.Array], request: Query, plan: _Plan, read_ts: Timestamp
    ) -> QueryResult:
        """Return the rows of the requested window, or their elements that match."""
        schema = request.collection.view.schema
        key = schema.primary_field.name
        outputs = plan.outputs.found_in(rows)
        columns = {name: column for name, column in rows.items() if name in outputs.columns}
        elements = None
        if plan.filter.element_filter is None:
            fields = {name: column.slice(request.offset) for name, column in columns.items()}
        else:
            skipped = None if request.after is None else elements_before(request.after, rows[key])
            chosen = chosen_elements(plan.filter, rows, request.limit, request.offset, skipped)
            elements, kept = chosen.elements, pa.array(chosen.rows)
            fields = {name: column.take(kept) for name, column in columns.items()}
        check_columns_size(len(fields[key]), fields.values(), self._proxy.limits.answer_bytes_max)
        note_answer("{} rows", len(fields[key]))
        return QueryResult(fields, outputs.names, outputs.dynamic, schema, read_ts, elements)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A query as its moment does not matter to it. ``names``: of an aggregation's outputs; ``extra``: the
    columns that are read to order rows or to find elements.
    """

    filter: BoundFilter
    partitions: tuple[PartitionID, ...]
    outputs: Outputs
    counts: bool
    aggregation: Aggregation | None
    names: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def returns_rows(self) -> bool:
        return not self.counts and self.aggregation is None


def _planned(request: Query) -> _Plan:
    """Raises `InvalidParameter` for a query that makes no sense."""
    cached = request.collection
    check_query_window(request.limit, request.offset, cached.window_rows_max)
    counts = asks_for_count(request.output_fields) and not request.group_by
    schema = cached.view.schema
    grouped = (
        None if counts else aggregation_of(schema, request.output_fields, request.group_by, request.order)
    )
    aggregation, names = grouped or (None, ())
    returns_rows = not counts and aggregation is None
    outputs = cached.plans.outputs(request.output_fields if returns_rows else (), with_key=True)
    bound = plan_filter(cached, request.filter, request.filter_values)
    partitions = read_partitions(cached, request.partitions, bound)
    # A filter that turns out to match all rows, as one with an empty list can, is still what was asked for.
    if not request.filter.strip() and request.ids is None and request.limit is None and returns_rows:
        raise InvalidParameter(
            "empty expression should be used with limit: invalid parameter: give a filter, ids or a limit"
        )
    if counts and request.limit is not None:
        raise InvalidParameter(
            "count entities with pagination is not allowed: invalid parameter: leave limit and offset out"
        )
    extra = (*(by.field for by in request.order), *columns_read(bound)) if returns_rows else ()
    return _Plan(bound, partitions, outputs, counts, aggregation, names, extra)


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
