"""From the rows of an insert or upsert to a write: their partition, their keys and their shards.

Nothing here waits or has an effect, apart from taking ids.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from elanus.core.errors import InvalidParameter, SchemaMismatch
from elanus.core.ids import ALL_PARTITIONS, PartitionID
from elanus.core.names import DEFAULT_PARTITION
from elanus.core.quarantine import misfit_rows
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.fresh_keys import TakeIds, keys_in_shards_of, keys_of_ids
from elanus.proxy.role.named_partitions import refuse_partition_names
from elanus.proxy.role.shards import rows_by_shard, shards_by_partition
from elanus.proxy.role.writes import RowWrite


def write_partition(cached: CachedCollection, name: str) -> PartitionID:
    """Return the partition that a write goes to; `ALL_PARTITIONS`: each row goes by its partition key.

    ``name``: as the client gave it, or empty. Raises `PartitionNotFound`, `InvalidParameter`.
    """
    if cached.view.schema.partition_key is None:
        return cached.partition_id(name or DEFAULT_PARTITION)
    refuse_partition_names(cached, (name,) if name else ())
    return ALL_PARTITIONS


def row_write(
    cached: CachedCollection,
    partition_id: PartitionID,
    rows: pa.RecordBatch,
    take_ids: TakeIds,
    *,
    replaces: bool,
) -> tuple[pa.Array, RowWrite]:
    """Return the primary keys to report to the client, and the write to carry out.

    With automatic keys an upsert's rows get fresh keys, each in the shard of the key that it replaces, unless
    the collection keeps keys that clients send. ``replaces``: an upsert, whose rows have distinct keys.
    Raises `SchemaMismatch` when the rows do not fit the schema.
    """
    view = cached.view
    replaced: pa.Array | None = None
    key_field = view.schema.primary_field
    first_id = take_ids(rows.num_rows)
    if replaces and gets_fresh_keys(cached):
        replaced = rows.column(key_field.name)
        rows = _with_keys(rows, cached, keys_in_shards_of(replaced, len(view.vchannels), take_ids))
    elif key_field.auto_id and key_field.name not in rows.schema.names:
        rows = _with_keys(rows, cached, keys_of_ids(first_id, rows.num_rows, key_field.arrow_type))
    # Never true of decoded rows, which were decoded with this schema. In the log such rows would be lost.
    if reason := misfit_rows(rows, view.schema):
        raise SchemaMismatch(f"rows do not fit collection {view.name}: {reason}")
    keys = rows.column(key_field.name)
    shards = rows_by_shard(rows, keys, view.vchannels, replaced)
    if view.schema.partition_key is not None:
        shards = shards_by_partition(shards, view.schema.partition_key.name, cached.key_partitions)
    return keys, RowWrite(
        cached.collection_id,
        partition_id,
        shards,
        first_id,
        replaces=replaces,
    )


def gets_fresh_keys(cached: CachedCollection) -> bool:
    """Whether an upsert's rows get keys other than those that were sent."""
    return cached.view.schema.primary_field.auto_id and not cached.keeps_sent_keys


def _with_keys(rows: pa.RecordBatch, cached: CachedCollection, keys: pa.Array) -> pa.RecordBatch:
    """Return the rows with these primary keys, columns in the schema's order."""
    schema = cached.view.schema
    columns = [keys if f is schema.primary_field else rows.column(f.name) for f in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)


def refuse_repeated_keys(field: str, rows: pa.RecordBatch) -> None:
    """Refuse an upsert with several rows of one key, as the reference does.

    The rows of a batch have no order that its sender could rely on.
    """
    encoded = rows.column(field).dictionary_encode()
    if len(encoded.dictionary) == rows.num_rows:
        return
    repeated = int(np.argmax(np.bincount(encoded.indices.to_numpy()) > 1))
    raise InvalidParameter(
        "duplicate primary keys are not allowed in the same batch: several rows have the "
        f"{field} {encoded.dictionary[repeated].as_py()!r}; send one row of each key"
    )
