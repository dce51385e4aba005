"""Metadata in memory: for tests and the simulator. Nothing outlasts the object."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.meta.checks import check_transaction
from elanus.meta.port import Compare, CompareFailed, Delete, Put, StoreClosed, Versioned


class MemoryMeta:
    """The in-memory adapter of `elanus.meta.port.MetaStore`."""

    def __init__(self) -> None:
        self._entries: dict[str, Versioned] = {}
        self._revision = 0
        self._closed = False

    async def get(self, key: str) -> Versioned | None:
        self._check_open()
        return self._entries.get(key)

    async def list(self, prefix: str) -> Sequence[tuple[str, Versioned]]:
        self._check_open()
        return [(key, self._entries[key]) for key in sorted(self._entries) if key.startswith(prefix)]

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        self._check_open()
        check_transaction(operations, compares)
        if changed := [c.key for c in compares if self._revision_of(c.key) != c.revision]:
            raise CompareFailed(changed)
        if operations:
            self._revision += 1
        for operation in operations:
            if isinstance(operation, Put):
                self._entries[operation.key] = Versioned(bytes(operation.value), self._revision)
            else:
                self._entries.pop(operation.key, None)
        return self._revision

    async def close(self) -> None:
        self._closed = True

    def _revision_of(self, key: str) -> int:
        entry = self._entries.get(key)
        return 0 if entry is None else entry.revision

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the metadata store is closed")
