"""Reduce: merge many lists of hits into one per query, best first, each primary key once.

A query node reduces the hits of its segments, and the proxy those of the nodes, by the same rule. The
order is total, so that the answer does not depend on which segment holds a row, or which node holds a
segment: better score first, then the smaller primary key, then the earlier list. Among rows with the same
primary key the best is kept, as in the reference.

Candidates of all lists are side by side in one matrix, one row per query: a k-way merge in numpy is
one sort, and at k · lists of a few dozen that is cheaper than any heap in Python. This module does not
fetch anything about the winners; the caller gets positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Keys = npt.NDArray[np.int64]
PrimaryKeys: TypeAlias = Keys | pa.Array
"""Primary keys of hits: numbers in numpy, strings in Arrow. Both have ``take``, ``tolist`` and a length.

Taking ten numbers out of a few hundred with Arrow costs more than all other work on them.
"""


@dataclass(frozen=True, slots=True)
class Merged:
    """The winners of query i are candidates ``positions[offsets[i]:offsets[i + 1]]`` of its row, best first.

    ``dropped_duplicates``: whether a candidate that would have been among the first k was dropped for a
    better one of the same primary key. In that case, a list cut at its own k may hide rows that belong in the
    result.
    """

    offsets: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    dropped_duplicates: bool


def merge(
    scores: npt.NDArray[np.float32],
    keys: Keys,
    k: int,
    *,
    larger_is_better: bool,
    valid: npt.NDArray[np.bool_] | None = None,
) -> Merged:
    """Return the best ``k`` candidates of each query with distinct keys.

    ``scores`` and ``keys``: (nq, candidates); equal keys mean the same primary key, and a smaller key
    is first among equal scores. ``valid``: which candidates exist (None: all). A score that is not a
    number is last.
    """
    queries = len(scores)
    if valid is not None and valid.all():
        valid = None
    ascending = -scores if larger_is_better else scores
    by_rank = (keys, ascending) if valid is None else (keys, ascending, ~valid)
    order = np.lexsort(by_rank, axis=-1)
    row = np.arange(queries)[:, None]
    first = order[:, :k]
    if (valid is None or valid[row, first].all()) and not _any_twice(keys[row, first]):
        return Merged(np.arange(queries + 1) * first.shape[1], first.reshape(-1), False)
    keep = ~_repeats(keys[row, order], row, None if valid is None else valid[row, order])
    if valid is None:
        exists = np.ones_like(keep)
    else:
        exists = valid[row, order]
        keep &= exists
    rank = np.cumsum(keep, axis=1)
    dropped = bool((exists & ~keep & (rank < k)).any())
    keep &= rank <= k
    offsets = np.zeros(queries + 1, dtype=np.int64)
    np.cumsum(keep.sum(axis=1), out=offsets[1:])
    return Merged(offsets, order[keep], dropped)


def may_hide(
    scores: npt.NDArray[np.float32], width: int, merged: Merged, k: int, *, larger_is_better: bool
) -> bool:
    """Whether a list that was cut at ``width`` may have a further hit among the best ``k`` of its query.

    ``scores``: (nq, lists · width), list after list, each best first, padding with the worst possible score.
    Without dropped duplicates no list has one: all its hits would have won. With them, a list has one at most
    if its last hit is better than the last winner.
    """
    if not merged.dropped_duplicates:
        return False
    sign = np.float32(-1 if larger_is_better else 1)
    counts = np.diff(merged.offsets)
    rows = np.flatnonzero(counts == k)
    worst_won = np.full(len(counts), np.inf, dtype=np.float32)
    worst_won[rows] = sign * scores[rows, merged.positions[merged.offsets[1:][rows] - 1]]
    return bool((sign * scores[:, width - 1 :: width] < worst_won[:, None]).any())


def worst_winners(scores: npt.NDArray[np.float32], merged: Merged, k: int) -> npt.NDArray[np.float64]:
    """Return the score of each query's last winner, (nq,); not a number for fewer than ``k`` winners."""
    worst = np.full(len(scores), np.nan)
    full = np.flatnonzero(np.diff(merged.offsets) == k)
    worst[full] = scores[full, merged.positions[merged.offsets[1:][full] - 1]]
    return worst


def keys_of_elements(keys: Keys, elements: npt.NDArray[np.int64]) -> Keys:
    """Return keys for elements of rows: equal for the same element of the same primary key, in that order.

    ``keys``: the keys of the rows; ``elements``: positions in the row. Both have one shape, which the
    returned int64 keys have too. Only keys of one call can be compared.
    """
    pairs = np.stack((keys.reshape(-1), elements.reshape(-1)), axis=1)
    _, ranks = np.unique(pairs, axis=0, return_inverse=True)
    return np.asarray(ranks, dtype=np.int64).reshape(keys.shape)


def _any_twice(keys: Keys) -> bool:
    """Whether any row contains the same key twice."""
    ordered = np.sort(keys, axis=1)
    return bool((ordered[:, 1:] == ordered[:, :-1]).any())


def _repeats(
    keys: Keys, row: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.bool_]:
    """Mark the positions whose valid key is also further left in the row."""
    by_key = np.argsort(keys, axis=1, kind="stable")
    sorted_keys = keys[row, by_key]
    again = np.zeros(keys.shape, dtype=np.bool_)
    again[:, 1:] = sorted_keys[:, 1:] == sorted_keys[:, :-1]
    repeats = np.empty_like(again)
    repeats[row, by_key] = again
    return repeats if valid is None else repeats & valid


def primary_keys(ids: pa.Array | pa.ChunkedArray) -> PrimaryKeys:
    """Convert an int64 or string array without nulls to primary keys."""
    return np.asarray(ids.to_numpy(), dtype=np.int64) if pa.types.is_integer(ids.type) else ids


def joined(parts: Sequence[PrimaryKeys]) -> PrimaryKeys:
    """Concatenate keys of one kind. At least one part."""
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)


def comparable_keys(ids: PrimaryKeys) -> Keys:
    """Return the keys as int64 with the same equality and order.

    Strings become their rank within ``ids``, so only keys of one call may be compared. shape (n,).
    """
    if isinstance(ids, np.ndarray):
        return ids
    return np.asarray(pc.rank(ids, tiebreaker="dense").to_numpy(), dtype=np.int64)
