"""The partitions of a request: those that it names, or those on which the partition key decides."""

from __future__ import annotations

from elanus.core.errors import InvalidParameter, PartitionNotFound
from elanus.core.ids import PartitionID
from elanus.core.names import check_named_partition
from elanus.core.partition_keys import partitions_of_values
from elanus.expr import BoundFilter
from elanus.proxy.role.cache import CachedCollection


def refuse_partition_names(cached: CachedCollection, names: tuple[str, ...]) -> None:
    """Raises `InvalidParameter` if partitions are named and the partition key decides on them."""
    if names and cached.view.schema.partition_key is not None:
        raise InvalidParameter(
            "not support manually specifying the partition names if partition key mode is used: "
            f"partitions {', '.join(names)}; filter by {cached.view.schema.partition_key.name} instead"
        )


def read_partitions(
    cached: CachedCollection, names: tuple[str, ...], bound: BoundFilter
) -> tuple[PartitionID, ...]:
    """Return the partitions that a read looks at; none: all.

    They are those that it names, or those of the partition keys in its filter. Raises `InvalidParameter`, and
    `PartitionNotFound` with the reference's text for reads.
    """
    key = cached.view.schema.partition_key
    if key is not None:
        refuse_partition_names(cached, names)
        values = bound.values_of(key.name)
        return () if values is None else partitions_of_values(values, cached.key_partitions)
    for name in names:
        check_named_partition(name)
        if name not in cached.partitions:
            raise PartitionNotFound(f"partition name {name} not found")
    return tuple(dict.fromkeys(cached.partitions[name] for name in names))
