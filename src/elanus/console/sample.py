"""The view of a collection's vectors as points of a plane, from a sample of its rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from elanus.core.projection import projected
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.vectors import Space
from elanus.proxy.api.query import QueryResult
from elanus.proxy.rest import operations
from elanus.proxy.rest.bodies import OfCollection
from elanus.proxy.rest.endpoint import Session
from elanus.proxy.rest.entity_bodies import Query
from elanus.proxy.rest.errors import BadFormat
from elanus.proxy.rest.values import rows_of

ROWS_MAX = 5_000
_VALUES_MAX = 8_000_000
"""Of all vectors of a sample together: it takes 32 MB as float32, however many dimensions there are."""
_COUNT = "count(*)"


class Sample(OfCollection, kw_only=True):
    """``fieldName``: of the vectors. ``colorField``: a further field that is returned of each row, "" for
    none. ``limit``: of rows."""

    field_name: str
    color_field: str = ""
    filter: str = ""
    limit: int = ROWS_MAX


def projection(session: Session, body: Sample) -> object:
    """A sample of the rows that a filter matches, as points along the two principal axes of their vectors

    The rows are those of one moment. Each has its key, x, y and the value of the field for colors.
    """
    counted = _queried(session, body, body.filter, 1, _COUNT)
    (count,) = counted.fields[_COUNT].to_pylist()
    field = _vector_field(counted.schema, body.field_name)
    if not 1 <= body.limit <= ROWS_MAX:
        raise BadFormat(f"limit [{body.limit}] is not a number of rows: give 1 to {ROWS_MAX}")
    limit = max(1, min(body.limit, _VALUES_MAX // field.dim))
    names = [field.name, *([body.color_field] if body.color_field else [])]
    found = _queried(session, body, _sampled(body.filter, limit, count), limit, *names)
    return {"count": count, **_points(session, found, field, body.color_field)}


def _vector_field(schema: CollectionSchema, name: str) -> FieldSchema:
    """Raises `BadFormat`."""
    field = schema.by_name.get(name)
    if field is None or field.kind.vector is None:
        raise BadFormat(f"fieldName [{name[:100]}] is no field of vectors")
    if field.vector.space is Space.SPARSE:
        raise BadFormat(f"fieldName [{name[:100]}] has sparse vectors, which have no principal axes")
    return field


def _sampled(wanted: str, limit: int, count: int) -> str:
    """The filter for a random sample of ``limit`` rows. How many it has varies by the square root of that: so
    few less are asked for that hardly ever some are left out, which would be those with the highest keys."""
    if count <= limit:
        return wanted
    share = max(limit - 3 * math.sqrt(limit), limit / 2) / count
    sample = f"random_sample({share:.9f})"
    return f"({wanted}) and {sample}" if wanted.strip() else sample


def _queried(session: Session, body: Sample, wanted: str, limit: int, *names: str) -> QueryResult:
    query = Query(
        collection_name=body.collection_name,
        db_name=body.db_name,
        filter=wanted,
        limit=limit,
        output_fields=list(names),
    )
    found: QueryResult = session.operation(operations.QUERY, query)
    return found


def _points(session: Session, found: QueryResult, field: FieldSchema, color: str) -> dict[str, Any]:
    column = _whole(found.fields[field.name])
    here = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    values = field.vector.to_matrix(column.take(pa.array(here)))
    if field.vector.space is Space.BITS:
        values = np.unpackbits(values, axis=1)
    points, share = projected(values)
    key = found.schema.primary_field.name
    shown = {n: _whole(c).take(pa.array(here)) for n, c in found.fields.items() if n != field.name}
    rows = rows_of(shown, found.schema, len(here), found.dynamic_fields, session.integers)
    return {
        "share": round(share, 4),
        "rows": [
            [row[key], round(float(x), 4), round(float(y), 4), row.get(color) if color else None]
            for row, (x, y) in zip(rows, points, strict=True)
        ],
    }


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
