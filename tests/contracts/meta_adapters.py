"""The adapters of the metadata port, for its contract suites."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from elanus.meta.etcd import EtcdMeta
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import MetaStore
from elanus.meta.sqlite import SqliteMeta

Use = Callable[[MetaStore], Awaitable[None]]
WithStore = Callable[[Use], None]
_owners = itertools.count()


@dataclass(frozen=True)
class Place:
    """Where a store of one test is: ``endpoint`` is a running etcd's."""

    directory: Path
    endpoint: str

    @property
    def root(self) -> str:
        return f"test/{self.directory.name}"


Open = Callable[[Place], MetaStore]

LASTING: dict[str, Open] = {
    "sqlite": lambda place: SqliteMeta(place.directory / "meta.db", fsync=False),
    "etcd": lambda place: EtcdMeta([place.endpoint], root=place.root, owner=f"test-{next(_owners)}"),
}
ADAPTERS: dict[str, Open] = {"memory": lambda place: MemoryMeta(), **LASTING}


def opener(open_store: Open, place: Place) -> WithStore:
    """Runs a test's coroutine with a store that is opened before and closed after it."""

    def with_store(use: Use) -> None:
        async def run() -> None:
            store = open_store(place)
            try:
                await asyncio.wait_for(use(store), 20)
            finally:
                await store.close()

        asyncio.run(run())

    return with_store
