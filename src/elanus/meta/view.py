"""What lies under a prefix of the metadata, kept up to date: a listing, and then every change since.

A watch may break: the connection is gone, the store has forgotten where the watch stood. Then the view
lists anew, and shows the difference at once; whoever follows it sees the states the store went through,
perhaps not each of them, always in order, and the last one in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType

import structlog

from elanus.core.errors import Unavailable
from elanus.meta.port import Change, MetaStore, StoreClosed, Versioned, WatchBroken

_PAUSE_S = 0.2
_log = structlog.get_logger("meta")


class View:
    """``changed`` is called after every change, on the event loop. It should not raise: what it raises
    goes to who called `start` or `refresh`, else to the log, and it is called again soon."""

    def __init__(self, meta: MetaStore, prefix: str, changed: Callable[[], None]) -> None:
        self._meta = meta
        self._prefix = prefix
        self._changed = changed
        self._entries: dict[str, Versioned] = {}
        self._revision = -1
        self._is_told = True
        """Whether what is shown has been taken in by ``changed``."""
        self._following: asyncio.Task[None] | None = None

    @property
    def entries(self) -> Mapping[str, Versioned]:
        return MappingProxyType(self._entries)

    async def start(self) -> None:
        """Returns when it shows what is there. Raises `Unavailable`."""
        await self.refresh()
        self._following = asyncio.create_task(self._follow(), name=f"view of {self._prefix}")

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def refresh(self) -> None:
        """Show everything that was there when this was called. Raises `Unavailable`."""
        listing = await self._meta.listing(self._prefix)
        if listing.revision < self._revision:
            return  # the watch was faster
        self._revision = listing.revision
        entries = dict(listing.entries)
        if entries != self._entries or not self._is_told:
            self._entries = entries
            self._tell()

    async def _follow(self) -> None:
        while True:
            try:
                async with aclosing(self._meta.watch(self._prefix, self._revision)) as watch:
                    async for changes in watch:
                        self._take([c for c in changes if c.revision > self._revision])
            except StoreClosed:
                return
            except (WatchBroken, Unavailable) as error:
                _log.info("watching anew", prefix=self._prefix, error=str(error))
                await asyncio.sleep(_PAUSE_S)
            except Exception:  # noqa: BLE001 - the view goes on
                _log.exception("a change was not taken in", prefix=self._prefix)
                await asyncio.sleep(_PAUSE_S)
            try:
                await self._list_anew()
            except StoreClosed:
                return

    async def _list_anew(self) -> None:
        while True:
            try:
                await self.refresh()
            except StoreClosed:
                raise
            except Unavailable as error:
                _log.warning("cannot list", prefix=self._prefix, error=error.message)
            except Exception:  # noqa: BLE001 - the view goes on
                _log.exception("what is there was not taken in", prefix=self._prefix)
                await asyncio.sleep(_PAUSE_S)
                continue
            return

    def _take(self, changes: list[Change]) -> None:
        if not changes:
            return
        for change in changes:
            if change.entry is None:
                self._entries.pop(change.key, None)
            else:
                self._entries[change.key] = change.entry
        self._revision = changes[-1].revision
        self._tell()

    def _tell(self) -> None:
        self._is_told = False
        self._changed()
        self._is_told = True
