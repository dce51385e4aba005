"""Validation of requests, common to all front ends: windows, rounding, the searched field, shards.

The texts are the reference's, which clients and conformance suites match. Limits: `elanus.core.limits`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elanus.core.errors import InvalidParameter, InvalidTopK
from elanus.core.ids import FieldID
from elanus.core.limits import (
    LARGE_WINDOW_MAX_ROWS,
    NQ_MAX,
    QUERY_WINDOW_MAX_ROWS,
    ROUND_DECIMAL_MAX,
    ROUND_DECIMAL_MIN,
    SHARDS_MAX,
)
from elanus.core.schema import CollectionSchema, FieldSchema

if TYPE_CHECKING:
    import pyarrow as pa

_DEFAULT_SHARDS = 1
MB = 1024 * 1024


QUERY_MODE = "query_mode"
_LARGE_TOP_K = "large_topk"


def window_rows_max(properties: Mapping[str, str]) -> int:
    """Return how many rows offset and limit of one search or query of a collection may reach over."""
    return LARGE_WINDOW_MAX_ROWS if properties.get(QUERY_MODE) == _LARGE_TOP_K else QUERY_WINDOW_MAX_ROWS


def check_search_window(limit: int, offset: int, rows_max: int = QUERY_WINDOW_MAX_ROWS) -> None:
    """Check the window of a search: limit, offset and their sum are bounded. Raises `InvalidTopK`."""
    for name, value, low in (("topk", limit, 1), ("offset", offset, 0)):
        if not low <= value <= rows_max:
            raise InvalidTopK(
                f"{name} [{value}] is invalid, it should be in range [1, {rows_max}], but got {value}"
            )
    if limit + offset > rows_max:
        both = limit + offset
        raise InvalidTopK(
            f"offset+topk [{both}] is invalid, it should be in range [1, {rows_max}], but got {both}"
        )


def check_query_window(limit: int | None, offset: int, rows_max: int = QUERY_WINDOW_MAX_ROWS) -> None:
    """Check the window of a query; no limit means all rows. Raises `InvalidParameter`."""
    window = "invalid max query result window"
    if limit is not None and limit <= 0:
        raise InvalidParameter(f"{window}, limit [{limit}] is invalid, should be greater than 0")
    if offset < 0:
        raise InvalidParameter(f"{window}, offset [{offset}] is invalid, should be gte than 0")
    if limit is not None and (end := limit + offset) > rows_max:
        raise InvalidParameter(f"{window}, (offset+limit) should be in range [1, {rows_max}], but got {end}")


_ROUND_DECIMALS = {str(digits): digits for digits in range(ROUND_DECIMAL_MIN, ROUND_DECIMAL_MAX + 1)}


def check_round_decimal(given: int | str) -> int:
    """Return how many decimals scores are rounded to; -1: no rounding. Raises `InvalidParameter`."""
    decimals = _ROUND_DECIMALS.get(str(given))
    if decimals is None:
        raise InvalidParameter(
            f"round_decimal [{given}] is invalid, "
            f"should be -1 or an integer in range [0, {ROUND_DECIMAL_MAX}]"
        )
    return decimals


def check_query_count(count: int) -> None:
    """Check the number of vectors in one search. Raises `InvalidParameter`."""
    if not 1 <= count <= NQ_MAX:
        raise InvalidParameter(
            f"nq [{count}] is invalid, nq (number of search vector per search request) should be in range "
            f"[1, {NQ_MAX}], but got {count}"
        )


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of a proxy on single requests, as its settings have them.

    ``search_hits_max``: vectors times (limit + offset) of one search. ``answer_bytes_max``: the output fields
    of one search or query. ``delete_step_keys_max``: keys that a delete by filter reads and deletes in one
    step. ``segment_filter_ratio``: of searches that have none (`elanus.core.segment_filter`).
    """

    search_hits_max: int = 4_000_000
    answer_bytes_max: int = 256 * MB
    delete_step_keys_max: int = 1_000_000
    segment_filter_ratio: float = 0.0


def check_hits(queries: int, k: int, hits_max: int) -> None:
    """Check how many hits a search may have in all. Raises `InvalidParameter`."""
    if queries * k > hits_max:
        raise InvalidParameter(
            f"nq * (topk + offset) [{queries} * {k} = {queries * k}] is invalid, one search may have at most "
            f"{hits_max} hits: send fewer vectors in one request, ask for fewer hits, "
            "or raise proxy.search_hits_max"
        )


def check_columns_size(rows: int, columns: Collection[pa.Array], bytes_max: int) -> None:
    """Check the size of an answer's output fields. Raises `InvalidParameter`.

    Whole buffers are an upper bound, which takes a twentieth of the time of the exact size.
    """
    if sum([column.get_total_buffer_size() for column in columns]) > bytes_max:
        check_answer_size(rows, sum(column.nbytes for column in columns), bytes_max)


def check_answer_size(rows: int, size_bytes: int, bytes_max: int) -> None:
    """As `check_columns_size`, of a size that is known."""
    if size_bytes > bytes_max:
        raise InvalidParameter(
            f"the output fields of {rows} rows take {size_bytes / MB:.1f} MB or more, and one answer may "
            f"have at most {bytes_max / MB:g} MB: ask for fewer rows or fewer output fields (limit, "
            "output_fields), or raise proxy.answer_max_mb"
        )


def check_vectors_size(rows: int, fields: Iterable[FieldSchema], bytes_max: int | None) -> None:
    """Check the size of the vectors among the output fields, before they are fetched; None: no limit.

    Raises `InvalidParameter`.
    """
    if bytes_max is not None:
        row_bytes = sum(field.row_bytes_estimate for field in fields if field.is_searched)
        check_answer_size(rows, rows * row_bytes, bytes_max)


def search_field(schema: CollectionSchema, name: str) -> FieldSchema:
    """Return the vector field to search; without a name, the only one.

    Raises `InvalidParameter` for a field that is missing or has no vectors, and if several are possible.
    """
    if not name:
        if len(schema.searched_fields) > 1:
            names = ", ".join(field.name for field in schema.searched_fields)
            raise InvalidParameter(
                f"multiple anns_fields exist, please specify a anns_field in search_params: {names}"
            )
        return schema.searched_fields[0]
    field = schema.by_name.get(name)
    if field is None:
        raise InvalidParameter(
            f"failed to create query plan: failed to get field schema by name: fieldName({name}) not found"
        )
    if not field.is_searched:
        raise InvalidParameter(
            f"failed to create query plan: field ({name}) to search is not of vector data type"
        )
    return field


def fields_to_load(schema: CollectionSchema, names: Iterable[str], *, dynamic: bool) -> tuple[FieldID, ...]:
    """Return the fields that a load names, in the schema's order; none if these are all fields.

    ``dynamic``: whether the dynamic field is loaded, too. Those that every read needs must be among them.
    Raises `FieldNotFound`, `InvalidParameter`.
    """
    chosen = tuple(names)
    named = _named_fields(schema, chosen) if chosen else schema.fields
    loaded = tuple(
        field.field_id for field in schema.fields if (dynamic if field.is_dynamic else field in named)
    )
    return () if len(loaded) == len(schema.fields) else loaded


def _named_fields(schema: CollectionSchema, chosen: tuple[str, ...]) -> tuple[FieldSchema, ...]:
    """Return the fields that a load names; a struct array stands for all fields of its structs."""
    structs = {struct.name for struct in schema.structs}
    fields: list[FieldSchema] = []
    for name in chosen:
        fields += schema.members(name) if name in structs else [schema.field(name)]
    shown = f"load field list [{' '.join(chosen)}]"
    if schema.primary_field not in fields:
        raise InvalidParameter(f"{shown} does not contain primary key field {schema.primary_field.name}")
    if not any(field.is_searched for field in fields):
        raise InvalidParameter(f"{shown} does not contain vector field")
    if schema.partition_key is not None and schema.partition_key not in fields:
        raise InvalidParameter(f"{shown} does not contain partition key field {schema.partition_key.name}")
    for field in schema.fields:
        if field.is_clustering_key and field not in fields:
            raise InvalidParameter(f"{shown} does not contain clustering key field {field.name}")
    return tuple(fields)


def checked_shards(asked: int) -> int:
    """Return the number of shards of a new collection; 0 asks for the default. Raises `InvalidParameter`."""
    if asked < 0:
        raise InvalidParameter(f"shards_num must be in [1, {SHARDS_MAX}], got {asked}")
    if asked > SHARDS_MAX:
        raise InvalidParameter(f"maximum shards's number should be limited to {SHARDS_MAX}, got {asked}")
    return asked or _DEFAULT_SHARDS
