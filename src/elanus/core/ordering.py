"""ORDER BY: rows, or the hits of a search, in the order of fields instead of keys or scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import FieldNotFound, InvalidParameter, NotSupported
from elanus.core.schema import CollectionSchema
from elanus.core.types import Family

Places = npt.NDArray[np.int64]
_DIRECTIONS = {"": False, "asc": False, "ascending": False, "desc": True, "descending": True}
_NULLS = {"nulls_first": True, "nulls_last": False}
_SORTABLE = (Family.BOOL, Family.INTEGER, Family.FLOATING, Family.TEXT, Family.TIME)


@dataclass(frozen=True, slots=True)
class OrderBy:
    """One field of an order. Rows that are equal in all fields keep their order."""

    field: str
    descending: bool = False
    nulls_first: bool = False


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


def parse_order(
    text: str, schema: CollectionSchema, *, nulls_first: bool | None = None
) -> tuple[OrderBy, ...]:
    """Parse ``field:desc,other:asc:nulls_first``.

    ``nulls_first``: where nulls are if the text does not say it; None: last if ascending, else first.
    Raises `FieldNotFound`, `InvalidParameter`, and `NotSupported` for values inside of JSON.
    """
    parts = (part.strip() for part in text.split(","))
    return tuple(_parse_one(part, schema, nulls_first) for part in parts if part)


def _parse_one(text: str, schema: CollectionSchema, nulls_first: bool | None) -> OrderBy:
    name, *options = (part.strip() for part in text.split(":"))
    direction = options[0].lower() if options else ""
    if direction not in _DIRECTIONS:
        raise InvalidParameter(
            f"invalid order direction '{direction}' for field '{name}', must be 'asc' or 'desc'"
        )
    descending = _DIRECTIONS[direction]
    nulls = descending if nulls_first is None else nulls_first
    if len(options) > 1:
        if len(options) > 2 or options[1].lower() not in _NULLS:
            raise InvalidParameter(
                f"invalid null ordering '{':'.join(options[1:])}' for field '{name}', "
                "must be 'nulls_first' or 'nulls_last'"
            )
        nulls = _NULLS[options[1].lower()]
    _check_sortable(schema, name)
    return OrderBy(name, descending, nulls)


def _check_sortable(schema: CollectionSchema, name: str) -> None:
    field = schema.by_name.get(name)
    if field is None and schema.dynamic_field is None:
        raise FieldNotFound(f"order_by field '{name}' does not exist in collection schema")
    if field is None or field.kind.family is Family.JSON:
        raise NotSupported(
            f"order by {name}, a value inside a JSON field, is not supported by this release: "
            "give the value a field of its own"
        )
    if field.kind.family not in _SORTABLE:
        raise InvalidParameter(
            f"order_by field '{name}' has unsortable type {field.data_type.name}; "
            "supported types: bool, int8/16/32/64, float, double, varchar"
        )


def _ranks(column: pa.Array, by: OrderBy) -> Places:
    """Return numbers in the order of the values, the descending direction and the nulls included. (n,)"""
    ranks: Places = pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    if by.descending:
        ranks = -ranks
    if column.null_count:
        outside = np.iinfo(np.int64)
        ranks[column.is_null().to_numpy(zero_copy_only=False)] = (
            outside.min if by.nulls_first else outside.max
        )
    return ranks
