"""The entries under a prefix of the metadata, kept up to date: a listing, and then every change since.

A watch may break: the connection is gone, or the store no longer has the changes since the watch's position.
Then the view lists again, and shows the difference at once. Its followers see the states the store went
through: perhaps not all of them, but always in order, and eventually the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType

import structlog

from elanus.core.errors import Unavailable
from elanus.meta.port import Change, MetaStore, StoreClosed, Versioned, WatchBroken
from elanus.meta.tasks import cancel_and_wait

_PAUSE_S = 0.2
_log = structlog.get_logger("meta")


class View:
    """``changed`` is called after every change, on the event loop. It should not raise: an exception is
    raised in the caller of `start` or `refresh`, or else logged, and ``changed`` is called again soon."""

    def __init__(self, meta: MetaStore, prefix: str, changed: Callable[[], None]) -> None:
        self._meta = meta
        self._prefix = prefix
        self._changed = changed
        self._entries: dict[str, Versioned] = {}
        self._revision = -1
        self._is_notified = True
        """Whether ``changed`` has processed the entries as they are now."""
        self._following: asyncio.Task[None] | None = None

    @property
    def entries(self) -> Mapping[str, Versioned]:
        return MappingProxyType(self._entries)

    async def start(self) -> None:
        """Return when the view shows the current entries. Raises `Unavailable`."""
        await self.refresh()
        self._following = asyncio.create_task(self._follow(), name=f"view of {self._prefix}")

    async def stop(self) -> None:
        await cancel_and_wait(self._following)

    async def refresh(self) -> None:
        """Show every entry that existed when this was called. Raises `Unavailable`."""
        known = self._revision
        listing = await self._meta.listing(self._prefix)
        if listing.revision < known:
            _log.error(
                "the metadata went back: it was put back to an older copy, or emptied",
                prefix=self._prefix,
                revision=listing.revision,
                known=known,
            )
        elif listing.revision < self._revision:
            return  # the watch is already further
        self._revision = listing.revision
        entries = dict(listing.entries)
        if entries != self._entries or not self._is_notified:
            self._entries = entries
            self._notify()

    async def _follow(self) -> None:
        while True:
            try:
                async with aclosing(self._meta.watch(self._prefix, self._revision)) as watch:
                    async for changes in watch:
                        self._apply([c for c in changes if c.revision > self._revision])
            except StoreClosed:
                return
            except (WatchBroken, Unavailable) as error:
                _log.info("watch interrupted; listing again", prefix=self._prefix, error=str(error))
                await asyncio.sleep(_PAUSE_S)
            except Exception:  # noqa: BLE001 - the view continues
                _log.exception("change not applied; listing again", prefix=self._prefix)
                await asyncio.sleep(_PAUSE_S)
            try:
                await self._list_again()
            except StoreClosed:
                return

    async def _list_again(self) -> None:
        while True:
            try:
                await self.refresh()
            except StoreClosed:
                raise
            except Unavailable as error:
                _log.warning("metadata not listed", prefix=self._prefix, error=error.message)
            except Exception:  # noqa: BLE001 - the view continues
                _log.exception("listed entries not applied; listing again", prefix=self._prefix)
                await asyncio.sleep(_PAUSE_S)
                continue
            return

    def _apply(self, changes: list[Change]) -> None:
        if not changes:
            return
        for change in changes:
            if change.entry is None:
                self._entries.pop(change.key, None)
            else:
                self._entries[change.key] = change.entry
        self._revision = changes[-1].revision
        self._notify()

    def _notify(self) -> None:
        self._is_notified = False
        self._changed()
        self._is_notified = True
