"""A store in memory, clocks, and a way to cut somebody off from the store, for the tests of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from elanus.core.errors import Unavailable
from elanus.meta.election import elect
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import Change
from elanus.meta.session import Session

TTL_S = 5


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Cable:
    """The store as one node reaches it: a cable that can be pulled, and answers that can be lost."""

    def __init__(self, store: MemoryMeta) -> None:
        self._store = store
        self.pulled = False
        self.answers_lost = False
        self.calls: list[str] = []
        self._torn = asyncio.Event()

    def pull(self) -> None:
        self.pulled = True
        self._torn.set()

    def plug(self) -> None:
        self.pulled = False
        self._torn = asyncio.Event()

    def __getattr__(self, method: str) -> Any:
        async def call(*args: Any) -> Any:
            self.calls.append(method)
            self._check()
            answer = await getattr(self._store, method)(*args)
            if self.answers_lost:
                raise Unavailable("the answer was lost")
            return answer

        return call

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[Sequence[Change], None]:
        self._check()
        watch = self._store.watch(prefix, after)
        while True:
            coming = asyncio.ensure_future(anext(watch))
            torn = asyncio.ensure_future(self._torn.wait())
            try:
                await asyncio.wait([coming, torn], return_when=asyncio.FIRST_COMPLETED)
                if self.pulled:
                    raise Unavailable("the watch broke off")
                yield coming.result()
            finally:
                coming.cancel()
                torn.cancel()
                await asyncio.gather(coming, torn, return_exceptions=True)

    def _check(self) -> None:
        if self.pulled:
            raise Unavailable("the store cannot be reached")


class Bench:
    def __init__(self) -> None:
        self._stood_still_s = 0.0
        self.store = MemoryMeta(self.now_s)

    def now_s(self) -> float:
        return now_s() + self._stood_still_s

    def stand_still(self, seconds: float) -> None:
        """Time passes, and nobody has had a turn: neither the store nor those who hold leases."""
        self._stood_still_s += seconds

    def cable(self) -> Cable:
        return Cable(self.store)

    async def register(self, role: str = "proxy", meta: Any = None, address: str = "here:1") -> Session:
        return await Session.register(meta or self.store, role, address, ttl_s=TTL_S, monotonic_s=self.now_s)

    async def elect(self, role: str = "rootcoord", meta: Any = None) -> Session:
        return await elect(meta or self.store, role, "here:1", ttl_s=TTL_S, monotonic_s=self.now_s)

    async def keys(self) -> list[str]:
        return [key for key, _ in await self.store.list("session/") if key != "session/id"]
