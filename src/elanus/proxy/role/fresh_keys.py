"""Automatic primary keys: fresh ids, turned into keys.

A row lives in the shard that its key hashes to: deletes and later upserts of the key go there. An upsert
gives its rows new keys, and the delete of the old row and the new row must be one record in one shard. So a
fresh id is used for a row only if it hashes to the shard of the key that the row replaces. Other ids are left
unused.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from elanus.core.channels import shard_of_keys

TakeIds = Callable[[int], int]
"""Takes a count and returns the first of as many consecutive fresh ids."""

_IDS_AT_ONCE_MAX = 1_000_000
_SPARE = 3
"""Standard deviations: so few rounds are needed in nearly all cases."""


def keys_of_ids(first_id: int, count: int, kind: pa.DataType) -> pa.Array:
    """Return consecutive ids as keys of the primary key's Arrow type."""
    return pa.array(np.arange(first_id, first_id + count)).cast(kind)


def keys_in_shards_of(replaced: pa.Array, shards: int, take_ids: TakeIds) -> pa.Array:
    """Return a fresh key for each replaced one, in the same one of ``shards`` shards."""
    if shards == 1:
        return keys_of_ids(take_ids(len(replaced)), len(replaced), replaced.type)
    wanted = shard_of_keys(replaced, shards)
    ids = np.empty(len(replaced), dtype=np.int64)
    open_rows = [np.flatnonzero(wanted == shard) for shard in range(shards)]
    while longest := max(map(len, open_rows)):
        likely = shards * (longest + math.ceil(_SPARE * (math.sqrt(longest) + 1)))
        count = min(likely, _IDS_AT_ONCE_MAX)
        first = take_ids(count)
        found = shard_of_keys(keys_of_ids(first, count, replaced.type), shards)
        for shard, rows in enumerate(open_rows):
            fitting = np.flatnonzero(found == shard)[: len(rows)]
            ids[rows[: len(fitting)]] = first + fitting
            open_rows[shard] = rows[len(fitting) :]
    return pa.array(ids).cast(replaced.type)
