"""Reporting to datacoord how far each vchannel has been read (Milvus's ``DataNodeTtMsg``)."""

from __future__ import annotations

import asyncio

import structlog

from elanus.api.datacoord import DataCoordApi
from elanus.core.errors import DeadlineExceeded, Unavailable
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
        """The last tick reported of each vchannel, and when: on the loop's clock, in milliseconds."""

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
            due = [channel for channel in self._owned if self._is_due(channel, now_ms)] if has_moved else []
            if due or now_ms - last_ms >= self._policy.idle_report_ms:
                last_ms = now_ms
                try:
                    await self._datacoord.report_ticks(self._epoch, tuple(c.tick() for c in due))
                except (Unavailable, DeadlineExceeded) as error:
                    _log.info("ticks not reported; trying again", error=error.message)
                    self._owned.moved.set()
                else:
                    self._reported |= {c.vchannel: (c.seek.ts, now_ms) for c in due}
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

    def _is_due(self, channel: ChannelProgress, now_ms: float) -> bool:
        if channel.ended:
            return False
        last = self._reported.get(channel.vchannel)
        if last is None:
            return True
        tick, reported_ms = last
        if channel.seek.ts == tick:
            return False
        return channel.has_pending() or now_ms - reported_ms >= self._policy.idle_report_ms
