"""Full-text search at the proxy: a query's terms get their weights before the nodes rank rows.

The weights depend on all rows that the read sees, on whatever nodes they are. The proxy asks for their
statistics first, as of the timestamp of the search.
"""

from __future__ import annotations

from dataclasses import replace

from elanus.api.querynode import NodeSearch, NodeStatistics
from elanus.core.errors import NotSupported
from elanus.core.schema import FieldSchema
from elanus.core.sparse import PAIR
from elanus.index import query_of, weighted
from elanus.index.bm25 import AVERAGE_KEY, B_KEY, K1_KEY
from elanus.proxy.fanout.deadline import Patience
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.proxy import Proxy


def ranked_by_bm25(
    proxy: Proxy, cached: CachedCollection, field: FieldSchema, draft: NodeSearch, patience: Patience
) -> NodeSearch:
    """Return the search with the weights of its terms.

    ``draft.queries``: how often each term occurs, uint64 (nq, pairs). Raises what a read raises, and
    `NotSupported` for a search with the texts of rows.
    """
    queries = draft.queries
    if queries.dtype != PAIR:
        raise NotSupported(
            f"a search by ids on the output of a function (field {field.name}) is not supported: "
            "send the texts"
        )
    queries = queries.astype(PAIR, copy=False)
    terms = query_of(queries)
    statistics = proxy.reads.nodes.statistics(
        NodeStatistics(draft.collection_id, field.field_id, terms, draft.read_ts, draft.expired_until),
        patience,
    )
    own = cached.index_spec(field).params
    params = {**draft.params, K1_KEY: own[K1_KEY], B_KEY: own[B_KEY], AVERAGE_KEY: statistics.average}
    return replace(draft, queries=weighted(queries, terms, statistics, own[K1_KEY]), params=params)
