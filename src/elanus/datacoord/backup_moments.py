"""The moments of backups that are taking their pins.

All collections of a backup are pinned as of the moment of the first, by one call each. Until the last call
compaction must not fold in later deletes, however short `datacoord.retention_s` is. Nobody says which call
is the last, so a moment is held until some time after the latest.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.context import DataContext

_BETWEEN_S = 20.0
"""The longest pause between two calls of one backup."""


class BackupMoments:
    """Kept in memory: after a restart of the role, `datacoord.retention_s` alone counts."""

    def __init__(self, context: DataContext) -> None:
        self._moments = context.moments
        self._rootcoord = context.rootcoord
        self._clock = context.clock
        self._spawn = context.spawn
        self._until_s: dict[Timestamp, float] = {}
        """Until when each moment is held, by the monotonic clock."""

    async def begin(self) -> Timestamp:
        """Return the present, held. No compaction that is planned has folded in, or will, later deletes."""
        with self._moments.hold(NO_TIMESTAMP):  # one that is planned meanwhile may see a later present
            now = await self._rootcoord.alloc_timestamp(1)
            self.hold(now)
        return now

    def hold(self, moment: Timestamp) -> None:
        """Hold the moment, or hold it for longer."""
        is_held = self.is_held(moment)
        self._until_s[moment] = self._clock.monotonic_s() + _BETWEEN_S
        if not is_held:
            held = ExitStack()
            held.enter_context(self._moments.hold(moment))
            self._spawn(self._let_go(moment, held))

    def is_held(self, moment: Timestamp) -> bool:
        return moment in self._until_s

    async def _let_go(self, moment: Timestamp, held: ExitStack) -> None:
        with held:
            while True:
                left_s = self._until_s[moment] - self._clock.monotonic_s()
                if left_s <= 0:
                    del self._until_s[moment]
                    return
                await asyncio.sleep(left_s)
