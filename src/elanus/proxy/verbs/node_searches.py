"""From a requested search to the one that query nodes execute, common to searches and hybrid searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from elanus.api.boosts import Boost, Boosts
from elanus.api.querynode import NodeQuery, NodeSearch
from elanus.core.errors import FieldNotFound, InvalidParameter
from elanus.core.function_chains import Chains
from elanus.core.grouping import Grouping, check_group_size, grouping_fields
from elanus.core.metrics import Metric
from elanus.core.requests import check_hits, check_query_count, check_search_window, search_field
from elanus.core.schema import DataType, FieldSchema, Scalar
from elanus.core.segment_filter import with_default_ratio
from elanus.core.sparse import padded
from elanus.core.target_recall import with_default_target
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.types import Matrix
from elanus.core.vector_lists import is_packed
from elanus.core.vectors import VectorForm
from elanus.expr.filter_cache import KEPT_MAX_CHARS
from elanus.expr.partition_key import check_isolated
from elanus.index.search_params import RANGE_PARAMS
from elanus.proxy.api.search import BoostRequests, Search
from elanus.proxy.fanout.deadline import Patience
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.named_partitions import read_partitions
from elanus.proxy.role.proxy import Proxy
from elanus.proxy.role.read_path import plan_filter
from elanus.proxy.verbs.text_search import ranked_by_bm25

_OF_LISTS = "not supported for multi-search-multi on embedding list fields"
_TIMED_QUERIES_MIN = 32
"""A search of fewer vectors does not look at the client's deadline while it runs."""
_ROWS_HAVE_NO_ELEMENTS = (
    "element_filter is only supported for element-level search on vector sub-fields of the same struct "
    "array; use MATCH_ANY/MATCH_* for row-level vector search"
)


@dataclass(frozen=True, slots=True)
class Planned:
    """A search that is checked, but not yet tied to a moment.

    ``draft`` lacks metric and timestamps, and vectors that are given as texts or keys.
    """

    request: Search
    field: FieldSchema
    draft: NodeSearch

    @property
    def hits_max(self) -> int:
        return self.request.query_count * hits_per_query(self.draft.k, self.draft.grouping)

    @property
    def is_repeatable(self) -> bool:
        """Whether the searches of a template may share it: no filter takes a sample for each, or is large."""
        asked = self.request.template
        is_small = not asked.filter_values and len(asked.filter) <= KEPT_MAX_CHARS
        return is_small and not self.draft.filter.is_random and self.draft.boosts is None


@dataclass(frozen=True, slots=True)
class AsOf:
    """A search as of a moment, as query nodes execute it.

    ``silent``: (queries,), which of its vectors stand in for one that a row lacks; None: none of them. Such
    a query finds nothing, whatever the nodes answer.
    """

    search: NodeSearch
    silent: npt.NDArray[np.bool_] | None = None


def planned(
    proxy: Proxy,
    cached: CachedCollection,
    request: Search,
    partitions: tuple[str, ...],
    columns: Sequence[str],
    grouping: Grouping | None,
    spared: tuple[str, ...] = (),
) -> Planned:
    """``partitions``: the names that the client gave. ``columns``: the stored columns that are wanted with
    the hits. ``spared``: those that hits lack if they are not loaded.

    Raises what an unusable search raises, but nothing about loads and indexes.
    """
    schema, asked = cached.view.schema, request.template
    field = search_field(schema, asked.vector_field)
    check_search_window(asked.limit, asked.offset, cached.window_rows_max)
    k = asked.offset + asked.limit
    limits = proxy.limits
    check_size(proxy, request, k, grouping)
    if grouping is not None:
        check_grouping(cached, request, grouping)
    bound = plan_filter(cached, asked.filter, asked.filter_values)
    if bound.element_filter is not None and not bound.restricts_elements(field.name):
        raise InvalidParameter(_ROWS_HAVE_NO_ELEMENTS)
    partition_ids = read_partitions(cached, partitions, bound)
    key = schema.partition_key
    if key is not None and cached.isolates_keys:
        check_isolated(bound.predicate, key.name)
    draft = NodeSearch(
        collection_id=cached.collection_id,
        partition_ids=partition_ids,
        field_id=field.field_id,
        queries=request.queries,
        k=k,
        metric_type="",
        params=_with_defaults(asked.params, cached, limits.segment_filter_ratio),
        filter=bound,
        output_fields=tuple(columns),
        read_ts=NO_TIMESTAMP,
        ignore_growing=asked.ignore_growing,
        answer_bytes_max=limits.answer_bytes_max,
        grouping=grouping,
        candidates_max=limits.search_hits_max,
        boosts=_compiled(cached, asked.boosts, asked.filter_values),
        chains=_of_nodes(asked.chains),
        spared_fields=spared,
    )
    return Planned(request, field, draft)


def _with_defaults(
    params: Mapping[str, Scalar], cached: CachedCollection, segment_filter_ratio: float
) -> Mapping[str, Scalar]:
    """Return the parameters with those that the collection or the server sets for searches that do not."""
    properties = cached.view.properties
    return with_default_ratio(with_default_target(params, properties), properties, segment_filter_ratio)


def as_of(
    proxy: Proxy, cached: CachedCollection, plan: Planned, read_ts: Timestamp, patience: Patience
) -> AsOf:
    """Return the search as of a moment, with the index's metric and the vectors that nodes compare.

    Terms of texts get their weights, texts and keys of rows become vectors. Raises `IndexNotFound`, and
    `InvalidParameter` for another metric than the index's.
    """
    metric = str(cached.index_spec(plan.field).metric_type)
    requested = plan.request.template.metric_type
    if requested and requested.upper() != metric:
        raise InvalidParameter(
            f"metric type not match: invalid parameter[expected={metric}][actual={requested}]"
        )
    timeout_s = plan.request.timeout_s
    if timeout_s is not None:
        is_timed = plan.request.query_count >= _TIMED_QUERIES_MIN or Metric(metric).takes_queries_singly
        timeout_s = max(0.0, timeout_s - patience.elapsed_s()) if is_timed else None
    draft = structs.replace(
        plan.draft,
        metric_type=metric,
        read_ts=read_ts,
        expired_until=cached.expired_until(read_ts),
        timeout_s=timeout_s,
    )
    if plan.field.has_vector_lists:
        _check_lists(plan, Metric(metric), cached.view.schema.primary_field.name)
    if metric == Metric.BM25:
        return AsOf(ranked_by_bm25(proxy, cached, plan.field, draft, patience))
    if plan.request.texts:
        return AsOf(replace(draft, queries=_embedded(proxy, cached, plan, patience)))
    if plan.request.query_ids is None:
        return AsOf(draft)
    vectors = _vectors_of(proxy, cached, plan, draft, patience)
    silent = vectors.is_null().to_numpy(zero_copy_only=False) if vectors.null_count else None
    return AsOf(replace(draft, queries=queries_of(plan.field.vector, vectors)), silent)


def queries_of(form: VectorForm, stored: pa.Array) -> Matrix:
    """Return stored vectors as those of a search; zeros, or no pairs, in place of nulls."""
    vectors = form.filled(stored)
    return form.compared(form.to_matrix(vectors)) if form.has_dim else padded(vectors.to_pylist())


def _check_lists(plan: Planned, metric: Metric, key: str) -> None:
    """Check what a search of lists of vectors cannot do. ``key``: the primary key.

    Raises `InvalidParameter`.
    """
    request, name = plan.request, plan.field.name
    if request.query_ids is not None:
        raise InvalidParameter(
            f"a search by primary keys is not supported on field {name} of a struct array: send vectors"
        )
    are_lists = is_packed(request.queries)
    if are_lists and not metric.compares_lists:
        raise InvalidParameter(
            f"field {name} has an index with metric {metric}, which compares single vectors: search with a "
            f"vector, or create the index with metric MAX_SIM_{metric} to search with an embedding list"
        )
    if not metric.compares_lists:
        if plan.draft.grouping is not None and plan.draft.grouping.fields != (key,):
            raise InvalidParameter(
                f"only group by primary key is supported for element-level search: group by {key}"
            )
        return
    if not are_lists:
        raise InvalidParameter(
            f"field {name} has an index with metric {metric}, which compares lists of vectors: search with "
            f"an embedding list, or create the index with metric {metric.of_vectors} to search single vectors"
        )
    if RANGE_PARAMS & request.template.params.keys():
        raise InvalidParameter(f"range search is {_OF_LISTS}: field {name}")
    if request.iterates:
        raise InvalidParameter(f"search iterator is {_OF_LISTS}: field {name}")
    if plan.draft.grouping is not None:
        raise InvalidParameter(f"group by is {_OF_LISTS}: field {name}")
    if plan.draft.filter.element_filter is not None:
        raise InvalidParameter(_ROWS_HAVE_NO_ELEMENTS)


def _embedded(proxy: Proxy, cached: CachedCollection, plan: Planned, patience: Patience) -> Matrix:
    """Raises what `elanus.proxy.embedding.Embedder` raises."""
    schema = cached.view.schema
    function = next(f for f in schema.stored_functions if f.output == plan.field.name)
    return proxy.embedder.of_queries(schema, function, plan.request.texts, patience.left_s())


def check_size(proxy: Proxy, request: Search, k: int, grouping: Grouping | None) -> None:
    """Raises `InvalidParameter` for more queries, or more hits, than a search may have."""
    check_query_count(request.query_count)
    check_hits(request.query_count, hits_per_query(k, grouping), proxy.limits.search_hits_max)


def hits_per_query(k: int, grouping: Grouping | None) -> int:
    return k if grouping is None else k * grouping.size


def check_grouping(cached: CachedCollection, request: Search, grouping: Grouping) -> None:
    """Raises `InvalidParameter`, `FieldNotFound` or `NotSupported`, with the reference's texts."""
    if not request.template.levels:
        check_group_size(grouping.size)
    grouping_fields(cached.view.schema, grouping.fields, grouping.inside)
    if request.iterates:
        raise InvalidParameter("Not allowed to do groupBy when doing iteration")
    searched = search_field(cached.view.schema, request.template.vector_field)
    if searched.data_type is DataType.BINARY_VECTOR:
        raise InvalidParameter(
            f"not support search_group_by operation based on binary vector column: field {searched.name}"
        )
    if RANGE_PARAMS & request.template.params.keys():
        raise InvalidParameter("Not allowed to do range-search when doing search-group-by")


def _of_nodes(chains: Chains | None) -> Chains | None:
    """Return the chains that run on query nodes; None: there are none."""
    if chains is None or (chains.segment is None and chains.node is None):
        return None
    return replace(chains, proxy=None)


def _compiled(
    cached: CachedCollection, boosts: BoostRequests | None, values: Mapping[str, object]
) -> Boosts | None:
    """``values``: of the placeholders in the filters.

    Raises `InvalidFilter`, `FieldNotFound`, `InvalidParameter`.
    """
    if boosts is None:
        return None
    for boost in boosts.functions:
        if boost.random_field:
            field = cached.view.schema.by_name.get(boost.random_field)
            if field is None:
                raise FieldNotFound(
                    f"random seed field not found: field not found[field={boost.random_field}]"
                )
            if field.data_type is not DataType.INT64:
                raise InvalidParameter(
                    f"only support int64 field as random seed, but got {field.data_type.name}"
                )
    functions = tuple(
        Boost(plan_filter(cached, b.filter, values), b.weight, b.is_random, b.seed, b.random_field)
        for b in boosts.functions
    )
    return Boosts(functions, boosts.boost_mode, boosts.function_mode)


def _vectors_of(
    proxy: Proxy, cached: CachedCollection, plan: Planned, draft: NodeSearch, patience: Patience
) -> pa.Array:
    """Return the vectors of the rows that the client named, as of the moment of the search.

    They are null for rows that have none. Raises `InvalidParameter` for a key without a row.
    """
    ids, field = plan.request.query_ids, plan.field
    assert ids is not None
    key = cached.view.schema.primary_field.name
    rows = proxy.reads.nodes.query(
        NodeQuery(
            collection_id=draft.collection_id,
            partition_ids=() if cached.key_partitions else draft.partition_ids,
            filter=plan_filter(cached, "", {}),
            primary_keys=ids.unique(),
            output_fields=(field.name,),
            limit=None,
            read_ts=draft.read_ts,
            ignore_growing=draft.ignore_growing,
            answer_bytes_max=draft.answer_bytes_max,
            expired_until=draft.expired_until,
        ),
        patience,
    )
    places = pc.index_in(ids, rows[key])
    if places.null_count:
        missing = ids.filter(places.is_null()).slice(0, 10).to_pylist()
        raise InvalidParameter(
            f"no rows with the primary keys {missing} to search with: the collection has none, "
            "or not in these partitions"
        )
    return rows[field.name].take(places)
