"""Why a load does not go on, where its query nodes work but cannot get at the data, or have no room for it.

Such a load is tried again for as long as it takes. A client that waits for it gets the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from elanus.api.querycoord import LoadStall
from elanus.core.errors import DiskFull, InsufficientMemory, StoreAway, StoreRefused
from elanus.storage.port import StorageFailed

_HELD_UP = (DiskFull, InsufficientMemory, StorageFailed, StoreAway, StoreRefused)
"""Errors that somebody has to act on. Others, such as the loss of a node, the next attempts repair."""


class Stalls:
    """The failures of one collection's attempts since the last that succeeded. For the loop's thread."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._reason = ""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the outcome of an attempt: the body of the context."""
        began_s = asyncio.get_running_loop().time()
        try:
            yield
        except _HELD_UP as error:
            self._since_s = began_s if self._since_s is None else self._since_s
            self._reason = str(error)
            raise
        else:
            self._since_s = None

    def current(self) -> LoadStall | None:
        if self._since_s is None:
            return None
        return LoadStall(self._reason, asyncio.get_running_loop().time() - self._since_s)
