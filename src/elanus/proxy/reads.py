"""Search and query through the proxy (the search's way).

A read runs in its gRPC thread from end to end. It fixes one read timestamp before it asks anybody: what
its consistency level demands, or the lowest service time where that is newer. A read that has to wait
asks for a tick instead of waiting for one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.consistency import (
    ConsistencyLevel,
    ReadConsistency,
    check_moment,
    guarantee_timestamp,
    needs_fresh_timestamp,
)
from elanus.core.errors import FieldNotFound, InvalidFilter, InvalidParameter, PartitionNotFound
from elanus.core.ids import CollectionID, PartitionID
from elanus.core.reduce import PrimaryKeys
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.expr import BoundFilter
from elanus.proxy.api import Query, QueryResult, Search, SearchResult
from elanus.proxy.cache import CachedCollection
from elanus.proxy.measures import Measures
from elanus.proxy.outputs import COUNT, asks_for_count
from elanus.proxy.patience import Patience
from elanus.proxy.queues import DqQueue
from elanus.proxy.stamps import Stamps
from elanus.rpc.querynode import NodeHits, NodeQuery, NodeSearch


class Nodes(Protocol):
    """The query nodes as one: a node in this process, or many over query channels. Lives with its proxy.

    Its reads are those of `elanus.rpc.querynode.QueryNodeReads`, and raise what they do; besides
    `DeadlineExceeded` when the ``patience`` is over.
    """

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def forget(self, collection_id: CollectionID) -> None:
        """What was known of where the collection is read is no longer so."""
        ...

    def service_time(self, collection_id: CollectionID) -> Timestamp:
        """What is known to be served; 0: nothing yet."""
        ...

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, patience: Patience) -> None:
        """Returns when a read as of ``ts`` may be asked for, and `service_time` is known. Nodes over channels
        wait for ``ts`` by themselves, when the read has come to them."""
        ...

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits: ...
    def query(self, request: NodeQuery, patience: Patience) -> Mapping[str, pa.Array]: ...
    def count(self, request: NodeQuery, patience: Patience) -> int: ...


class Reader:
    """``ask_tick`` asks for ticks without waiting. ``now_s``: the clock that reads wait by."""

    def __init__(
        self,
        nodes: Nodes,
        queue: DqQueue,
        stamps: Stamps,
        ask_tick: Callable[[tuple[str, ...], Timestamp], None],
        measures: Measures,
        *,
        graceful_time_ms: int,
        retention_s: float,
        timeout_s: float,
        now_s: Callable[[], float],
    ) -> None:
        self._nodes = nodes
        self._queue = queue
        self._stamps = stamps
        self._ask_tick = ask_tick
        self._measures = measures
        self._graceful_time_ms = graceful_time_ms
        self._retention_s = retention_s
        self._timeout_s = timeout_s
        self._now_s = now_s

    def search(self, cached: CachedCollection, request: Search) -> SearchResult:
        with self._queue.slot(), self._patience(request.timeout_s) as patience:
            _check_collection(cached, request.collection_id)
            schema = cached.view.schema
            field = _vector_field(schema, request.vector_field)
            outputs = cached.plans.outputs(request.output_fields, with_key=False)
            partitions = _partition_ids(cached, request.partitions)
            bound = _planned(cached, request.filter, request.filter_values)
            read_ts = self._read_timestamp(cached, request.consistency, patience)
            metric = _checked_metric(cached, field, request.metric_type)
            hits = self._nodes.search(
                NodeSearch(
                    collection_id=cached.collection_id,
                    partition_ids=partitions,
                    field_id=field.field_id,
                    queries=request.queries,
                    k=request.offset + request.limit,
                    metric_type=metric,
                    params=request.params,
                    filter=bound,
                    output_fields=outputs.columns,
                    read_ts=read_ts,
                    ignore_growing=request.ignore_growing,
                ),
                patience,
            )
        self._measures.searched(len(request.queries))
        offsets, ids, scores, fields = _without_first(hits, request.offset)
        if request.round_decimal >= 0:
            scores = np.round(scores, request.round_decimal)
        return SearchResult(offsets, ids, scores, fields, outputs.names, outputs.dynamic, schema, read_ts)

    def query(self, cached: CachedCollection, request: Query) -> QueryResult:
        with self._queue.slot(), self._patience(request.timeout_s) as patience:
            _check_collection(cached, request.collection_id)
            schema = cached.view.schema
            counting = asks_for_count(request.output_fields)
            outputs = cached.plans.outputs(() if counting else request.output_fields, with_key=True)
            partitions = _partition_ids(cached, request.partitions)
            bound = _planned(cached, request.filter, request.filter_values)
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
            wanted = NodeQuery(
                collection_id=cached.collection_id,
                partition_ids=partitions,
                filter=bound,
                primary_keys=None if request.ids is None else _key_array(schema, request.ids),
                output_fields=outputs.columns,
                limit=None if request.limit is None else request.offset + request.limit,
                read_ts=self._read_timestamp(cached, request.consistency, patience),
                ignore_growing=request.ignore_growing,
            )
            if counting:
                count = pa.array([self._nodes.count(wanted, patience)], pa.int64())
                return QueryResult({COUNT: count}, (COUNT,), (), schema, wanted.read_ts)
            rows = self._nodes.query(wanted, patience)
        fields = {name: column.slice(request.offset) for name, column in rows.items()}
        return QueryResult(fields, outputs.names, outputs.dynamic, schema, wanted.read_ts)

    def matching_keys(
        self, cached: CachedCollection, text: str, values: Mapping[str, object], partition: str
    ) -> pa.Array:
        """Primary keys of the rows a filter matches now, with every acknowledged write seen."""
        key = cached.view.schema.primary_field.name
        consistency = ReadConsistency(ConsistencyLevel.STRONG)
        with self._queue.slot(), self._patience(None) as patience:
            rows = self._nodes.query(
                NodeQuery(
                    collection_id=cached.collection_id,
                    partition_ids=_partition_ids(cached, (partition,) if partition else ()),
                    filter=cached.plans.filter(text, values),
                    primary_keys=None,
                    output_fields=(key,),
                    limit=None,
                    read_ts=self._read_timestamp(cached, consistency, patience),
                ),
                patience,
            )
        return rows[key]

    @contextlib.contextmanager
    def _patience(self, timeout_s: float | None) -> Iterator[Patience]:
        """That of one read, whose client waits for ``timeout_s``. What it has waited is measured."""
        longest_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        patience = Patience(longest_s, self._now_s)
        try:
            yield patience
        finally:
            if patience.waited_s:
                self._measures.waited_for_guarantee(patience.waited_s)

    def _read_timestamp(
        self, cached: CachedCollection, consistency: ReadConsistency, patience: Patience
    ) -> Timestamp:
        """The one moment a read is answered at; returns when it may be asked for.

        Raises `CollectionNotLoaded`, `DeadlineExceeded`, and what `check_moment` raises for a pinned one.
        """
        served = self._nodes.service_time(cached.collection_id)
        level = cached.view.consistency_level
        fresh = needs_fresh_timestamp(consistency, level)
        now = self._stamps.now() if fresh else self._stamps.about_now()
        if consistency.moment is not None:
            check_moment(consistency.moment, cached.view.created, now, self._retention_s)
        guarantee = guarantee_timestamp(consistency, level, now, self._graceful_time_ms)
        if served >= guarantee:
            return served if consistency.moment is None else guarantee
        self._ask_tick(cached.view.pchannels, guarantee)
        self._nodes.wait_service_time(cached.collection_id, guarantee, patience)
        if consistency.moment is not None:
            return guarantee
        # A load may have been waited for: then what is served by now is what a weak guarantee gets.
        return max(guarantee, min(self._nodes.service_time(cached.collection_id), now))


def _check_collection(cached: CachedCollection, expected: CollectionID | None) -> None:
    """Raises `InvalidParameter` when the name means another collection than for the pages before."""
    if expected not in (None, cached.collection_id):
        raise InvalidParameter(
            f"alias or database may have been changed: {cached.view.name} is not the collection {expected} "
            "that this iterator began with"
        )


def _vector_field(schema: CollectionSchema, name: str) -> FieldSchema:
    if name:
        field = schema.by_name.get(name)
        if field is None or not field.data_type.is_vector:
            raise FieldNotFound(f"failed to get field schema by name: fieldName({name}) not found")
        return field
    if len(schema.vector_fields) > 1:
        names = ", ".join(f.name for f in schema.vector_fields)
        raise InvalidParameter(
            f"multiple anns_fields exist ({names}), please specify a anns_field in search_params"
        )
    return schema.vector_fields[0]


def _checked_metric(cached: CachedCollection, field: FieldSchema, requested: str) -> str:
    """The index's metric. A request may name it, and must then name the same."""
    metric = str(cached.index_spec(field).metric_type)
    if requested and requested.upper() != metric:
        raise InvalidParameter(
            f"metric type not match: invalid parameter[expected={metric}][actual={requested}]"
        )
    return metric


def _partition_ids(cached: CachedCollection, names: tuple[str, ...]) -> tuple[PartitionID, ...]:
    """Raises `PartitionNotFound`, in the reference's words for reads."""
    for name in names:
        if name not in cached.partitions:
            raise PartitionNotFound(f"partition name {name} not found")
    return tuple(dict.fromkeys(cached.partitions[name] for name in names))


def _planned(cached: CachedCollection, text: str, values: Mapping[str, object]) -> BoundFilter:
    """Raises `InvalidFilter`, which says what the filter was for."""
    try:
        return cached.plans.filter(text, values)
    except InvalidFilter as error:
        told = f"failed to create query plan: {error.message}"
        raise InvalidFilter(told, error.position) from error


def _key_array(schema: CollectionSchema, ids: object) -> pa.Array:
    field = schema.primary_field
    try:
        return pa.array(ids, field.arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidParameter(
            f"ids do not fit the primary key {field.name} of type {field.data_type.name}: {error}"
        ) from error


def _without_first(
    hits: NodeHits, offset: int
) -> tuple[npt.NDArray[np.int64], PrimaryKeys, npt.NDArray[np.float32], Mapping[str, pa.Array]]:
    """The hits of each query without its first ``offset`` ones."""
    if offset == 0:
        return hits.offsets, hits.ids, hits.scores, hits.fields
    counts = np.diff(hits.offsets)
    rank = np.arange(len(hits.scores)) - np.repeat(hits.offsets[:-1], counts)
    kept = np.flatnonzero(rank >= offset)
    offsets = np.concatenate(([0], np.cumsum(np.maximum(counts - offset, 0))))
    return offsets, hits.ids.take(kept), hits.scores[kept], {n: c.take(kept) for n, c in hits.fields.items()}
