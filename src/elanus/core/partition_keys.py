"""Partition keys: a field whose values decide the partition of each row.

A collection with such a field has a fixed number of partitions, named ``_default_0``, ``_default_1`` …, and
a row is in the partition that the hash of its key selects. The hash is the one that maps primary keys to
shards, as in the reference. Reads whose filter names key values look at the partitions of those values alone.
These partitions are not the user's: requests name none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.channels import shard_of_keys
from elanus.core.errors import CollectionIllegalSchema, InvalidParameter
from elanus.core.ids import PartitionID
from elanus.core.limits import KEY_PARTITIONS_MAX
from elanus.core.names import DEFAULT_PARTITION
from elanus.core.schema import CollectionSchema

ISOLATION_PROPERTY = "partitionkey.isolation"
_DEFAULT_PARTITIONS = 16
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def checked_partitions(schema: CollectionSchema, asked: int) -> int:
    """Return how many partitions a new collection gets for its key; 0: it has no key.

    ``asked``: by the client; 0: the default. Raises `InvalidParameter`.
    """
    if schema.partition_key is None:
        if asked not in (0, 1):  # every collection has one partition at first
            raise InvalidParameter(
                "num_partitions should only be specified with partition key field enabled, "
                f"got num_partitions = {asked}"
            )
        return 0
    if asked < 0:
        raise InvalidParameter(
            "the specified partitions should be greater than 0 if partition key is used, "
            f"got num_partitions = {asked}"
        )
    if asked > KEY_PARTITIONS_MAX:
        raise InvalidParameter(f"partition number ({asked}) exceeds max configuration ({KEY_PARTITIONS_MAX})")
    return asked or _DEFAULT_PARTITIONS


def partition_names(count: int) -> tuple[str, ...]:
    """Return the names of the partitions of a key, in the order of their numbers."""
    return tuple(f"{DEFAULT_PARTITION}_{number}" for number in range(count))


def key_partitions(partitions: Mapping[str, PartitionID]) -> tuple[PartitionID, ...]:
    """Return the partitions of a collection with a key, in the order of their numbers."""
    return tuple(partitions[name] for name in partition_names(len(partitions)))


def rows_of_partitions(
    keys: pa.Array, partitions: Sequence[PartitionID]
) -> list[tuple[PartitionID, npt.NDArray[np.int64]]]:
    """Return the partitions that rows with these keys go to, each with its row numbers, int64 (n,),
    ascending.

    ``keys``: one for each row, without nulls. ``partitions``: see `key_partitions`.
    """
    numbers = shard_of_keys(keys, len(partitions))
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    parts = np.split(order, starts[1:])
    return [(partitions[number], part) for number, part in zip(found.tolist(), parts, strict=True)]


def partitions_of_values(values: pa.Array, partitions: Sequence[PartitionID]) -> tuple[PartitionID, ...]:
    """Return the partitions that rows with these key values are in.

    No values: one partition, because a read of none would be one of all.
    """
    if len(values) == 0:
        return (partitions[0],)
    numbers = np.unique(shard_of_keys(values, len(partitions)))
    return tuple(partitions[number] for number in numbers.tolist()) if len(numbers) < len(partitions) else ()


def isolates_keys(properties: Mapping[str, str], schema: CollectionSchema) -> bool:
    """Return whether every search names one value of the partition key.

    Raises `InvalidParameter`, and `CollectionIllegalSchema` if there is no such key.
    """
    text = properties.get(ISOLATION_PROPERTY)
    if text is None or text in _FALSE:
        return False
    if text not in _TRUE:
        raise InvalidParameter(f"{ISOLATION_PROPERTY} is {text!r}: give true or false")
    if schema.partition_key is None:
        raise CollectionIllegalSchema(
            "partition key isolation mode is enabled but no partition key field is set. Please set the "
            f"partition key first: illegal collection schema[collection={schema.name}]"
        )
    return True
