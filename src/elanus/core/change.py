"""A counter that grows with every change, to wait on: what level-triggered roles follow.

A role that follows another does not collect its events. It waits until *something* changed, looks at
what is, and does what is missing; so a lost or doubled notice costs nothing.

Who looks after many collections asks which of them the changes concerned, and is told as long as that is
remembered: else the change of one would cost a look at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice

from elanus.core.ids import CollectionID

REMEMBERED = 1024
"""Changes of which it is known what they concerned."""


class Changes:
    """``start``: where the counter begins. A role's next life must begin elsewhere, at its start time say."""

    def __init__(self, start: int) -> None:
        self._count = start
        self._latest: deque[CollectionID | None] = deque(maxlen=REMEMBERED)
        self._changed = asyncio.Event()

    @property
    def count(self) -> int:
        return self._count

    def happened(self, collection_id: CollectionID | None = None) -> None:
        """``collection_id``: the one that it concerned; ``None``: it may concern any."""
        self._count += 1
        self._latest.append(collection_id)
        self._changed.set()
        self._changed = asyncio.Event()

    def since(self, count: int) -> tuple[CollectionID, ...] | None:
        """The collections that changes after ``count`` concerned; ``None``: it may be any."""
        number = self._count - count
        if not 0 <= number <= len(self._latest):
            return None
        found = dict.fromkeys(islice(self._latest, len(self._latest) - number, None))
        named = tuple(collection_id for collection_id in found if collection_id is not None)
        return None if None in found else named

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
