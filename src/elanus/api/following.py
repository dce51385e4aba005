"""Following the changes of another role (`elanus.core.change`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from elanus.core.errors import ElanusError
from elanus.core.ids import CollectionID

_WAIT_S = 5.0
_RETRY_PAUSE_S = 1.0


class ChangeSource(Protocol):
    """See `elanus.api.datacoord.ChangeCalls`."""

    async def wait_change(self, since: int, timeout_s: float) -> int: ...
    async def changed_since(self, since: int) -> tuple[CollectionID, ...] | None: ...


async def follow_changes(
    source: ChangeSource,
    changed: Callable[[tuple[CollectionID, ...] | None], None],
    unreached: Callable[[ElanusError], None],
) -> None:
    """Call ``changed`` whenever the role has changed, and every few seconds, until cancelled.

    Its argument: the collections that are concerned; None if it may be any. ``unreached`` is called with the
    error when the role does not answer. The first answer concerns all collections.
    """
    seen = 0
    while True:
        try:
            now = await source.wait_change(seen, _WAIT_S)
            concerned = await source.changed_since(seen) if now != seen else ()
        except ElanusError as error:
            unreached(error)
            await asyncio.sleep(_RETRY_PAUSE_S)
            continue
        seen = now
        changed(concerned)
