"""Metadata and objects under simulation: in memory, reached through the gate of a life.

A metadata transaction is applied at one moment and answered later. A role that dies in between never learns
whether it was applied. Every write of a transaction is shown to an observer, which checks the records
(`elanus.sim.records`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from elanus.core.errors import DiskFull, Unavailable
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import Change, Compare, Delete, LeaseID, Listing, Put, Versioned
from elanus.sim.chance import Chance
from elanus.sim.incarnation import Life
from elanus.sim.scenario import FaultKind
from elanus.storage.port import ObjectExists, ObjectInfo, ObjectMissing

MetaObserver = Callable[[Put | Delete], None]
_USUAL_S = 0.002


class SimMeta:
    """The simulated metadata store, one per run; each life uses it through a `handle`."""

    def __init__(self, chance: Chance, observe: MetaObserver) -> None:
        self.store = MemoryMeta(asyncio.get_running_loop().time)
        self.observe = observe
        self._chance = chance
        self._delays = chance.delays("metadata", _USUAL_S)

    def handle(self, life: Life) -> MetaHandle:
        return MetaHandle(self, life)

    def delay_s(self) -> float:
        slow = self._chance.meets(FaultKind.META_SLOW)
        return self._delays.next_s() + (slow.amount if slow else 0.0)


class MetaHandle:
    """`elanus.meta.port.MetaStore` for one life."""

    def __init__(self, meta: SimMeta, life: Life) -> None:
        self._meta = meta
        self._life = life

    async def get(self, key: str) -> Versioned | None:
        await self._pause()
        return await self._meta.store.get(key)

    async def list(self, prefix: str) -> Sequence[tuple[str, Versioned]]:
        await self._pause()
        return await self._meta.store.list(prefix)

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        await self._pause()
        revision = await self._meta.store.txn(operations, compares)
        for operation in operations:
            self._meta.observe(operation)
        await self._pause()
        return revision

    async def listing(self, prefix: str) -> Listing:
        await self._pause()
        return await self._meta.store.listing(prefix)

    async def grant_lease(self, ttl_s: int) -> LeaseID:
        await self._pause()
        lease = await self._meta.store.grant_lease(ttl_s)
        await self._pause()
        return lease

    async def renew_lease(self, lease: LeaseID) -> int:
        await self._pause()
        left_s = await self._meta.store.renew_lease(lease)
        await self._pause()
        return left_s

    async def revoke_lease(self, lease: LeaseID) -> None:
        await self._pause()
        await self._meta.store.revoke_lease(lease)

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[Sequence[Change], None]:
        await self._pause()
        async with aclosing(self._meta.store.watch(prefix, after)) as watch:
            async for changes in watch:
                await self._pause()
                yield changes

    async def close(self) -> None:
        """Do nothing: the store outlives the roles that use it."""

    async def _pause(self) -> None:
        if self._life.is_held:
            await self._life.gate()
        await asyncio.sleep(self._meta.delay_s())
        if self._life.is_held:
            await self._life.gate()


class MemoryStore:
    """`elanus.storage.port.ObjectStore` in memory; sometimes it is full, slow, or does not answer.

    ``take_time`` may block a caller that has a thread of its own.
    """

    url = "memory:"
    calls_at_once = 1
    writes_at_once = 1

    def __init__(
        self,
        chance: Chance,
        wall_ms: Callable[[], int],
        observe_delete: Callable[[str], None],
        take_time: Callable[[], None],
    ) -> None:
        self._chance = chance
        self._take_time = take_time
        self._wall_ms = wall_ms
        self._observe_delete = observe_delete
        self._objects: dict[str, tuple[pa.Buffer, ObjectInfo]] = {}

    def __contains__(self, path: str) -> bool:
        """Like `peek`, without faults."""
        return path in self._objects

    def check(self) -> None:
        """Do nothing: memory can always be used."""

    def put(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        if path in self._objects:
            raise ObjectExists(path)
        if self._chance.meets(FaultKind.STORE_FULL):
            raise DiskFull(f"no room left while writing {path}; free disk space, then retry")
        self._take_time()
        content = pa.py_buffer(bytes(data))
        modified = datetime.fromtimestamp(self._wall_ms() / 1000, UTC)
        self._objects[path] = content, ObjectInfo(path, content.size, modified)

    def put_file(self, path: str, source: Path) -> None:
        self.put(path, source.read_bytes())
        source.unlink()

    def get(self, path: str) -> pa.Buffer:
        if self._chance.meets(FaultKind.STORE_AWAY):
            raise Unavailable(f"{path} cannot be read now: the object store does not answer")
        self._take_time()
        return self.peek(path)

    def peek(self, path: str) -> pa.Buffer:
        """Like `get`, for the judges: without faults."""
        try:
            return self._objects[path][0]
        except KeyError:
            raise ObjectMissing(path) from None

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(path))

    def open_unmapped(self, path: str) -> pa.NativeFile:
        return self.open(path)

    def local_path(self, path: str, scratch: Path) -> Path:
        file = scratch / path.replace("/", "-")
        file.write_bytes(self.get(path))
        return file

    def head(self, path: str) -> ObjectInfo:
        try:
            return self._objects[path][1]
        except KeyError:
            raise ObjectMissing(path) from None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        below = f"{prefix}/" if prefix else ""
        yield from [info for path, (_, info) in self._objects.items() if path.startswith(below)]

    def delete(self, path: str) -> None:
        if path in self._objects:
            self._observe_delete(path)
        self._objects.pop(path, None)

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)
