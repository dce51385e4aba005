"""Reduce: many lists of hits become one per query, best first, each primary key once.

A query node reduces what its segments found, and the proxy what the nodes found, by the same rule. The
order is total, so that the answer does not depend on which segment holds a row, or on which node a
segment sits: better score first, then the smaller primary key, then the earlier list. Of rows with one
primary key the best is kept, as the reference does.

Candidates of all lists stand side by side in one matrix, one row per query: a k-way merge in numpy is
one sort, and at k · lists of a few dozen that is cheaper than any heap in Python. What is left out:
fetching anything about the winners; the caller gets positions.
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
"""Primary keys of hits: numbers as they are, strings as Arrow's. Both have ``take``, ``tolist`` and a length.

Arrow's own way to take ten numbers out of some hundred costs more than all else that is done with them.
"""


@dataclass(frozen=True, slots=True)
class Merged:
    """The winners of query i are candidates ``positions[offsets[i]:offsets[i + 1]]`` of its row, best first.

    ``dropped_duplicates``: whether a candidate that would have been among the first k gave way to a better
    one of the same primary key. Then a list that was cut at its own k may hide rows that deserve a place.
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
    """The best ``k`` candidates of each query with distinct keys.

    ``scores`` and ``keys``: (nq, candidates); equal keys mean the same primary key, and a smaller key
    goes first among equal scores. ``valid``: which candidates exist (None: all). A score that is not a
    number goes last.
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


def _any_twice(keys: Keys) -> bool:
    """Whether any row of keys has one of them twice."""
    ordered = np.sort(keys, axis=1)
    return bool((ordered[:, 1:] == ordered[:, :-1]).any())


def _repeats(
    keys: Keys, row: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.bool_]:
    """Where a valid key stood further left in its row already."""
    by_key = np.argsort(keys, axis=1, kind="stable")
    sorted_keys = keys[row, by_key]
    again = np.zeros(keys.shape, dtype=np.bool_)
    again[:, 1:] = sorted_keys[:, 1:] == sorted_keys[:, :-1]
    repeats = np.empty_like(again)
    repeats[row, by_key] = again
    return repeats if valid is None else repeats & valid


def primary_keys(ids: pa.Array | pa.ChunkedArray) -> PrimaryKeys:
    """An int64 or string array without nulls."""
    return np.asarray(ids.to_numpy(), dtype=np.int64) if pa.types.is_integer(ids.type) else ids


def joined(parts: Sequence[PrimaryKeys]) -> PrimaryKeys:
    """Keys of one kind, one after the other. At least one part."""
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)


def comparable_keys(ids: PrimaryKeys) -> Keys:
    """Keys as int64 that are equal and ordered as they are.

    Strings become their rank within ``ids``, so only keys of one call may be compared. shape (n,).
    """
    if isinstance(ids, np.ndarray):
        return ids
    return np.asarray(pc.rank(ids, tiebreaker="dense").to_numpy(), dtype=np.int64)
