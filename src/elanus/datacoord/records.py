"""Atomic changes of any number of metadata records.

A transaction of the store is small (128 operations and 1.5 MB in etcd), and a range may touch the segments
of a thousand partitions. So a change that does not fit is first written as a whole, under one key: this
decides it. Then its records are written in batches, and the key is deleted. If the key is found after a
crash or an error, the writing resumes where it ended before anything else is done.

A change that does not fit in one value (the drop of a vchannel with ten thousands of segments) is first
written in parts, under keys of their own; the one key then says how many there are, and decides it as well.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from elanus.core.batches import batched
from elanus.core.errors import CommitRefused
from elanus.meta.port import Compare, CompareFailed, Delete, MetaStore, Put

RECORDS_AT_ONCE = 100
"""How many records one transaction changes."""
Item = TypeVar("Item")
_DECIDED = "datacoord/decided"
_PARTS = "datacoord/decided_part/"
_IN_PARTS = b"parts:"
_PART_BYTES = 900_000
_OVERHEAD_BYTES = 10
"""The encoding adds at most this much to a key and its value."""


def in_batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Cut into parts that one transaction can change or remove."""
    return batched(items, RECORDS_AT_ONCE)


class Records:
    """Remembers the revision of each record that it read or wrote, and refuses to overwrite a record that
    another process has changed."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._revisions: dict[str, int] = {}
        self._unwritten: dict[str, bytes] = {}
        self._decided = False
        self._parts: set[str] = set()

    async def start(self) -> None:
        """Finish a change that was decided before a crash."""
        decided = await self._meta.get(_DECIDED)
        parts = {key: stored.value for key, stored in await self._meta.list(_PARTS)}
        self._parts = set(parts)
        if decided is None:
            await self._remove_parts()
            return
        self._decided = True
        if decided.value.startswith(_IN_PARTS):
            count = int(decided.value.removeprefix(_IN_PARTS))
            for number in range(count):
                self._unwritten |= _records(parts[f"{_PARTS}{number}"])
        else:
            self._unwritten = _records(zlib.decompress(decided.value))
        for key in self._unwritten:
            stored = await self._meta.get(key)
            self._revisions[key] = stored.revision if stored else 0
        await self._write_out()

    async def load(self, prefix: str) -> Sequence[bytes]:
        """Return the values of all records with the prefix."""
        found = await self._meta.list(prefix)
        self._revisions |= {key: stored.revision for key, stored in found}
        return [stored.value for _, stored in found]

    async def reload(self, keys: Iterable[str]) -> Sequence[tuple[str, bytes]]:
        """Read records again and return the keys and values of those that exist."""
        found = []
        for key in keys:
            stored = await self._meta.get(key)
            self._revisions[key] = stored.revision if stored else 0
            if stored is not None:
                found.append((key, stored.value))
        return found

    async def put(self, records: Mapping[str, bytes]) -> None:
        """Write all records or none. Raises `CommitRefused` when one changed meanwhile, and whatever the
        store raises."""
        await self._write_out()
        if len(_first_batch(records)) == len(records):
            await self._write(records)
            return
        first = self._unchanged(islice(records, RECORDS_AT_ONCE))
        await self._transact([await self._whole(records)], [Compare(_DECIDED, 0), *first])
        self._decided, self._unwritten = True, dict(records)

    async def finish(self) -> None:
        """Write the records that a large change has left unwritten. The next `put` does so as well."""
        await self._write_out()

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove at most `RECORDS_AT_ONCE` records, in one transaction."""
        await self._write_out()
        await self._meta.txn([Delete(key) for key in keys])
        for key in keys:
            self._revisions.pop(key, None)

    async def _write_out(self) -> None:
        while self._unwritten:
            batch = _first_batch(self._unwritten)
            await self._write(batch)
            for key in batch:
                del self._unwritten[key]
        if self._decided:
            await self._meta.txn([Delete(_DECIDED)])
            self._decided = False
        await self._remove_parts()

    async def _whole(self, records: Mapping[str, bytes]) -> Put:
        """Return the operation that decides a change, after writing what does not fit in it."""
        *parts, last = _cut(records)
        if not parts:
            return Put(_DECIDED, zlib.compress(msgspec.msgpack.encode(last)))
        for number, part in enumerate((*parts, last)):
            key = f"{_PARTS}{number}"
            self._parts.add(key)
            await self._meta.txn([Put(key, msgspec.msgpack.encode(part))])
        return Put(_DECIDED, _IN_PARTS + str(len(parts) + 1).encode())

    async def _remove_parts(self) -> None:
        """Remove parts that decide nothing: their change was never decided, or is written out.

        Raises `CommitRefused` if it was decided after all: the answer of the store was lost.
        """
        while self._parts:
            batch = tuple(islice(self._parts, RECORDS_AT_ONCE))
            await self._transact([Delete(key) for key in batch], [Compare(_DECIDED, 0)])
            self._parts.difference_update(batch)

    async def _write(self, records: Mapping[str, bytes]) -> None:
        revision = await self._transact([Put(k, v) for k, v in records.items()], self._unchanged(records))
        self._revisions |= dict.fromkeys(records, revision)

    def _unchanged(self, keys: Iterable[str]) -> list[Compare]:
        return [Compare(key, self._revisions.get(key, 0)) for key in keys]

    async def _transact(self, operations: Sequence[Put | Delete], compares: Sequence[Compare]) -> int:
        try:
            return await self._meta.txn(operations, compares)
        except CompareFailed as error:
            raise CommitRefused(f"another coordinator changed {', '.join(error.keys)}") from error


def _records(encoded: bytes) -> dict[str, bytes]:
    return msgspec.msgpack.decode(encoded, type=dict[str, bytes])


def _first_batch(records: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the first records, as many as one transaction can change; at least one."""
    batch: dict[str, bytes] = {}
    size_bytes = 0
    for key, value in islice(records.items(), RECORDS_AT_ONCE):
        size_bytes += len(key) + len(value)
        if batch and size_bytes > _PART_BYTES:
            break
        batch[key] = value
    return batch


def _cut(records: Mapping[str, bytes]) -> list[dict[str, bytes]]:
    """Return the records in parts that each fit in one value; at least one part."""
    parts: list[dict[str, bytes]] = [{}]
    size_bytes = 0
    for key, value in records.items():
        one_bytes = len(key) + len(value) + _OVERHEAD_BYTES
        if size_bytes + one_bytes > _PART_BYTES and parts[-1]:
            parts.append({})
            size_bytes = 0
        parts[-1][key] = value
        size_bytes += one_bytes
    return parts
