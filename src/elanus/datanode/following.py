"""Following the log: one reader for each pchannel, which reads headers only.

A reader begins at the oldest checkpoint of the pchannel's vchannels, assembles packs, and moves the progress
of each vchannel. At a drop it has datacoord commit the end of the vchannel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from elanus.api.datacoord import DataCoordApi
from elanus.core.catalog import Checkpoint
from elanus.core.errors import CommitRefused, ElanusError
from elanus.core.messages import MsgKind
from elanus.core.packs import Pack, PackAssembler
from elanus.datanode.orders import Orders
from elanus.datanode.ownership import OwnedChannels
from elanus.datanode.policy import RETRY_PAUSE_S
from elanus.datanode.progress import ChannelProgress
from elanus.log.port import CorruptLog, LogEntry, LogReader, Position

_DROP_TRIES_MAX = 10
_DAMAGED_PAUSE_S = 10.0
_log = structlog.get_logger("datanode")


class LogSource(Protocol):
    """The reading half of a log."""

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader: ...


class LogReaders:
    """The readers of a data node. Belongs to one event loop."""

    def __init__(self, log: LogSource, datacoord: DataCoordApi, owned: OwnedChannels, orders: Orders) -> None:
        self._log = log
        self._datacoord = datacoord
        self._owned = owned
        self._orders = orders
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failure: asyncio.Future[None] | None = None

    def failure(self) -> asyncio.Future[None]:
        """A future that gets the error of the first reader to fail from now on."""
        self._failure = asyncio.get_running_loop().create_future()
        return self._failure

    def pchannels(self) -> Sequence[str]:
        """The pchannels that are being read."""
        return tuple(self._tasks)

    def restart(self, pchannel: str) -> None:
        """Read the pchannel from the oldest checkpoint of its vchannels on."""
        self.stop(pchannel)
        self._owned.rewind(pchannel)
        task = asyncio.create_task(self._follow(pchannel), name=f"follow {pchannel}")
        self._tasks[pchannel] = task
        task.add_done_callback(self._ended)

    def stop(self, pchannel: str) -> None:
        task = self._tasks.pop(pchannel, None)
        if task is not None:
            task.cancel()

    def stop_all(self) -> Sequence[asyncio.Task[None]]:
        """Cancel all readers; returns their tasks, which may not have ended."""
        tasks = tuple(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        return tasks

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._failure is None or self._failure.done():
            return
        error = task.exception()
        if error is not None:
            self._failure.set_exception(error)

    async def _follow(self, pchannel: str) -> None:
        """Damage stops only the vchannels of this pchannel, and is checked again later."""
        while self._owned.rewind(pchannel):
            try:
                await self._read(pchannel)
            except CorruptLog as error:
                _log.error("log damaged", pchannel=pchannel, error=str(error), next_try_s=_DAMAGED_PAUSE_S)
                await asyncio.sleep(_DAMAGED_PAUSE_S)

    async def _read(self, pchannel: str) -> None:
        checkpoints = [c.checkpoint for c in self._owned.on(pchannel)]
        first = min(checkpoints, key=lambda c: c.position)
        start = Checkpoint(min(c.ts for c in checkpoints), first.position, first.tick, first.epoch)
        packs: PackAssembler[LogEntry] = PackAssembler(start)
        reader = self._log.open_reader(pchannel, Position(start.position), headers_only=True)
        try:
            while True:
                for entry in await reader.read():
                    pack = packs.feed(entry.header, entry.position, entry.next, entry)
                    if pack is not None:
                        await self._take(pchannel, pack)
        finally:
            reader.close()

    async def _take(self, pchannel: str, pack: Pack[LogEntry]) -> None:
        dropped: dict[str, ChannelProgress] = {}  # a drop may be announced twice
        for entry in pack.entries:
            channel = self._owned.get(entry.header.vchannel)
            if channel is None:
                continue
            channel.take(entry.header, entry.payload_bytes)
            if entry.header.kind is MsgKind.DROP_COLLECTION:
                dropped[channel.vchannel] = channel
        pack_bytes = sum(entry.payload_bytes for entry in pack.entries)
        for channel in self._owned.on(pchannel):
            channel.reach(pack.seek, pack.next_position, pack_bytes)
        self._owned.moved.set()
        for vchannel, channel in dropped.items():
            channel.ended = True
            await self._commit_drop(vchannel, channel.epoch)
            # Only now: if this reader is cancelled before, its successor reads the drop again.
            self._owned.remove(vchannel)
            self._orders.discard(vchannel)

    async def _commit_drop(self, vchannel: str, epoch: int) -> None:
        """Raises the error of the last of ten attempts: the node then registers again."""
        for _ in range(_DROP_TRIES_MAX - 1):
            try:
                await self._datacoord.channel_dropped(epoch, vchannel)
            except CommitRefused:
                raise  # replaced: trying again changes nothing
            except ElanusError as error:
                _log.warning("drop not committed; trying again", vchannel=vchannel, error=error.message)
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                return
        await self._datacoord.channel_dropped(epoch, vchannel)
