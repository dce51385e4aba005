"""The search verb: the nearest rows of each query vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.api.querynode import NodeHits, NodeSearch
from elanus.core.errors import InvalidParameter
from elanus.core.metrics import Metric
from elanus.core.reduce import PrimaryKeys
from elanus.core.requests import (
    check_answer_size,
    check_hits,
    check_query_count,
    check_round_decimal,
    check_search_window,
    search_field,
)
from elanus.core.schema import FieldSchema
from elanus.proxy.api import Search, SearchResult
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.read_path import check_same_collection, plan_filter, read_partitions
from elanus.proxy.verbs.family import Verbs


class Searching(Verbs):
    def search(self, request: Search) -> SearchResult:
        proxy, cached = self._proxy, request.collection
        reads = proxy.reads
        with reads.begin(request.timeout_s) as patience:
            check_same_collection(cached, request.collection_id)
            schema = cached.view.schema
            field = search_field(schema, request.vector_field)
            check_search_window(request.limit, request.offset)
            check_round_decimal(request.round_decimal)
            check_query_count(len(request.queries))
            check_hits(len(request.queries), request.offset + request.limit, proxy.limits.search_hits_max)
            outputs = cached.plans.outputs(request.output_fields, with_key=False)
            partitions = read_partitions(cached, request.partitions)
            bound = plan_filter(cached, request.filter, request.filter_values)
            read_ts = reads.read_timestamp(cached, request.consistency, patience)
            metric = _checked_metric(cached, field, request.metric_type)
            wanted = NodeSearch(
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
                answer_bytes_max=proxy.limits.answer_bytes_max,
                expired_until=cached.expired_until(read_ts),
            )
            if request.page is None:
                hits, page_end = reads.nodes.search(wanted, patience), None
            else:
                hits, page_end = reads.pages.page(
                    request.page,
                    Metric(metric),
                    request.params,
                    lambda k, params: reads.nodes.search(replace(wanted, k=k, params=params), patience),
                )
        size_bytes = sum(column.nbytes for column in hits.fields.values())
        check_answer_size(len(hits.scores), size_bytes, proxy.limits.answer_bytes_max)
        proxy.measures.searched(len(request.queries))
        offsets, ids, scores, fields = _without_first(hits, request.offset)
        if request.round_decimal >= 0:
            scores = np.round(scores, request.round_decimal)
        return SearchResult(
            offsets, ids, scores, fields, outputs.names, outputs.dynamic, schema, read_ts, page_end
        )


def _checked_metric(cached: CachedCollection, field: FieldSchema, requested: str) -> str:
    """Return the index's metric. A request may name a metric, which must then be the same."""
    metric = str(cached.index_spec(field).metric_type)
    if requested and requested.upper() != metric:
        raise InvalidParameter(
            f"metric type not match: invalid parameter[expected={metric}][actual={requested}]"
        )
    return metric


def _without_first(
    hits: NodeHits, offset: int
) -> tuple[npt.NDArray[np.int64], PrimaryKeys, npt.NDArray[np.float32], Mapping[str, pa.Array]]:
    """Return the hits of each query without the first ``offset`` ones."""
    if offset == 0:
        return hits.offsets, hits.ids, hits.scores, hits.fields
    counts = np.diff(hits.offsets)
    rank = np.arange(len(hits.scores)) - np.repeat(hits.offsets[:-1], counts)
    kept = np.flatnonzero(rank >= offset)
    offsets = np.concatenate(([0], np.cumsum(np.maximum(counts - offset, 0))))
    return offsets, hits.ids.take(kept), hits.scores[kept], {n: c.take(kept) for n, c in hits.fields.items()}
