"""The broker of query channels under simulation: kept in memory, reached through the gate of a life.

What a life hands over stands in the channel in the order it was handed over. Each reader gets it at its own
pace, now and then late. The broker may lose all its channels, as one that keeps them in memory does when it
is restarted.
"""

from __future__ import annotations

import asyncio

from elanus.rpc.memory_channels import MemoryChannels
from elanus.rpc.querychannel import ChannelReader, Handed
from elanus.sim.chance import Chance
from elanus.sim.life import Life
from elanus.sim.scenario import FaultKind

_USUAL_S = 0.001


class SimChannels:
    """One per run; roles get a `handle`."""

    def __init__(self, chance: Chance) -> None:
        self.broker = MemoryChannels()
        self._chance = chance
        self._delays = chance.delays("channels", _USUAL_S)

    def handle(self, life: Life) -> ChannelsHandle:
        return ChannelsHandle(self, life)

    def lose(self) -> None:
        """All channels, with all that is in them."""
        self.broker.lose()

    def delay_s(self) -> float:
        slow = self._chance.meets(FaultKind.CHANNEL_SLOW)
        return self._delays.next_s() + (slow.amount if slow else 0.0)


class ChannelsHandle:
    """`elanus.rpc.querychannel.QueryChannels` for one life."""

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
