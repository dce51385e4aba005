"""ORDER BY: rows, or the hits of a search, in the order of fields instead of keys or scores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidParameter
from elanus.core.json_keys import JsonPath, ordered_values, parse_json_path, split_names
from elanus.core.schema import CollectionSchema
from elanus.core.types import Family

Places = npt.NDArray[np.int64]
_DIRECTIONS = {"": False, "asc": False, "ascending": False, "desc": True, "descending": True}
_NULLS = {"nulls_first": True, "nulls_last": False}
_NAME = re.compile(r"(?:\[[^\]]*\]|[^:\[])*")
AGGREGATE = re.compile(r"(?i)(sum|count|avg|min|max)\s*+\(\s*+([\w*]*+)\s*+\)")
"""An aggregate as queries write it: its operator and its argument."""
_SORTABLE = (Family.BOOL, Family.INTEGER, Family.FLOATING, Family.TEXT, Family.TIME)


@dataclass(frozen=True, slots=True)
class OrderBy:
    """One field of an order. Rows that are equal in all fields keep their order.

    ``path``: of the value inside the documents of ``field``, which then holds JSON.
    """

    field: str
    descending: bool = False
    nulls_first: bool = False
    path: JsonPath = ()


def order_places(columns: Mapping[str, pa.Array], order: Sequence[OrderBy]) -> Places:
    """Return the places of the rows in the order of at least one field. shape (n,)

    ``columns`` has all the fields, which are scalars. A float that is not a number is larger than all others.
    """
    return np.lexsort([_ranks(columns[by.field], by) for by in reversed(order)])


def order_within(offsets: Places, columns: Mapping[str, pa.Array], order: Sequence[OrderBy]) -> Places:
    """As `order_places`, for the hits of each query by themselves.

    Those of query i are at ``offsets[i]:offsets[i + 1]``, before and after.
    """
    query_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return np.lexsort([*(_ranks(columns[by.field], by) for by in reversed(order)), query_of])


def order_groups_within(
    offsets: Places, columns: Mapping[str, pa.Array], order: Sequence[OrderBy], codes: Places
) -> Places:
    """As `order_within`, but groups of hits change places: each is where its first hit belongs, and keeps its
    own order.

    ``codes``: (n,); the hits of a group are next to each other and have the same code.
    """
    query_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    begins_group = np.ones(len(codes), dtype=np.bool_)
    begins_group[1:] = (codes[1:] != codes[:-1]) | (query_of[1:] != query_of[:-1])
    first = np.flatnonzero(begins_group)
    best = {by.field: columns[by.field].take(pa.array(first)) for by in order}
    places = np.lexsort([*(_ranks(best[by.field], by) for by in reversed(order)), query_of[first]])
    rank = np.empty(len(first), dtype=np.int64)
    rank[places] = np.arange(len(first))
    return np.argsort(rank[np.cumsum(begins_group) - 1], kind="stable")


def parse_order(text: str, schema: CollectionSchema, *, dynamic: bool = False) -> tuple[OrderBy, ...]:
    """Parse ``field:desc,other:asc:nulls_first``.

    If the text does not say where nulls are, they are last if ascending, else first.
    ``dynamic``: dynamic keys, and paths such as ``key["a"][0]`` that begin with one or with a JSON field, may
    be ordered by.
    Raises `InvalidParameter`.
    """
    return tuple(_parse_one(part, schema, dynamic=dynamic) for part in split_names(text))


def _parse_one(text: str, schema: CollectionSchema, *, dynamic: bool) -> OrderBy:
    named = _NAME.match(text)
    name = "" if named is None else named.group().strip()
    options = [] if named is None else [part.strip() for part in text[named.end() :].split(":")[1:]]
    direction = options[0].lower() if options else ""
    if not name and dynamic:
        raise InvalidParameter("empty field name in order_by_fields")
    if direction not in _DIRECTIONS:
        expected = "expected" if dynamic else "must be"
        raise InvalidParameter(
            f"invalid order direction '{direction}' for field '{name}', {expected} 'asc' or 'desc'"
        )
    descending = _DIRECTIONS[direction]
    nulls = descending
    if len(options) > 1:
        if len(options) > 2 or options[1].lower() not in _NULLS:
            raise InvalidParameter(
                f"invalid null ordering '{':'.join(options[1:])}' for field '{name}', "
                "must be 'nulls_first' or 'nulls_last'"
            )
        nulls = _NULLS[options[1].lower()]
    field, path = _sorted_by(schema, name, dynamic=dynamic)
    return OrderBy(field, descending, nulls, path)


def _sorted_by(schema: CollectionSchema, name: str, *, dynamic: bool) -> tuple[str, JsonPath]:
    """Return the field that is read, and the path of the value inside it, if it holds JSON."""
    field = schema.by_name.get(name)
    parsed = parse_json_path(name) if field is None and dynamic else None
    if parsed is not None:
        head, path = parsed
        field = schema.by_name.get(head)
        if field is None and schema.dynamic_field is not None:
            return schema.dynamic_field.name, (head, *path)
        if field is not None and field.kind.family is Family.JSON and path:
            return field.name, path
    if field is None and not dynamic and AGGREGATE.fullmatch(name):
        raise InvalidParameter(f"ORDER BY on aggregate expression '{name}' is not yet supported")
    if field is None:
        raise InvalidParameter(f"order_by field '{name}' does not exist in collection schema")
    if field.name != name:
        raise InvalidParameter(f"order_by field '{name}' has brackets but is not a JSON type")
    if field.kind.family not in _SORTABLE or field.kind.is_long_text:
        raise InvalidParameter(
            f"order_by field '{name}' has unsortable type {field.kind.name}; supported types: bool, "
            "int8/16/32/64, float, double, string, varchar; for JSON fields use path syntax like "
            'field["key"]'
            if dynamic
            else f"order_by field '{name}' has type {field.kind.name} which is not sortable; "
            "supported types: bool, int8/16/32/64, float, double, varchar"
        )
    return name, ()


def _ranks(column: pa.Array, by: OrderBy) -> Places:
    """Return numbers in the order of the values, the descending direction and the nulls included. (n,)"""
    if by.path:
        column = ordered_values(column, by.path)
    ranks: Places = pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    if by.descending:
        ranks = -ranks
    if column.null_count:
        outside = np.iinfo(np.int64)
        ranks[column.is_null().to_numpy(zero_copy_only=False)] = (
            outside.min if by.nulls_first else outside.max
        )
    return ranks
