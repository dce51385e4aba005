"""A counter that grows with every change, to wait on: what level-triggered roles follow.

A role that follows another does not collect its events. It waits until *something* changed, looks at
what is, and does what is missing; so a lost or doubled notice costs nothing.
"""

from __future__ import annotations

import asyncio


class Changes:
    """``start``: where the counter begins; a role's next life must begin elsewhere (its start time will do)."""

    def __init__(self, start: int) -> None:
        self._count = start
        self._changed = asyncio.Event()

    @property
    def count(self) -> int:
        return self._count

    def happened(self) -> None:
        self._count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, since: int, timeout_s: float) -> int:
        """The counter, as soon as it differs from ``since`` (a restarted role begins anew), or after the timeout."""
        if self._count == since:
            try:
                await asyncio.wait_for(self._changed.wait(), timeout_s)
            except TimeoutError:
                pass
        return self._count
