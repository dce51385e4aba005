"""The global reduce: merges the results of several query nodes into one answer.

The rule is the same as inside a node (`elanus.core.reduce`), so the answer does not depend on how segments
are distributed. Each node has already reduced its own results: its hits are the best k with distinct keys
that it holds, its rows the newest of each key. That is enough here: the best row of a key is also the best
row that its node has for the key. Only the newest row of a key need not be among the first of its node in an
order (`elanus.proxy.fanout.first_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.api.querynode import NodeHits
from elanus.core.grouping import Grouping, choose_groups, group_codes
from elanus.core.metrics import Metric
from elanus.core.ordering import OrderBy, order_places
from elanus.core.reduce import comparable_keys, joined, keys_of_elements, merge, primary_keys
from elanus.core.schema import TIMESTAMP_FIELD
from elanus.core.structs import ELEMENT


def merge_hits(parts: Sequence[NodeHits], k: int) -> NodeHits:
    """Return the best ``k`` hits of each query over all parts (at least one), one per primary key."""
    if len(parts) == 1:
        return parts[0]
    candidates = _side_by_side(parts)
    ids = joined([part.ids for part in parts])
    keys = comparable_keys(ids)[candidates.places] if len(ids) else candidates.places
    if ELEMENT in parts[0].fields:
        elements = np.concatenate([part.fields[ELEMENT].to_numpy() for part in parts])
        keys = keys_of_elements(keys, elements[candidates.places]) if len(ids) else keys
    bigger = Metric(parts[0].metric_type).bigger_is_better
    merged = merge(candidates.scores, keys, k, larger_is_better=bigger, valid=candidates.valid)
    won = (np.repeat(np.arange(len(keys)), np.diff(merged.offsets)), merged.positions)
    winners = candidates.places[won]
    return NodeHits(
        metric_type=parts[0].metric_type,
        offsets=merged.offsets,
        ids=ids.take(winners),
        scores=candidates.scores[won],
        fields={
            name: pa.concat_arrays([part.fields[name] for part in parts]).take(winners)
            for name in parts[0].fields
        },
    )


def merge_groups(parts: Sequence[NodeHits], grouping: Grouping, groups: int) -> NodeHits:
    """Return the first ``groups`` groups of each query over all parts (at least one), group by group.

    A part has the hits of its own first groups, so all groups found are right. A node whose rows of a group
    are too far away to be among its first groups contributes none of them: such a group may be smaller than
    it would be on one node.
    """
    if len(parts) == 1:
        return parts[0]
    merged = merge_hits(parts, groups * grouping.size * len(parts))
    codes = group_codes(grouping.keys(merged.fields.__getitem__).values())
    chosen = choose_groups(merged.offsets, codes, grouping, groups)
    return NodeHits(
        merged.metric_type,
        chosen.offsets,
        merged.ids.take(chosen.places),
        merged.scores[chosen.places],
        {name: column.take(pa.array(chosen.places)) for name, column in merged.fields.items()},
    )


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Hits of all parts, one row per query. shape (nq, candidates).

    ``places``: each hit's index in the concatenated hits of all parts. ``valid`` None: all are valid.
    """

    scores: npt.NDArray[np.float32]
    places: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_] | None


def _side_by_side(parts: Sequence[NodeHits]) -> _Candidates:
    queries = len(parts[0].offsets) - 1
    counts = [np.diff(part.offsets) for part in parts]
    widths = [int(count.max(initial=0)) for count in counts]
    firsts = np.cumsum([0, *(len(part.scores) for part in parts)]).tolist()
    if all(queries * width == len(part.scores) for width, part in zip(widths, parts, strict=True)):
        scores = [part.scores.reshape(queries, -1) for part in parts]
        places = [np.arange(a, b).reshape(queries, -1) for a, b in pairwise(firsts)]
        return _Candidates(np.concatenate(scores, axis=1), np.concatenate(places, axis=1), None)
    starts = np.cumsum([0, *widths]).tolist()
    shape = (queries, starts[-1])
    valid = np.zeros(shape, np.bool_)
    found = _Candidates(np.zeros(shape, np.float32), np.zeros(shape, np.int64), valid)
    for n, (part, count, width) in enumerate(zip(parts, counts, widths, strict=True)):
        there = np.zeros(shape, np.bool_)
        there[:, starts[n] : starts[n + 1]] = np.arange(width) < count[:, None]
        valid |= there
        found.scores[there] = part.scores
        found.places[there] = np.arange(firsts[n], firsts[n + 1])
    return found


def merge_rows(
    parts: Sequence[Mapping[str, pa.Array]], key: str, limit: int | None, order: Sequence[OrderBy] = ()
) -> dict[str, pa.Array]:
    """Return the newest row of each primary key ``key``, the first ``limit`` in key order, or in ``order``.

    Every part has the system field Timestamp, and the fields of the order; the result lacks the Timestamp.
    """
    columns = {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}
    stamps = columns.pop(TIMESTAMP_FIELD).to_numpy()
    if len(parts) == 1:
        return columns
    keys = comparable_keys(primary_keys(columns[key])) if len(stamps) else np.empty(0, dtype=np.int64)
    by_key = np.lexsort((-stamps, keys))
    ordered = keys[by_key]
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    kept = by_key[first]
    if order:
        kept = kept[order_places({by.field: columns[by.field].take(pa.array(kept)) for by in order}, order)]
    rows = pa.array(kept[:limit])
    return {name: column.take(rows) for name, column in columns.items()}
