"""A counter that grows with every change, to wait on: what level-triggered roles follow.

A role that follows another does not collect its events. It waits until *something* changed, looks at
what is, and does what is missing; so a lost or doubled notice costs nothing.
"""

from __future__ import annotations

import asyncio


class Changes:
    """``start``: where the counter begins. A role's next life must begin elsewhere, at its start time say."""

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
        """The counter, as soon as it differs from ``since``, or after the timeout.

        It differs, not: it is larger, because a restarted role's counter begins anew.
        """
        if self._count == since:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
        return self._count
