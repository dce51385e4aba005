"""Frozen dataclasses in the metadata store, as strict JSON.

A value is read back as exactly the requested type: a field that is missing or of another type raises
`CorruptMeta`, which names the key, and never yields a wrong value. Fields that a newer release added are
ignored.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from elanus.core.faults import MetaFault
from elanus.meta.port import Compare, MetaStore, Put, Versioned

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


class CorruptMeta(MetaFault):
    """A stored value is not what is expected under its key. Names the key, the type and the field."""


@dataclass(frozen=True, slots=True)
class Record(Generic[T]):
    """A stored value, under its key, at its revision."""

    key: str
    value: T
    revision: int

    @property
    def unchanged(self) -> Compare:
        """A comparison that holds as long as the key has not been written since."""
        return Compare(self.key, self.revision)


def absent(key: str) -> Compare:
    """Return a comparison that holds as long as there is no such key."""
    return Compare(key, 0)


def put(key: str, value: object) -> Put:
    """Return the operation that stores a value (a dataclass of JSON-like fields, ids and enums)."""
    return Put(key, _encoder.encode(value))


async def get_as(store: MetaStore, key: str, of: type[T]) -> Record[T] | None:
    """Return the value under the key; ``None`` when there is none. Raises `CorruptMeta`."""
    found = await store.get(key)
    return None if found is None else _record(key, found, of)


async def list_as(store: MetaStore, prefix: str, of: type[T]) -> Sequence[Record[T]]:
    """Return the values of all keys with the prefix, in key order. Raises `CorruptMeta`."""
    return [_record(key, found, of) for key, found in await store.list(prefix)]


def _record(key: str, found: Versioned, of: type[T]) -> Record[T]:
    try:
        value: T = _decoder(cast(Hashable, of)).decode(found.value)
    except msgspec.DecodeError as error:
        raise CorruptMeta(f"{key} does not hold a {of.__name__}: {error}") from error
    return Record(key, value, found.revision)


@cache
def _decoder(of: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(of, strict=True)
