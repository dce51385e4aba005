"""The argument checks of all metadata adapters, in one place: what SQLite accepts, etcd accepts as well."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.errors import RecordTooLarge
from elanus.meta.port import (
    LEASE_TTL_MAX_S,
    LEASE_TTL_MIN_S,
    TXN_COMPARES_MAX,
    TXN_MAX_BYTES,
    TXN_OPERATIONS_MAX,
    VALUE_MAX_BYTES,
    Compare,
    Delete,
    Put,
)


def check_transaction(operations: Sequence[Put | Delete], compares: Sequence[Compare]) -> None:
    """Raises `ValueError` for a transaction outside the limits, a repeated key, or an invalid key; of a value
    that is too large it is `RecordTooLarge`, which clients understand."""
    if len(operations) > TXN_OPERATIONS_MAX or len(compares) > TXN_COMPARES_MAX:
        raise ValueError(
            f"a transaction holds at most {TXN_OPERATIONS_MAX} operations and {TXN_COMPARES_MAX} "
            f"comparisons, not {len(operations)} and {len(compares)}"
        )
    size_bytes = 0
    seen: set[str] = set()
    for operation in operations:
        _check_key(operation.key)
        if operation.key in seen:
            raise ValueError(f"two operations of one transaction are on {operation.key}")
        seen.add(operation.key)
        size_bytes += len(operation.key)
        if isinstance(operation, Put):
            size_bytes += len(operation.value)
            if len(operation.value) > VALUE_MAX_BYTES:
                raise RecordTooLarge(
                    f"the record {operation.key} would have {len(operation.value)} bytes, at most "
                    f"{VALUE_MAX_BYTES} fit: shorten names, descriptions and properties, or use fewer fields"
                )
    if size_bytes > TXN_MAX_BYTES:
        raise ValueError(f"the transaction has {size_bytes} bytes, at most {TXN_MAX_BYTES} fit")
    for compare in compares:
        _check_key(compare.key)


def check_ttl(ttl_s: int) -> None:
    """Raises `ValueError` for a lease time that some adapter does not support."""
    if not LEASE_TTL_MIN_S <= ttl_s <= LEASE_TTL_MAX_S:
        raise ValueError(
            f"a lease lasts between {LEASE_TTL_MIN_S} and {LEASE_TTL_MAX_S} s without renewal, not {ttl_s} s"
        )


def _check_key(key: str) -> None:
    if not key or not key.isascii() or not key.isprintable():
        raise ValueError(f"{key!r} is no metadata key: keys are printable ASCII")
