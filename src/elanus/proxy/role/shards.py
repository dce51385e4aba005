"""Which rows and keys of a write go to which vchannel: by the hash of the primary key.

Within a vchannel, rows of a collection with a partition key are divided once more, by the hash of that key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from elanus.core.channels import shard_of_keys
from elanus.core.ids import PartitionID
from elanus.core.partition_keys import rows_of_partitions


@dataclass(frozen=True, slots=True)
class ShardRows:
    """The rows of one write that go to one vchannel. ``replaced``: see `UpsertMessage`.

    ``partition_id``: where a partition key sends them; None: to the partition of the write.
    """

    vchannel: str
    rows: pa.RecordBatch
    replaced: pa.Array | None = None
    partition_id: PartitionID | None = None


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The keys of one delete that belong to one vchannel."""

    vchannel: str
    keys: pa.Array


def rows_by_shard(
    rows: pa.RecordBatch, keys: pa.Array, vchannels: Sequence[str], replaced: pa.Array | None = None
) -> list[ShardRows]:
    """Split rows by the hash of their primary keys, each shard's rows in their original order."""
    if len(vchannels) == 1:
        return [ShardRows(vchannels[0], rows, replaced)]
    parts = _by_shard(keys, vchannels)
    order = pa.array(np.concatenate([at for _, at in parts]))
    rows = rows.take(order)  # once: taking each shard's rows costs as much again for every shard
    replaced = None if replaced is None else replaced.take(order)
    shards, begin = [], 0
    for vchannel, at in parts:
        own = None if replaced is None else replaced.slice(begin, len(at))
        shards.append(ShardRows(vchannel, rows.slice(begin, len(at)), own))
        begin += len(at)
    return shards


def shards_by_partition(
    shards: Sequence[ShardRows], field: str, partitions: Sequence[PartitionID]
) -> list[ShardRows]:
    """Split each shard's rows by the hash of their partition key, which is in the column ``field``."""
    split = []
    for shard in shards:
        for partition_id, numbers in rows_of_partitions(shard.rows.column(field), partitions):
            at = pa.array(numbers)
            replaced = None if shard.replaced is None else shard.replaced.take(at)
            split.append(ShardRows(shard.vchannel, shard.rows.take(at), replaced, partition_id))
    return split


def keys_by_shard(keys: pa.Array, vchannels: Sequence[str]) -> list[ShardKeys]:
    """Split keys by their hash, each shard's keys in their original order."""
    if len(vchannels) == 1:
        return [ShardKeys(vchannels[0], keys)]
    return [ShardKeys(v, keys.take(pa.array(at))) for v, at in _by_shard(keys, vchannels)]


def _by_shard(keys: pa.Array, vchannels: Sequence[str]) -> list[tuple[str, np.ndarray[Any, Any]]]:
    shards = shard_of_keys(keys, len(vchannels))
    order = np.argsort(shards, kind="stable")
    bounds = np.searchsorted(shards[order], np.arange(len(vchannels) + 1))
    parts = [order[bounds[n] : bounds[n + 1]] for n in range(len(vchannels))]
    return [(vchannels[n], part) for n, part in enumerate(parts) if len(part)]
