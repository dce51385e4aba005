"""Applying deletes without holding up the event loop.

Few deletes to few segments are applied at once: that is cheaper than handing them to a thread. All others run
in a thread, in chunks of bounded work, one after the other. Between two chunks the threads are free for other
vchannels, so a delete of a million keys delays nobody else's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elanus.core.messages import DeleteMessage, UpsertMessage
from elanus.core.offload import Offload
from elanus.querynode.deletes import DeleteBatch, count_deleted, deletes_of_messages
from elanus.querynode.key_ranges import Visits


@dataclass(frozen=True, slots=True)
class DeleteLimits:
    """Limits of work, as numbers of keys; `VISIT_KEYS` says what visiting a segment counts as.

    ``inline_keys_max``: at most this much is done on the loop. ``chunk_keys_max``: about this much is handed
    to a thread at a time.
    """

    inline_keys_max: int = 8 * 1024
    chunk_keys_max: int = 32 * 1024


class DeleteApplier:
    """Sorts and applies deletes. ``offload`` runs what is too much for the loop; it raises nothing."""

    def __init__(self, offload: Offload, limits: DeleteLimits) -> None:
        self._offload = offload
        self._limits = limits

    async def sort(
        self, messages: Sequence[DeleteMessage | UpsertMessage], primary_key: str
    ) -> tuple[DeleteBatch, ...]:
        """As `deletes_of_messages`."""
        if count_deleted(messages) <= self._limits.inline_keys_max:
            return deletes_of_messages(messages, primary_key)
        return await self._offload(deletes_of_messages, messages, primary_key)

    async def apply(self, visits: Sequence[Visits]) -> None:
        """Make all visits, and return when all are done. Does not yield if there is little to do."""
        if sum(int(v.cost.sum()) for v in visits) <= self._limits.inline_keys_max:
            for v in visits:
                v.run(0, len(v))
            return
        for v in visits:
            pieces = v.split(self._limits.chunk_keys_max)
            chunk = np.cumsum(pieces.cost) // self._limits.chunk_keys_max
            ends = [*(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(pieces)]
            begin = 0
            for end in ends:
                await self._offload(pieces.run, begin, end)
                begin = end
