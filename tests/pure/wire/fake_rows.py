"""Row operations of the fake verbs: filters, distances, output columns."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidFilter
from elanus.core.schema import CollectionSchema

_FILTER = re.compile(r"(\w+)\s*(in|==|>)\s*(.+)\Z")


def altered(
    properties: Mapping[str, str], changed: Mapping[str, str], deleted: Sequence[str]
) -> dict[str, str]:
    return {k: v for k, v in {**properties, **changed}.items() if k not in deleted}


def column(table: pa.Table, name: str) -> pa.Array:
    """One array, also of a table without rows."""
    chunks = table.column(name).chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], table.schema.field(name).type)


def with_keys(schema: CollectionSchema, rows: pa.RecordBatch, ids: itertools.count[int]) -> pa.RecordBatch:
    key = schema.primary_field
    if not key.auto_id:
        return rows
    fresh = pa.array([next(ids) for _ in range(rows.num_rows)]).cast(key.arrow_type)
    columns = [fresh if f is key else rows.column(f.name) for f in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)


def matches(table: pa.Table, text: str, values: Mapping[str, object]) -> np.ndarray:
    if not text:
        return np.ones(table.num_rows, dtype=bool)
    parsed = _FILTER.match(text)
    if parsed is None or parsed[1] not in table.column_names:
        raise InvalidFilter(f"failed to create query plan: cannot parse expression: {text}")
    operand = parsed[3]
    value = values[operand[1:-1]] if operand.startswith("{") else _literal(operand)
    column = table.column(parsed[1])
    if parsed[2] == "in":
        mask = pc.is_in(column, value_set=pa.array(value, column.type))
    else:
        mask = {"==": pc.equal, ">": pc.greater}[parsed[2]](column, pa.scalar(value, column.type))
    return np.asarray(mask.combine_chunks().to_numpy(zero_copy_only=False), dtype=bool)


def _literal(text: str) -> object:
    return ast.literal_eval(text)


def as_matrix(column: pa.ChunkedArray, dim: int) -> np.ndarray:
    array = column.combine_chunks()
    if pa.types.is_fixed_size_list(array.type):
        return array.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
    return np.frombuffer(b"".join(array.to_pylist()), np.uint8).reshape(-1, dim // 8)


def nearest(query: np.ndarray, vectors: np.ndarray, limit: int, offset: int) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(over="ignore"):
        distances = ((vectors.astype(np.float32) - query.astype(np.float32)) ** 2).sum(axis=1)
    order = np.argsort(distances, kind="stable")[offset : offset + limit]
    return order, distances[order]


def outputs(
    schema: CollectionSchema, asked: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...] | None]:
    """Columns to fetch, names to return, dynamic keys asked for (``None``: all)."""
    names = [f.name for f in schema.fields] if "*" in asked else list(asked)
    columns = [name for name in names if name in schema.by_name]
    keys = [name for name in names if name not in schema.by_name]
    dynamic = schema.dynamic_field
    if keys and dynamic is not None:
        columns.append(dynamic.name)
    whole = dynamic is not None and dynamic.name in names
    return tuple(dict.fromkeys(columns)), tuple(names), None if whole else tuple(keys)
