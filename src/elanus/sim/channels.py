"""The broker of query channels under simulation: in memory, reached through the gate of a life.

A channel holds messages in the order in which they were handed over. Each reader receives them at its own
pace, sometimes late. The broker can lose all its channels, as an in-memory broker does when it restarts.
"""

from __future__ import annotations

import asyncio

from elanus.api.query_channel import ChannelReader, Handed
from elanus.channels.memory import MemoryChannels
from elanus.sim.chance import Chance
from elanus.sim.incarnation import Life
from elanus.sim.scenario import FaultKind

_USUAL_S = 0.001


class SimChannels:
    """The simulated broker, one per run; each life uses it through a `handle`."""

    def __init__(self, chance: Chance) -> None:
        self.broker = MemoryChannels()
        self._chance = chance
        self._delays = chance.delays("channels", _USUAL_S)

    def handle(self, life: Life) -> ChannelsHandle:
        return ChannelsHandle(self, life)

    def lose(self) -> None:
        """Lose all channels, with all their messages."""
        self.broker.lose()

    def delay_s(self) -> float:
        slow = self._chance.meets(FaultKind.CHANNEL_SLOW)
        return self._delays.next_s() + (slow.amount if slow else 0.0)


class ChannelsHandle:
    """`elanus.api.query_channel.QueryChannels` for one life."""

    def __init__(self, channels: SimChannels, life: Life) -> None:
        self._channels = channels
        self._broker = channels.broker
        self._life = life

    async def create(self, channel: str) -> None:
        await self.pause()
        await self._broker.create(channel)
        await self.pause()

    async def remove(self, channel: str) -> None:
        await self.pause()
        await self._broker.remove(channel)

    async def publish(self, channel: str, message: bytes) -> int:
        await self.pause()
        position = await self._broker.publish(channel, message)
        await self.pause()
        return position

    async def hand_over(self, channel: str, message: bytes) -> Handed:
        if self._life.is_held:
            await self._life.gate()
        return await self._broker.hand_over(channel, message)

    async def confirm(self, handed: Handed) -> int:
        await self.pause()
        return await self._broker.confirm(handed)

    async def end(self, channel: str) -> int:
        await self.pause()
        return await self._broker.end(channel)

    async def open_reader(self, channel: str, start: int) -> ChannelReader:
        await self.pause()
        return _Reader(self, await self._broker.open_reader(channel, start))

    async def pause(self) -> None:
        if self._life.is_held:
            await self._life.gate()
        await asyncio.sleep(self._channels.delay_s())
        if self._life.is_held:
            await self._life.gate()


class _Reader:
    def __init__(self, handle: ChannelsHandle, reader: ChannelReader) -> None:
        self._handle = handle
        self._reader = reader

    async def next(self) -> tuple[int, bytes]:
        message = await self._reader.next()
        await self._handle.pause()
        return message

    async def close(self) -> None:
        await self._reader.close()
