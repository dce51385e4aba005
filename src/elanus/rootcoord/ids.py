"""Unique ids: blocks are reserved in the metadata, then handed out from memory.

Ids start at a number with the shape of the reference's ids (18 digits): clients show them, and a number
far from any row count is easier to recognize.
"""

from __future__ import annotations

import asyncio

import msgspec

from elanus.meta.port import MetaStore, Put

_KEY = "rootcoord/ids"
_FIRST = 440_000_000_000_000_000
_BLOCK = 1_000_000


class IdAllocator:
    """Allocates ids. Unused ids of a block that was reserved before a crash are never used."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._next = 0
        self._reserved = 0
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        saved = await self._meta.get(_KEY)
        self._next = self._reserved = msgspec.json.decode(saved.value, type=int) if saved else _FIRST

    async def allocate(self, count: int) -> int:
        """Return the first of ``count`` consecutive ids."""
        if count < 1:
            raise ValueError(f"cannot allocate {count} ids")
        async with self._lock:
            if self._next + count > self._reserved:
                reserved = self._next + count + _BLOCK
                await self._meta.txn([Put(_KEY, msgspec.json.encode(reserved))])
                self._reserved = reserved
            first = self._next
            self._next += count
            return first
