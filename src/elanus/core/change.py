"""A counter that grows with every change and can be waited on: the signal for level-triggered roles.

A role that follows another does not collect its events. It waits until *something* has changed, reads the
current state, and does what is missing, so a lost or duplicated notification is harmless.

A role that manages many collections can ask which of them the changes concerned, as long as those changes are
remembered. Otherwise a change of one collection would require an inspection of all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice

from elanus.core.ids import CollectionID

REMEMBERED = 1024
"""How many of the latest changes are remembered with the collection that they concerned."""


class Changes:
    """A counter of changes.

    ``start``: the counter's first value. It must differ after each restart of the role; a start time will do.
    """

    def __init__(self, start: int) -> None:
        self._count = start
        self._latest: deque[CollectionID | None] = deque(maxlen=REMEMBERED)
        self._changed = asyncio.Event()

    @property
    def count(self) -> int:
        return self._count

    def happened(self, collection_id: CollectionID | None = None) -> None:
        """Count a change. ``collection_id``: the collection that it concerns; ``None``: it may be any."""
        self._count += 1
        self._latest.append(collection_id)
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed_since(self, since: int) -> tuple[CollectionID, ...] | None:
        """Return the collections that changes after ``since`` concerned; ``None``: it may be any."""
        number = self._count - since
        if not 0 <= number <= len(self._latest):
            return None
        found = dict.fromkeys(islice(self._latest, len(self._latest) - number, None))
        named = tuple(collection_id for collection_id in found if collection_id is not None)
        return None if None in found else named

    async def wait_change(self, since: int, timeout_s: float) -> int:
        """Return the counter as soon as it differs from ``since``, or after the timeout.

        The test is "differs", not "is larger", because the counter of a restarted role starts over.
        """
        if self._count == since:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
        return self._count
