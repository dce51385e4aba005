"""The last steps of a search in the proxy: scores by rankers, windows, groups, and the order of hits.

Pure functions over the hits that the query nodes returned, merged to one answer. All of them touch as many
items as there are hits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.api.querynode import NodeHits
from elanus.core.errors import InvalidParameter
from elanus.core.function_chains import ID, Chain, run_chain
from elanus.core.fusion import RankedList, fuse
from elanus.core.grouping import Grouping, choose_groups, group_codes
from elanus.core.metrics import Metric
from elanus.core.ordering import OrderBy, order_groups_within, order_within
from elanus.core.rankers import Decay, Ranker
from elanus.core.reduce import comparable_keys, joined, keys_of_elements
from elanus.core.schema import CollectionSchema
from elanus.core.structs import ELEMENT, struct_and_name

Places = npt.NDArray[np.int64]


def fused(parts: Sequence[NodeHits], ranker: Ranker) -> tuple[NodeHits, bool]:
    """Return one ranked list of all hits, and whether its larger scores are better.

    The parts have the same queries and fields. A row's columns are those of the first part that has it.
    """
    ids = joined([part.ids for part in parts])
    keys = comparable_keys(ids) if len(ids) else np.empty(0, dtype=np.int64)
    elements = [found for part in parts if (found := found_elements(part)) is not None]
    if elements and len(keys):
        keys = keys_of_elements(keys, np.concatenate(elements))
    ends = np.cumsum([len(part.scores) for part in parts])
    lists = [
        RankedList(part.offsets, own, part.scores, Metric(part.metric_type))
        for part, own in zip(parts, np.split(keys, ends[:-1]), strict=True)
    ]
    fields = {name: pa.concat_arrays([part.fields[name] for part in parts]) for name in parts[0].fields}
    factors = None
    if isinstance(ranker, Decay):
        values = fields[ranker.field].cast(pa.float64(), safe=False).fill_null(np.nan)
        factors = ranker.factors(values.to_numpy(zero_copy_only=False))
    result = fuse(lists, ranker, factors)
    places = pa.array(result.places)
    hits = NodeHits(
        parts[0].metric_type,
        result.offsets,
        ids.take(result.places),
        result.scores,
        {name: column.take(places) for name, column in fields.items()},
    )
    return hits, result.larger_is_better


def of_one_kind(parts: Sequence[NodeHits], fields: Sequence[str]) -> Sequence[NodeHits]:
    """Return the hits of several searches so that all are of rows, or all of elements of one struct array.

    ``fields``: the searched ones. Searches of single elements count by rows, the best element of each, unless
    all of them search the same struct array.
    """
    structs = {found[0] for name in fields if (found := struct_and_name(name)) is not None}
    if len(structs) == 1 and all(ELEMENT in part.fields for part in parts):
        return parts
    return [_of_rows(part) if ELEMENT in part.fields else part for part in parts]


def _of_rows(hits: NodeHits) -> NodeHits:
    """Return the best element of each row, which the row counts by."""
    keys = comparable_keys(hits.ids) if len(hits.ids) else np.empty(0, dtype=np.int64)
    query_of = np.repeat(np.arange(len(hits.offsets) - 1), np.diff(hits.offsets))
    _, first = np.unique(np.stack((query_of, keys), axis=1), axis=0, return_index=True)
    places = np.sort(first).astype(np.int64)  # hits are best first
    offsets = np.zeros(len(hits.offsets), dtype=np.int64)
    np.cumsum(np.bincount(query_of[places], minlength=len(offsets) - 1), out=offsets[1:])
    taken = _taken(hits, places, offsets)
    return replace(taken, fields={n: column for n, column in taken.fields.items() if n != ELEMENT})


def silenced(hits: NodeHits, queries: npt.NDArray[np.bool_] | None) -> NodeHits:
    """Return the hits without those of some queries. ``queries``: (queries,); None: none of them."""
    if queries is None:
        return hits
    counts = np.diff(hits.offsets)
    kept = np.flatnonzero(np.repeat(~queries, counts))
    offsets = np.concatenate(([0], np.cumsum(np.where(queries, 0, counts))))
    return _taken(hits, kept, offsets)


def window(hits: NodeHits, limit: int, offset: int) -> NodeHits:
    """Return ``limit`` hits of each query without the first ``offset`` ones."""
    if offset == 0 and len(hits.scores) <= limit:  # without looking at each query: so are most searches
        return hits
    counts = np.diff(hits.offsets)
    if offset == 0 and (counts <= limit).all():
        return hits
    rank = np.arange(len(hits.scores)) - np.repeat(hits.offsets[:-1], counts)
    kept = np.flatnonzero((rank >= offset) & (rank < offset + limit))
    offsets = np.concatenate(([0], np.cumsum(np.clip(counts - offset, 0, limit))))
    return _taken(hits, kept, offsets)


def groups_window(
    hits: NodeHits,
    grouping: Grouping,
    limit: int,
    offset: int,
    scorer: str = "max",
    *,
    larger_is_better: bool = True,
) -> NodeHits:
    """Return ``limit`` groups of each query without the first ``offset`` ones."""
    codes = group_codes(grouping.keys(hits.fields.__getitem__).values())
    chosen = choose_groups(
        hits.offsets,
        codes,
        grouping,
        limit,
        offset,
        hits.scores,
        scorer,
        larger_is_better=larger_is_better,
    )
    return _taken(hits, chosen.places, chosen.offsets)


def ordered(hits: NodeHits, order: Sequence[OrderBy], grouping: Grouping | None) -> NodeHits:
    """Return the hits of each query in the order of fields; groups in the order of their best hits."""
    if grouping is None:
        places = order_within(hits.offsets, hits.fields, order)
    else:
        codes = group_codes(grouping.keys(hits.fields.__getitem__).values())
        places = order_groups_within(hits.offsets, hits.fields, order, codes)
    return _taken(hits, places, hits.offsets)


def chained(hits: NodeHits, chain: Chain) -> NodeHits:
    """Return what a chain of the stage L2 leaves, with its scores and in its order."""
    left = run_chain(
        chain,
        hits.offsets,
        hits.scores,
        lambda name: pa.array(hits.ids) if name == ID else hits.fields[name],
    )
    return replace(_taken(hits, left.places, left.offsets), scores=left.scores)


def rounded(hits: NodeHits, decimals: int) -> NodeHits:
    """-1: the scores as they are."""
    return hits if decimals < 0 else replace(hits, scores=np.round(hits.scores, decimals))


def found_elements(hits: NodeHits) -> Places | None:
    """Return which element of its row each hit is, if single elements were searched."""
    column = hits.fields.get(ELEMENT)
    return None if column is None else column.to_numpy()


def check_decay_field(schema: CollectionSchema, ranker: Ranker | None) -> tuple[str, ...]:
    """Return the fields that a ranker reads. Raises `InvalidParameter` unless they are numbers."""
    if not isinstance(ranker, Decay):
        return ()
    field = schema.by_name.get(ranker.field)
    if field is None:
        raise InvalidParameter(
            f"input field {ranker.field} of the decay ranker not found in collection schema"
        )
    if not field.kind.family.is_number:
        raise InvalidParameter(
            f"Decay rerank: unsupported input field type:{field.kind.name}, "
            f"only support numberic field: field {ranker.field}"
        )
    return (ranker.field,)


def _taken(hits: NodeHits, places: Places, offsets: Places) -> NodeHits:
    taken = pa.array(places)
    return NodeHits(
        hits.metric_type,
        offsets,
        hits.ids.take(places),
        hits.scores[places],
        {name: column.take(taken) for name, column in hits.fields.items()},
    )
