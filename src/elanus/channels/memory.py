"""Query channels inside one process: for tests, the simulator, and a cluster's roles run together.

They make the same promises as a broker: one order per channel, positions from 1 on, and a channel that is
removed is lost to all its readers. A bounded number of messages is kept; a reader that requests an older one
has lost the channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque

from elanus.api.query_channel import ChannelReader, Handed
from elanus.core.errors import ChannelLost

KEPT_MAX_MESSAGES = 10_000


class _Channel:
    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: deque[bytes] = deque(maxlen=KEPT_MAX_MESSAGES)
        self.published = 0
        self.taken: dict[str, int] = {}
        """The position of each message that was handed over, by its mark."""
        self.lost = False
        self.changed = asyncio.Event()

    @property
    def first(self) -> int:
        return self.published - len(self.messages) + 1

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class MemoryChannels:
    """Implements `elanus.api.query_channel.QueryChannels`. Belongs to one event loop."""

    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}
        self._marks = itertools.count()

    async def create(self, channel: str) -> None:
        self._channels.setdefault(channel, _Channel(channel))

    async def remove(self, channel: str) -> None:
        removed = self._channels.pop(channel, None)
        if removed is not None:
            removed.lost = True
            removed.notify()

    def lose(self) -> None:
        """Lose all channels at once, as a broker does when it restarts."""
        for channel in self._channels.values():
            channel.lost = True
            channel.notify()
        self._channels.clear()

    async def publish(self, channel: str, message: bytes) -> int:
        found = self._found(channel)
        found.messages.append(message)
        found.published += 1
        found.notify()
        return found.published

    async def hand_over(self, channel: str, message: bytes) -> Handed:
        handed = Handed(channel, message, str(next(self._marks)))
        with contextlib.suppress(ChannelLost):
            await self.confirm(handed)
        return handed

    async def confirm(self, handed: Handed) -> int:
        taken = self._found(handed.channel).taken
        if handed.mark not in taken:
            taken[handed.mark] = await self.publish(handed.channel, handed.message)
            if len(taken) > KEPT_MAX_MESSAGES:
                del taken[next(iter(taken))]
        return taken[handed.mark]

    async def end(self, channel: str) -> int:
        return self._found(channel).published + 1

    async def open_reader(self, channel: str, start: int) -> ChannelReader:
        return _Reader(self._found(channel), start)

    def _found(self, channel: str) -> _Channel:
        found = self._channels.get(channel)
        if found is None:
            raise ChannelLost(f"query channel {channel} does not exist: ask querycoord for its successor")
        return found


class _Reader:
    def __init__(self, channel: _Channel, start: int) -> None:
        self._channel = channel
        self._next = start or channel.first

    async def next(self) -> tuple[int, bytes]:
        channel = self._channel
        while not channel.lost and self._next > channel.published:
            await channel.changed.wait()
        if channel.lost or self._next < channel.first:
            raise ChannelLost(f"query channel {channel.name} is lost to this reader: ask for its successor")
        position = self._next
        self._next += 1
        return position, channel.messages[position - channel.first]

    async def close(self) -> None:
        """Does nothing: a reader holds no resources."""
