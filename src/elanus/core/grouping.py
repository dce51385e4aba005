"""Grouping search: the best groups of hits, and the best hits of each.

A group is the set of rows with the same values in the grouping fields; nulls are one group. A query's answer
is its first groups, in the order of their best hits, each with at most ``size`` hits.

A search that finds its nearest rows in few groups must look further. `Groups.complete` says for which
queries it need not: they have as many groups as were requested and, if the size is strict, only full ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.errors import FieldNotFound, InvalidParameter
from elanus.core.json_keys import JsonKey, json_values
from elanus.core.limits import GROUP_SIZE_MAX
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.types import Family, engine_type_name

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Grouping:
    """``fields``: names of the grouping fields, at least one. ``size``: hits per group.

    ``strict``: look for full groups. Otherwise the search ends when it has enough groups. ``inside``: the
    value to group by of the only JSON field among them, if there is one.
    """

    fields: tuple[str, ...]
    size: int = 1
    strict: bool = False
    inside: JsonKey | None = None

    def keys(self, column_of: Callable[[str], pa.Array]) -> dict[str, pa.Array]:
        """Return the values to group by, by the names that the client gave. ``column_of``: of a field."""
        keys = {}
        for name in self.fields:
            column = column_of(name)
            if self.inside is not None and self.inside.field == name:
                keys[self.inside.name] = json_values(column, self.inside)
            else:
                keys[name] = column
        return keys


@dataclass(frozen=True, slots=True)
class Groups:
    """``places``: the chosen hits, group by group. Those of query i: ``offsets[i]:offsets[i + 1]``.

    ``complete``: whether a query has all it asked for, shape (nq,).
    """

    offsets: Places
    places: Places
    complete: npt.NDArray[np.bool_]


def choose_groups(
    offsets: Places,
    codes: Places,
    grouping: Grouping,
    limit: int,
    skipped: int = 0,
    scores: npt.NDArray[np.float32] | None = None,
    scorer: str = "max",
    *,
    larger_is_better: bool = True,
) -> Groups:
    """Return the first ``limit`` groups of each query after the first ``skipped``.

    ``offsets``: int64 (nq + 1,); the hits of query i are ``offsets[i]:offsets[i + 1]``, best first.
    ``codes``: int64 (hits,); equal codes mean the same group. ``scores``: float32 (hits,). ``scorer``: groups
    are in the order of the maximum, sum or average of their chosen hits' ``scores``; hits are in the order of
    their scores, so that the maximum needs none.
    """
    queries = len(offsets) - 1
    query_of = np.repeat(np.arange(queries), np.diff(offsets))
    group_of, first_hits = _numbered(query_of, codes)
    nth = _nth_in_group(group_of)
    chosen = np.flatnonzero(nth < grouping.size)
    group_query = query_of[first_hits]
    worth: npt.NDArray[np.float64] = np.zeros(len(first_hits))
    sizes = np.bincount(group_of[chosen], minlength=len(first_hits))
    if scorer != "max" and scores is not None:
        worth = np.bincount(group_of[chosen], scores[chosen], len(first_hits)).astype(np.float64)
        worth = worth / sizes if scorer == "avg" else worth
        worth = -worth if larger_is_better else worth
    by_worth = np.lexsort((first_hits, worth, group_query))
    group_rank = np.empty(len(first_hits), dtype=np.int64)
    counts = np.bincount(group_query, minlength=queries)
    group_rank[by_worth] = np.arange(len(by_worth)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = (group_rank >= skipped) & (group_rank < skipped + limit)
    chosen = chosen[kept[group_of[chosen]]]
    chosen = chosen[np.lexsort((nth[chosen], group_rank[group_of[chosen]], query_of[chosen]))]
    found = np.zeros(queries + 1, dtype=np.int64)
    np.cumsum(np.bincount(query_of[chosen], minlength=queries), out=found[1:])
    complete = counts >= skipped + limit
    if grouping.strict:
        lacking = (group_rank < skipped + limit) & (sizes < grouping.size)
        complete &= np.bincount(group_query[lacking], minlength=queries) == 0
    return Groups(found, chosen, complete)


def group_codes(columns: Collection[pa.Array]) -> Places:
    """Return a number for each row: equal for rows with equal values in all columns. shape (n,)."""
    codes = np.zeros(len(next(iter(columns))), dtype=np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy().astype(np.int64)
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
    return codes


def check_group_size(size: int) -> int:
    """Raises `InvalidParameter`, with the reference's texts."""
    if size <= 0:
        raise InvalidParameter(f"input group size:{size} is negative, failed to do search_groupby")
    if size > GROUP_SIZE_MAX:
        raise InvalidParameter(f"input group size:{size} exceeds configured max group size:{GROUP_SIZE_MAX}")
    return size


def grouping_fields(
    schema: CollectionSchema, names: Sequence[str], inside: JsonKey | None = None
) -> tuple[FieldSchema, ...]:
    """Return the fields to group by. ``inside``: the value of the JSON field among them.

    Raises `FieldNotFound`, `InvalidParameter` for a type without groups.
    """
    return tuple(_grouping_field(schema, name, inside) for name in names)


def _grouping_field(schema: CollectionSchema, name: str, inside: JsonKey | None) -> FieldSchema:
    field = schema.by_name.get(name)
    if field is None:
        raise FieldNotFound(f"groupBy field not found in schema: field not found[field={name}]")
    if field.kind.family is Family.JSON:
        if inside is None or inside.field != name:
            raise InvalidParameter(
                f"json_path is required for json field when doing search_group_by: field {name}; "
                f'group by a value inside it, such as {name}["key"]'
            )
        return field
    groups = field.kind.family in (Family.BOOL, Family.INTEGER, Family.TEXT, Family.TIME)
    if not groups or field.kind.is_long_text:
        raise InvalidParameter(
            f"unsupported data type {engine_type_name(field.data_type)} for group by operator: field {name}; "
            "group by a bool, integer or string field"
        )
    return field


def _numbered(query_of: Places, codes: Places) -> tuple[Places, Places]:
    """Return the group of each hit, numbered over all queries, and the first hit of each group."""
    width = int(codes.max(initial=0)) + 1
    _, first_hits, group_of = np.unique(query_of * width + codes, return_index=True, return_inverse=True)
    return group_of.reshape(-1), first_hits


def _nth_in_group(group_of: Places) -> Places:
    """Return how many hits of the same group are before each hit."""
    by_group = np.argsort(group_of, kind="stable")
    counts = np.bincount(group_of)
    nth = np.empty(len(group_of), dtype=np.int64)
    nth[by_group] = np.arange(len(group_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return nth
