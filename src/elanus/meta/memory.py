"""Metadata in memory: for tests and the simulator. Nothing outlives the object."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence

from elanus.meta.checks import check_transaction, check_ttl
from elanus.meta.embedded import ExpiryChecks, Hub, Leases, changes_of
from elanus.meta.port import (
    Change,
    Compare,
    CompareFailed,
    Delete,
    LeaseID,
    Listing,
    Put,
    StoreClosed,
    Versioned,
)


class MemoryMeta:
    """The in-memory adapter of `elanus.meta.port.MetaStore`. Leases follow the clock it is given."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._entries: dict[str, Versioned] = {}
        self._revision = 0
        self._closed = False
        self._hub = Hub()
        self._leases = Leases(monotonic_s)
        self._checks = ExpiryChecks(self._end_leases)

    async def get(self, key: str) -> Versioned | None:
        self._check_open()
        return self._entries.get(key)

    async def list(self, prefix: str) -> Sequence[tuple[str, Versioned]]:
        self._check_open()
        return [(key, self._entries[key]) for key in sorted(self._entries) if key.startswith(prefix)]

    async def listing(self, prefix: str) -> Listing:
        return Listing(await self.list(prefix), self._revision)

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        self._check_open()
        check_transaction(operations, compares)
        if changed := [c.key for c in compares if self._revision_of(c.key) != c.revision]:
            raise CompareFailed(changed)
        self._leases.check(operations)
        self._apply(operations)
        return self._revision

    async def grant_lease(self, ttl_s: int) -> LeaseID:
        self._check_open()
        check_ttl(ttl_s)
        self._checks.begin()
        return self._leases.grant(ttl_s)

    async def renew_lease(self, lease: LeaseID) -> int:
        self._check_open()
        return self._leases.renew(lease)

    async def revoke_lease(self, lease: LeaseID) -> None:
        self._check_open()
        self._end(lease)

    def watch(self, prefix: str, after: int) -> AsyncGenerator[Sequence[Change], None]:
        return self._hub.watch(prefix, after)

    async def close(self) -> None:
        self._closed = True
        self._hub.close()
        await self._checks.stop()

    def _apply(self, operations: Sequence[Put | Delete]) -> None:
        if not operations:
            return
        self._revision += 1
        changes = [
            change
            for change in changes_of(operations, self._revision)
            if change.entry is not None or change.key in self._entries
        ]
        for change in changes:
            if change.entry is not None:
                self._entries[change.key] = change.entry
            else:
                del self._entries[change.key]
        self._leases.applied(operations)
        self._hub.publish(changes)

    async def _end_leases(self) -> None:
        for lease in self._leases.over():
            self._end(lease)

    def _end(self, lease: LeaseID) -> None:
        self._apply(self._leases.removals(lease))
        self._leases.end(lease)

    def _revision_of(self, key: str) -> int:
        entry = self._entries.get(key)
        return 0 if entry is None else entry.revision

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the metadata store is closed")
