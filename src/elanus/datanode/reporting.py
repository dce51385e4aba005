"""Reporting to datacoord how far each vchannel has been read (Milvus's ``DataNodeTtMsg``).

A report looks at the vchannels with writes beyond their checkpoints and at those that datacoord waits for or
has asked about, not at every vchannel. The others are reported when their last report is old.
"""

from __future__ import annotations

import asyncio

import structlog

from elanus.api.datacoord import DataCoordApi
from elanus.core.errors import DeadlineExceeded, Unavailable
from elanus.core.timestamps import Timestamp
from elanus.datanode.ownership import OwnedChannels
from elanus.datanode.policy import DataNodePolicy
from elanus.datanode.progress import ChannelProgress

_log = structlog.get_logger("datanode")


class Reporter:
    """The reports of one registration, which has the ``epoch``."""

    def __init__(
        self, epoch: int, datacoord: DataCoordApi, owned: OwnedChannels, policy: DataNodePolicy
    ) -> None:
        self._epoch = epoch
        self._datacoord = datacoord
        self._owned = owned
        self._policy = policy
        self._reported: dict[str, tuple[int, float]] = {}
        """The last tick reported of each vchannel, and when it was last looked at: on the loop's clock, in
        milliseconds. In that order, the oldest first."""
        self._awaited: tuple[str, ...] = ()
        """Idle vchannels whose ticks datacoord awaits."""

    async def run(self) -> None:
        """Report until cancelled. Raises `ElanusError` when datacoord refuses.

        A report is sent even when nothing has moved, so that a new coordinator can answer "not registered".
        One that is not answered is repeated with the next: the registration, and the jobs under it, may still
        be in force.
        """
        loop = asyncio.get_running_loop()
        last_ms = loop.time() * 1000
        while True:
            has_moved = await self._movement()
            now_ms = loop.time() * 1000
            due = self._due(now_ms) if has_moved else []
            if due or now_ms - last_ms >= self._policy.idle_report_ms:
                last_ms = now_ms
                try:
                    ticks = tuple(c.tick() for c in due)
                    self._awaited = await self._datacoord.report_ticks(self._epoch, ticks)
                except (Unavailable, DeadlineExceeded) as error:
                    _log.info("ticks not reported; trying again", error=error.message)
                    self._owned.moved.set()
                else:
                    for tick in ticks:  # a vchannel may have moved on during the call
                        self._note(tick.vchannel, tick.ts, now_ms)
                    if self._awaited:
                        self._owned.moved.set()
            await asyncio.sleep(self._policy.report_ms / 1000)

    async def _movement(self) -> bool:
        """Wait until a vchannel has moved; False if none has until an empty report is due."""
        try:
            async with asyncio.timeout(self._policy.idle_report_ms / 1000):
                await self._owned.moved.wait()
        except TimeoutError:
            return False
        self._owned.moved.clear()
        return True

    def _due(self, now_ms: float) -> list[ChannelProgress]:
        """Return the vchannels that have moved since their last report, of those whose turn it is."""
        owned, old = self._owned, self._idle(now_ms)
        turn = dict.fromkeys((*owned.new, *owned.pending, *self._awaited, *owned.asked, *old))
        due: list[ChannelProgress] = []
        for channel in map(owned.get, turn):
            if channel is None or channel.ended:
                continue
            last = self._reported.get(channel.vchannel)
            if last is None or last[0] != channel.seek.ts:
                due.append(channel)
            elif not channel.has_pending():
                self._note(channel.vchannel, channel.seek.ts, now_ms)  # its turn comes again later
        return due

    def _idle(self, now_ms: float) -> list[str]:
        """Return the vchannels that were last looked at long ago. Forgets those that are not owned any
        more."""
        old: list[str] = []
        for vchannel, (_, looked_ms) in self._reported.items():
            if now_ms - looked_ms < self._policy.idle_look_ms:
                break
            old.append(vchannel)
        for vchannel in old:
            if not self._owned.is_live(vchannel):
                del self._reported[vchannel]
        return old

    def _note(self, vchannel: str, ts: Timestamp, now_ms: float) -> None:
        self._reported.pop(vchannel, None)
        self._reported[vchannel] = (ts, now_ms)
        self._owned.reported(vchannel, ts)
