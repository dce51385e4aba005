"""Virtual and physical channels: their names, and the shard of each row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.hashing import hash_int64, hash_strings
from elanus.core.ids import CollectionID

PCHANNEL_PREFIX = "by-dev-rootcoord-dml"


def pchannel_name(number: int) -> str:
    return f"{PCHANNEL_PREFIX}_{number}"


def vchannel_name(pchannel: str, collection_id: CollectionID, shard: int) -> str:
    return f"{pchannel}_{collection_id}v{shard}"


def pchannel_of(vchannel: str) -> str:
    """Return the pchannel that carries a vchannel."""
    return vchannel.rsplit("_", 1)[0]


def collection_of(vchannel: str) -> CollectionID:
    """Return the id in the name of a vchannel."""
    return CollectionID(int(vchannel.rsplit("_", 1)[1].partition("v")[0]))


def shard_of_keys(keys: pa.Array, shards: int) -> npt.NDArray[np.int64]:
    """Return the shard number of each primary key (int64 or string). shape (n,), values in [0, shards)."""
    if shards == 1:
        return np.zeros(len(keys), dtype=np.int64)
    if pa.types.is_integer(keys.type):
        hashes = hash_int64(keys.to_numpy(zero_copy_only=False))
        return (hashes % np.uint32(shards)).astype(np.int64)
    return (hash_strings(keys) % np.uint32(shards)).astype(np.int64)
