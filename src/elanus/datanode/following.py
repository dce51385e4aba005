"""Following the log: each pchannel is read once, headers only, for all its vchannels.

A vchannel begins at its checkpoint (`elanus.log.dispatcher`). At a drop the node has datacoord commit the end
of the vchannel. A pchannel that is damaged, or was put back to an older copy, is tried again later, from
where it had been read to: what a vchannel has counted beyond its checkpoint is kept, so an order that arrives
meanwhile finds it. The same happens if the log begins after a vchannel's checkpoint, and the node has
registered again since: datacoord has no later checkpoint. If the collection is dropped meanwhile, the
vchannel is dropped without its log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence

import structlog

from elanus.api.datacoord import DataCoordApi
from elanus.core.channels import pchannel_of
from elanus.core.errors import CommitRefused, ElanusError
from elanus.datanode.orders import Orders
from elanus.datanode.ownership import OwnedChannels
from elanus.datanode.policy import RETRY_PAUSE_S
from elanus.datanode.progress import ChannelProgress
from elanus.log.dispatcher import Dispatcher
from elanus.log.port import CorruptLog, RewoundLog, TrimmedLog
from elanus.log.shared_reader import EntryPack, LogSource

_DROP_TRIES_MAX = 10
_DAMAGED_PAUSE_S = 10.0
_log = structlog.get_logger("datanode")


class LogReaders:
    """The readers of a data node. Belongs to one event loop. ``wrote`` is called when writes were read."""

    def __init__(
        self,
        log: LogSource,
        datacoord: DataCoordApi,
        owned: OwnedChannels,
        orders: Orders,
        wrote: Callable[[], None],
    ) -> None:
        self.dispatcher = Dispatcher(log, headers_only=True, ticked=owned.moved.set)
        self._datacoord = datacoord
        self._owned = owned
        self._orders = orders
        self._wrote = wrote
        self._tasks: set[asyncio.Task[None]] = set()
        self._damaged: dict[str, list[ChannelProgress]] = {}
        """By pchannel: the vchannels that are to be followed again."""
        self._trimmed: dict[str, int] = {}
        """By vchannel: the position of the checkpoint beyond which its log was found trimmed."""
        self._failure: asyncio.Future[None] | None = None

    def failure(self) -> asyncio.Future[None]:
        """Return a future that gets the error of the first vchannel that cannot be followed from now on."""
        self._failure = asyncio.get_running_loop().create_future()
        return self._failure

    def follow(self, channels: Iterable[ChannelProgress]) -> None:
        """Follow vchannels from where they have been read to. Others are not affected."""
        for channel in sorted(channels, key=lambda c: c.seek.position):  # the first of them serves the others
            channel.follow(self.dispatcher.follow(channel.vchannel, channel.seek, _Listener(self, channel)))

    def stop_all(self) -> Sequence[asyncio.Task[None]]:
        """Stop all reading; returns cancelled tasks, which may not have ended."""
        for task in self._tasks:
            task.cancel()
        self._damaged.clear()
        return (*self._tasks, *self.dispatcher.stop())

    def take(self, channel: ChannelProgress, packs: Sequence[EntryPack]) -> None:
        had_ended = channel.ended
        has_writes = [channel.take(pack) for pack in packs]
        self._owned.taken(channel)
        if any(has_writes):
            self._wrote()
        if channel.ended and not had_ended:  # a drop may be announced twice
            self._spawn(self._drop(channel))

    def failed(self, channel: ChannelProgress, error: Exception) -> None:
        """Damage stops only the vchannels of this pchannel, and is checked again later."""
        if not isinstance(error, (CorruptLog, RewoundLog)) and not self._is_lost(channel, error):
            self._fail(error)
            return
        pchannel = pchannel_of(channel.vchannel)
        if pchannel not in self._damaged:
            _log.error("log damaged", pchannel=pchannel, error=str(error), next_try_s=_DAMAGED_PAUSE_S)
            self._damaged[pchannel] = []
            self._spawn(self._follow_again(pchannel))
        self._damaged[pchannel].append(channel)

    def _is_lost(self, channel: ChannelProgress, error: Exception) -> bool:
        """Whether the log begins after a checkpoint from which it could not be read before either.

        The first time, the node registers again, and gets the latest checkpoint: the log may have been
        trimmed while another node owned the vchannel.
        """
        if not isinstance(error, TrimmedLog):
            return False
        position = channel.checkpoint.position
        before = self._trimmed.get(channel.vchannel)
        self._trimmed[channel.vchannel] = position
        return before == position

    async def _follow_again(self, pchannel: str) -> None:
        await asyncio.sleep(_DAMAGED_PAUSE_S)
        for channel in tuple(self._damaged[pchannel]):
            await self._drop_unread(channel)
        self.follow(c for c in self._damaged.pop(pchannel) if self._owned.get(c.vchannel) is c)

    async def _drop_unread(self, channel: ChannelProgress) -> None:
        """Give up a vchannel whose log cannot be read if its collection has been dropped."""
        try:
            is_dropped = await self._datacoord.channel_unreadable(channel.epoch, channel.vchannel)
        except ElanusError as error:
            _log.info("unreadable log not reported", vchannel=channel.vchannel, error=error.message)
            return
        if is_dropped:
            self._let_go(channel)

    async def _drop(self, channel: ChannelProgress) -> None:
        try:
            await self._commit_drop(channel.vchannel, channel.epoch)
        except CommitRefused:
            if self._owned.owns(channel.vchannel, channel.epoch):
                raise
            return  # another node owns it now
        self._let_go(channel)  # only now: if this task is cancelled before, the drop is read again

    def _let_go(self, channel: ChannelProgress) -> None:
        if self._owned.get(channel.vchannel) is channel:
            self._owned.remove(channel.vchannel)
            self._orders.discard(channel.vchannel)
            self._trimmed.pop(channel.vchannel, None)

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

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)


class _Listener:
    """Takes the packs of one vchannel: an `elanus.log.shared_reader.PackListener`."""

    def __init__(self, readers: LogReaders, channel: ChannelProgress) -> None:
        self._readers = readers
        self._channel = channel

    def take(self, packs: Sequence[EntryPack]) -> None:
        self._readers.take(self._channel, packs)

    def failed(self, error: Exception) -> None:
        self._readers.failed(self._channel, error)
