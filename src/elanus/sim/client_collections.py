"""The collections that clients create: their shards and partitions, their schemas, and rows of them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.sim.client_plans import (
    CLONED,
    CLONED_SHARDS,
    KEYED,
    KEYED_PARTITIONS,
    KEYED_SHARDS,
    PARTITIONED,
    PARTITIONED_SHARDS,
    PARTITIONS,
    PARTLY,
    PARTLY_PARTITIONS,
    PARTLY_SHARDS,
    WIDENED,
    WIDENED_SHARDS,
)
from elanus.sim.plan import AUTO_IDS, AUTO_IDS_SHARDS, COLLECTIONS
from elanus.sim.truth import KEY, VALUE

PARTITION = "p1"
SHARDS = {
    **COLLECTIONS,
    AUTO_IDS: AUTO_IDS_SHARDS,
    PARTITIONED: PARTITIONED_SHARDS,
    CLONED: CLONED_SHARDS,
    KEYED: KEYED_SHARDS,
    WIDENED: WIDENED_SHARDS,
    PARTLY: PARTLY_SHARDS,
}
KEYS = 400
EXTRA = "extra"
"""The field that comes and goes in `WIDENED`."""
_MORE = {"beta": "weight"}
"""A column that only one of the collections has, so that rows of one do not fit the other."""
_BY_VECTOR = ("beta", KEYED)
"""The collections whose clustering key is the vector."""


def partitions_of(name: str) -> tuple[str, ...]:
    """The partitions of a collection that clients create."""
    if name == KEYED:
        return ()
    if name == PARTLY:
        return PARTLY_PARTITIONS
    return PARTITIONS if name == PARTITIONED else (PARTITION,)


def key_partitions_of(name: str) -> int:
    """How many partitions the partition key of a collection selects from; 0: it has none."""
    return KEYED_PARTITIONS if name == KEYED else 0


@cache
def schema_of(name: str) -> CollectionSchema:
    unnumbered = FieldID(0)
    fields = [
        FieldSchema(unnumbered, KEY, DataType.INT64, is_primary=True, auto_id=name == AUTO_IDS),
        FieldSchema(
            unnumbered,
            VALUE,
            DataType.INT64,
            is_partition_key=name == KEYED,
            is_clustering_key=name not in _BY_VECTOR,
        ),
        FieldSchema(unnumbered, "vector", DataType.FLOAT_VECTOR, dim=2, is_clustering_key=name in _BY_VECTOR),
    ]
    if name in _MORE:
        fields.append(FieldSchema(unnumbered, _MORE[name], DataType.INT64))
    return CollectionSchema(name, tuple(fields))


def extra_value(value: int, field_id: FieldID) -> int:
    """Return what a row with this value has in the extra field: it says which of the fields of that name."""
    return 1000 * value + field_id


def rows_of(keys: list[int], values: list[int], of: CollectionSchema) -> pa.RecordBatch:
    """Rows of a collection of `schema_of`."""
    vectors = np.array([[value, key] for key, value in zip(keys, values, strict=True)], dtype=np.float32)
    schema = of.arrow_schema
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
    known = {KEY: pa.array(keys, pa.int64()), VALUE: pa.array(values, pa.int64()), "vector": flat}
    if EXTRA in of.by_name:
        field_id = of.field(EXTRA).field_id
        known[EXTRA] = pa.array([extra_value(value, field_id) for value in values], pa.int64())
    columns = [known.get(name, known[VALUE]) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
