"""Query and count on a query node: the rows that match, without any vector search.

Rows are returned in the order of their primary key, one per key. They are chosen by keys and timestamps
alone; the other columns are fetched only for the rows that are returned, not for all that were examined.
With a limit, only as many rows are examined as it takes (`elanus.querynode.first_keys`). An order by other
fields, or an aggregation, reads those fields of all rows that match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.api.querynode import NodeQuery
from elanus.core.aggregation import Aggregation, partial
from elanus.core.ordering import order_places
from elanus.core.reduce import comparable_keys, primary_keys
from elanus.core.requests import check_columns_size, check_vectors_size
from elanus.core.schema import TIMESTAMP_FIELD, CollectionSchema
from elanus.core.trail import current, step
from elanus.querynode.block import Block
from elanus.querynode.first_keys import rows_of_smallest_keys
from elanus.querynode.gather import FoundRows, rows_of_blocks
from elanus.querynode.keys import SortedKeys
from elanus.querynode.snapshot import Snapshot

Rows = npt.NDArray[np.int64]


def query(snapshot: Snapshot, request: NodeQuery) -> Mapping[str, pa.Array]:
    """Return the output columns of the matching rows, always including the primary key.

    The system field Timestamp may be requested as well: merging the answers of several nodes needs it to find
    the newest row of a key. Raises `PartitionNotLoaded`, `FieldNotLoaded`, `Unavailable`, and
    `InvalidParameter` if the output is too large.
    """
    request = snapshot.unloaded.query(request)
    schema = snapshot.schema
    key = schema.primary_field.name
    step("find rows")
    if request.aggregation is not None:
        return _aggregated(snapshot, request, request.aggregation)
    found = _found(snapshot, request)
    step("fetch output fields")
    names = dict.fromkeys((key, *request.output_fields))
    fields = [schema.field(name) for name in names if name != TIMESTAMP_FIELD]
    check_vectors_size(len(found), fields, request.answer_bytes_max)
    return {name: _column(found, name, schema) for name in names}


def _column(found: FoundRows, name: str, schema: CollectionSchema) -> pa.Array:
    if name == TIMESTAMP_FIELD:
        return pa.array(found.timestamps())
    return found.column(name, schema.field(name).arrow_type)


def count(snapshot: Snapshot, request: NodeQuery) -> int:
    """Count the live rows that match. Each row of a shared primary key counts. Raises as `query` does."""
    request = snapshot.unloaded.query(request)
    keys = _wanted_keys(request)
    blocks = snapshot.blocks(
        request.read_ts, request.partition_ids, request.ignore_growing, request.expired_until
    )
    step("count rows")
    counted = 0
    for block in blocks:
        _visit(block, request)
        if keys is None:
            found = block.select(request.read_ts, request.filter, request.expired_until).count
        else:
            found = len(block.select_keys(request.read_ts, keys, request.filter, request.expired_until))
        _visited(found, by_key=keys is not None)
        counted += found
    return counted


def _visit(block: Block, request: NodeQuery) -> None:
    trail = current()
    if trail is not None:
        trail.visit(block, was_known=block.was_known(request.read_ts, request.filter))


def _visited(found: int, *, by_key: bool) -> None:
    trail = current()
    if trail is not None:
        trail.selected(found)
        if by_key:
            trail.method("keys", found)
        trail.leave()


def _wanted_keys(request: NodeQuery) -> SortedKeys | None:
    """Return the only primary keys that can match, if the request or its filter names them."""
    keys = request.primary_keys
    if keys is None:
        keys = request.filter.primary_keys()
    return None if keys is None else SortedKeys(keys)


def _found(snapshot: Snapshot, request: NodeQuery) -> FoundRows:
    keys = _wanted_keys(request)
    blocks = snapshot.blocks(
        request.read_ts, request.partition_ids, request.ignore_growing, request.expired_until
    )
    if keys is None and request.limit is not None and not request.order:
        return rows_of_smallest_keys(
            blocks, request.read_ts, request.filter, request.limit, request.expired_until
        )
    found = _matching(blocks, request, keys)
    if not len(found):
        return found
    if not request.order:
        return _one_per_key(found, snapshot.schema, request.limit)
    return _in_order(_one_per_key(found, snapshot.schema, None), snapshot.schema, request)


def _in_order(found: FoundRows, schema: CollectionSchema, request: NodeQuery) -> FoundRows:
    """Return the first rows in the requested order. Rows that are equal in it keep the order of keys."""
    columns = {by.field: _column(found, by.field, schema) for by in request.order}
    return found.select(order_places(columns, request.order)[: request.limit])


def _aggregated(snapshot: Snapshot, request: NodeQuery, aggregation: Aggregation) -> Mapping[str, pa.Array]:
    """Return partial results. Only the fields that they are made of are fetched."""
    keys = _wanted_keys(request)
    blocks = snapshot.blocks(
        request.read_ts, request.partition_ids, request.ignore_growing, request.expired_until
    )
    found = _matching(blocks, request, keys)
    columns = {name: _column(found, name, snapshot.schema) for name in aggregation.fields}
    result = partial(columns, len(found), aggregation)
    if request.answer_bytes_max is not None:
        check_columns_size(len(next(iter(result.values()))), result.values(), request.answer_bytes_max)
    return result


def _matching(blocks: Sequence[Block], request: NodeQuery, keys: SortedKeys | None) -> FoundRows:
    matching: list[Block] = []
    rows: list[Rows] = []
    for block in blocks:
        _visit(block, request)
        if keys is None:
            found = block.select(request.read_ts, request.filter, request.expired_until).rows()
        else:
            found = block.select_keys(request.read_ts, keys, request.filter, request.expired_until)
        _visited(len(found), by_key=keys is not None)
        if len(found):
            matching.append(block)
            rows.append(found)
    return rows_of_blocks(matching, rows)


def _one_per_key(found: FoundRows, schema: CollectionSchema, limit: int | None) -> FoundRows:
    """Return the newest row of each key, in the order of keys, limited to the first ``limit``."""
    ids = found.column(schema.primary_field.name, schema.primary_field.arrow_type)
    keys = comparable_keys(primary_keys(ids))
    order = np.lexsort((-found.timestamps(), keys))
    keys = keys[order]
    first = np.ones(len(keys), dtype=np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    return found.select(order[first][:limit])
