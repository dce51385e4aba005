"""Atomic changes of any number of metadata records.

A transaction of the store is small (128 operations in etcd), and a range may touch the segments of a thousand
partitions. So a change that does not fit is first written as a whole, under one key: this decides it. Then
its records are written in batches, and the key is deleted. If the key is found after a crash or an error, the
writing resumes where it ended before anything else is done.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from elanus.core.errors import CommitRefused
from elanus.meta.port import Compare, CompareFailed, Delete, MetaStore, Put

RECORDS_AT_ONCE = 100
"""How many records one transaction changes."""
Item = TypeVar("Item")
_DECIDED = "datacoord/decided"


def in_batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Cut into parts that one transaction can change or remove."""
    for first in range(0, len(items), RECORDS_AT_ONCE):
        yield items[first : first + RECORDS_AT_ONCE]


class Records:
    """Remembers the revision of each record that it read or wrote, and refuses to overwrite a record that
    another process has changed."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._revisions: dict[str, int] = {}
        self._unwritten: dict[str, bytes] = {}
        self._decided = False

    async def start(self) -> None:
        """Finish a change that was decided before a crash."""
        decided = await self._meta.get(_DECIDED)
        if decided is None:
            return
        self._decided = True
        self._unwritten = msgspec.msgpack.decode(zlib.decompress(decided.value), type=dict[str, bytes])
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
        if len(records) <= RECORDS_AT_ONCE:
            await self._write(records)
            return
        first = self._unchanged(islice(records, RECORDS_AT_ONCE))
        whole = Put(_DECIDED, zlib.compress(msgspec.msgpack.encode(dict(records))))
        await self._transact([whole], [Compare(_DECIDED, 0), *first])
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
            batch = dict(islice(self._unwritten.items(), RECORDS_AT_ONCE))
            await self._write(batch)
            for key in batch:
                del self._unwritten[key]
        if self._decided:
            await self._meta.txn([Delete(_DECIDED)])
            self._decided = False

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
