"""Active and standby: one of the candidates is the coordinator, and writes of a previous one are refused.

An exclusive role is one key, put under a lease by the first candidate that finds it free. The others watch
the key and try when it is removed. Every transaction of the holder compares that key at the revision it got
when it was put (`FencedMeta`). So no write of a coordinator can follow a write of its successor, whatever
either of them believes, and however long the previous one was suspended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import structlog

from elanus.core.errors import LeaseLost, Unavailable
from elanus.meta.keeper import LeaseKeeper
from elanus.meta.port import (
    Change,
    Compare,
    CompareFailed,
    Delete,
    LeaseID,
    Listing,
    MetaStore,
    OutcomeUnknown,
    Put,
    Versioned,
    WatchBroken,
)
from elanus.meta.session import Session, exclusive_key

_PAUSE_S = 0.2
_log = structlog.get_logger("election")


async def elect(
    meta: MetaStore,
    role: str,
    address: str,
    *,
    ttl_s: int,
    monotonic_s: Callable[[], float],
    keeper: LeaseKeeper | None = None,
) -> Session:
    """Stand by until the role is free, and take it. Keeps trying while the store is unavailable.

    ``keeper``: as for `Session.register`.
    """
    while True:
        try:
            await _until_free(meta, exclusive_key(role))
            return await Session.register(
                meta, role, address, ttl_s=ttl_s, monotonic_s=monotonic_s, exclusive=True, keeper=keeper
            )
        except CompareFailed:
            continue  # another candidate was faster
        except (Unavailable, WatchBroken) as error:
            _log.info("election attempt failed; trying again", role=role, error=str(error))
            await asyncio.sleep(_PAUSE_S)


async def _until_free(meta: MetaStore, key: str) -> None:
    listing = await meta.listing(key)
    if not any(found == key for found, _ in listing.entries):
        return
    async with aclosing(meta.watch(key, listing.revision)) as watch:
        async for changes in watch:
            if any(change.key == key and change.entry is None for change in changes):
                return


class FencedMeta:
    """A `MetaStore` for the holder of an exclusive session: no transaction succeeds after the session ends.

    A transaction with an unknown outcome ends the session too: its holder no longer knows what is stored,
    and the next holder reads it from the store.
    """

    def __init__(self, meta: MetaStore, session: Session) -> None:
        self._meta = meta
        self._session = session

    async def get(self, key: str) -> Versioned | None:
        return await self._meta.get(key)

    async def list(self, prefix: str) -> Sequence[tuple[str, Versioned]]:
        return await self._meta.list(prefix)

    async def listing(self, prefix: str) -> Listing:
        return await self._meta.listing(prefix)

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        """As in the port; also raises `LeaseLost` when the session is over: nothing was applied."""
        fence = self._session.fence
        try:
            return await self._meta.txn(operations, [*compares, fence])
        except CompareFailed as error:
            if fence.key not in error.keys:
                raise
            self._session.give_up("another one has taken its place")
            raise LeaseLost(
                f"this {self._session.info.role} is no longer the active one; retry with the one that is"
            ) from error
        except OutcomeUnknown as error:
            self._session.give_up(error.message)
            raise

    async def grant_lease(self, ttl_s: int) -> LeaseID:
        return await self._meta.grant_lease(ttl_s)

    async def renew_lease(self, lease: LeaseID) -> int:
        return await self._meta.renew_lease(lease)

    async def revoke_lease(self, lease: LeaseID) -> None:
        await self._meta.revoke_lease(lease)

    def watch(self, prefix: str, after: int) -> AsyncGenerator[Sequence[Change], None]:
        return self._meta.watch(prefix, after)

    async def close(self) -> None:
        """Do nothing: the store outlives its fenced users."""
