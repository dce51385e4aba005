"""The dispatcher (`elanus.log.dispatcher`) over every log: readers of all adapters join alike."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from test_log_contract import CHANNEL, KEPT, Adapter, make_adapter, with_log

from elanus.core.catalog import Checkpoint
from elanus.core.ids import CollectionID
from elanus.core.messages import MsgKind
from elanus.core.packs import ORIGIN
from elanus.core.timestamps import Timestamp
from elanus.log.dispatcher import Dispatcher
from elanus.log.port import EntryHeader, Log, NewEntry
from elanus.log.shared_reader import EntryPack


@pytest.fixture(params=["memory", *KEPT])
def adapter(request: pytest.FixtureRequest) -> Adapter:
    return make_adapter(request)


class Followed:
    """A vchannel that is followed through a dispatcher, with what it was handed."""

    def __init__(self, dispatcher: Dispatcher, vchannel: str, start: Checkpoint) -> None:
        self.stamps: list[int] = []
        self.subscription = dispatcher.follow(vchannel, start, self)

    def take(self, packs: Sequence[EntryPack]) -> None:
        for pack in packs:
            for found in pack.entries:
                assert found.payload == bytes([found.header.ts % 256]) * found.payload_bytes
                self.stamps.append(found.header.ts)

    def failed(self, error: Exception) -> None:
        raise AssertionError from error

    async def at(self, ts: int) -> None:
        come = asyncio.Event()
        self.subscription.watch(lambda: bool(come.set() or self.subscription.ts < ts))
        while self.subscription.ts < ts:
            come.clear()
            await come.wait()


def test_vchannels_that_are_followed_from_different_places_share_one_reader(adapter: Adapter) -> None:
    names = [f"{CHANNEL}_{number}v0" for number in range(3)]

    async def write(log: Log, first: int) -> None:
        """Three writes of each vchannel, one of them large, and a tick."""
        for ts in range(first, first + 9):
            header = EntryHeader(MsgKind.INSERT, Timestamp(ts), names[ts % 3], CollectionID(7), rows=1)
            size_bytes = 2_000_000 if ts == first + 4 else 20
            await log.append(CHANNEL, [NewEntry(header, [bytes([ts % 256]) * size_bytes])])
        await log.append(CHANNEL, [NewEntry(EntryHeader(MsgKind.TIME_TICK, Timestamp(first + 9), epoch=1))])

    async def use(log: Log) -> None:
        dispatcher = Dispatcher(log)
        await write(log, 1)
        await write(log, 11)
        early = Followed(dispatcher, names[0], ORIGIN)
        await early.at(20)
        seek = early.subscription.seek
        await write(log, 21)
        again, ahead = Followed(dispatcher, names[1], ORIGIN), Followed(dispatcher, names[2], seek)
        for followed in (early, again, ahead):
            await followed.at(30)
        await write(log, 31)
        for followed in (early, again, ahead):
            await followed.at(40)
        written = [ts for first in (1, 11, 21, 31) for ts in range(first, first + 9)]
        assert early.stamps == [ts for ts in written if ts % 3 == 0]
        assert again.stamps == [ts for ts in written if ts % 3 == 1]
        assert ahead.stamps == [ts for ts in written if ts % 3 == 2 and ts > 20]
        assert dispatcher.readers == 1
        assert early.subscription.seek.position == log.end(CHANNEL)
        await dispatcher.close()

    with_log(adapter, use)
