"""Search on a query node: rows are ranked (`elanus.querynode.ranking`), their columns fetched."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from elanus.api.querynode import NodeHits, NodeSearch
from elanus.core.errors import IndexNotFound, InvalidParameter
from elanus.core.requests import check_vectors_size
from elanus.core.structs import ELEMENT
from elanus.core.trail import step
from elanus.expr.identity_cache import IdentityCache
from elanus.index import IndexSpec, SearchParams, resolve_search
from elanus.querynode.chaining import chained_hits
from elanus.querynode.grouped_search import grouped
from elanus.querynode.query_slices import SearchDeadline
from elanus.querynode.ranking import Ranking
from elanus.querynode.snapshot import Snapshot
from elanus.rpc.serving.waiting import client_of_thread

_resolved: IdentityCache[Mapping[str, object], tuple[IndexSpec, int, SearchParams]] = IdentityCache(256)
"""The parameters of recent searches, by those that were sent, for an index and a number of hits."""


def search(snapshot: Snapshot, request: NodeSearch, threads: int) -> NodeHits:
    """Answer a search from a snapshot. ``threads``: cores that a long search may use.

    Raises `IndexNotFound`, `InvalidParameter`, `InvalidDimension`, `PartitionNotLoaded`, `FieldNotLoaded`,
    `Unavailable`.
    """
    request = snapshot.unloaded.search(request)
    spec = _spec(snapshot, request)
    params = _params(spec, request)
    blocks = snapshot.blocks(
        request.read_ts, request.partition_ids, request.ignore_growing, request.expired_until
    )
    deadline = SearchDeadline(request.timeout_s, client_of_thread())
    ranking = Ranking(request, spec, params, threads, deadline)
    step("rank rows")
    found = ranking.rank(blocks) if request.grouping is None else grouped(ranking, blocks, snapshot.schema)
    schema = snapshot.schema
    if request.chains is not None and request.chains.node is not None:
        found = chained_hits(found, request.chains.node, spec.metric_type, schema)
    step("fetch output fields")
    fields = [schema.field(name) for name in request.output_fields]
    check_vectors_size(len(found.scores), fields, request.answer_bytes_max)
    columns = {field.name: found.column(field) for field in fields}
    if schema.by_id[request.field_id].has_vector_lists and not spec.metric_type.compares_lists:
        no_elements = np.empty(0, dtype=np.int64)  # of no hits at all
        columns[ELEMENT] = pa.array(no_elements if found.elements is None else found.elements)
    return NodeHits(
        metric_type=str(spec.metric_type),
        offsets=found.offsets,
        ids=found.ids(schema.primary_field),
        scores=found.scores,
        fields=columns,
    )


def _params(spec: IndexSpec, request: NodeSearch) -> SearchParams:
    """Return the parameters of the search. Repetitions of a search have the same object for those sent."""
    known = _resolved.get(request.params)
    if known is not None and known[0] is spec and known[1] == request.k:
        return known[2]
    params = resolve_search(spec, request.params, request.k)
    _resolved.put(request.params, (spec, request.k, params))
    return params


def _spec(snapshot: Snapshot, request: NodeSearch) -> IndexSpec:
    spec = snapshot.specs.get(request.field_id)
    if spec is None:
        name = snapshot.schema.by_id[request.field_id].name
        raise IndexNotFound(
            f"field {name} is not loaded: it had no index when collection {snapshot.schema.name} was loaded: "
            "create an index, then release and load the collection"
        )
    if request.metric_type and request.metric_type != spec.metric_type:
        raise InvalidParameter(
            f"metric type not match: invalid parameter[expected={spec.metric_type}]"
            f"[actual={request.metric_type}]"
        )
    return spec
