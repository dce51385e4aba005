"""The contract of every broker of query channels (`elanus.api.query_channel.QueryChannels`)."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from nats.aio.msg import Msg

from elanus.api.query_channel import (
    PAYLOAD_MAX_BYTES,
    ChannelReader,
    DqRequest,
    QueryChannels,
    SealedSegmentsChangeInfo,
    decode_message,
    encode_message,
)
from elanus.channels import nats as nats_channels
from elanus.channels.memory import MemoryChannels
from elanus.channels.nats import NatsChannels
from elanus.core.errors import ChannelLost, InvalidParameter, Unavailable
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.devcluster.nats import Nats
from elanus.nats import follower
from elanus.nats.connection import Interrupted, NatsConnection
from elanus.nats.source import NatsSource
from tests.e2e.relay import Relay

TIMEOUT_S = 20
CHANNEL = "by-dev/dql 7 r0 v1"
Use = Callable[[QueryChannels], Awaitable[None]]
WithChannels = Callable[[Use], None]


async def on_nats(url: str, prefix: str, use: Use) -> None:
    channels = await NatsChannels.open(NatsSource((url,), prefix=prefix))
    try:
        await asyncio.wait_for(use(channels), TIMEOUT_S)
    finally:
        await channels.close()


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.services)])
def with_channels(request: pytest.FixtureRequest) -> WithChannels:
    if request.param == "memory":
        return lambda use: asyncio.run(asyncio.wait_for(use(MemoryChannels()), TIMEOUT_S))
    url = request.getfixturevalue("nats_server").url
    return lambda use: asyncio.run(on_nats(url, f"channels-{uuid.uuid4().hex}", use))


async def take(reader: ChannelReader, count: int) -> list[tuple[int, bytes]]:
    return [await reader.next() for _ in range(count)]


def test_every_reader_sees_one_order_from_its_position_on(with_channels: WithChannels) -> None:
    async def use(channels: QueryChannels) -> None:
        await channels.create(CHANNEL)
        early = await channels.open_reader(CHANNEL, 0)
        published = [channels.publish(CHANNEL, str(n).encode()) for n in range(100)]
        positions = await asyncio.gather(*published)
        assert sorted(positions) == list(range(1, 101))
        in_order = sorted((position, str(n).encode()) for n, position in enumerate(positions))
        late = await channels.open_reader(CHANNEL, 40)
        assert await take(early, 100) == in_order
        assert await take(late, 61) == in_order[39:]
        for reader in (early, late):
            await reader.close()

    with_channels(use)


def test_the_end_is_where_the_next_message_comes(with_channels: WithChannels) -> None:
    async def use(channels: QueryChannels) -> None:
        await channels.create(CHANNEL)
        for _ in range(3):
            end = await channels.end(CHANNEL)
            assert await channels.publish(CHANNEL, b"x") == end
        await channels.remove(CHANNEL)
        with pytest.raises(ChannelLost):
            await channels.end(CHANNEL)

    with_channels(use)


def test_a_reader_waits_for_what_is_not_there_yet(with_channels: WithChannels) -> None:
    async def use(channels: QueryChannels) -> None:
        await channels.create(CHANNEL)
        await channels.publish(CHANNEL, b"1")
        reader = await channels.open_reader(CHANNEL, 3)
        waiting = asyncio.ensure_future(reader.next())
        await channels.publish(CHANNEL, b"2")
        assert not waiting.done()
        await channels.publish(CHANNEL, b"3")
        assert await waiting == (3, b"3")
        await reader.close()

    with_channels(use)


def test_channels_do_not_mix_and_are_made_once(with_channels: WithChannels) -> None:
    async def use(channels: QueryChannels) -> None:
        for name in ("a", "a.b", "a/b", "a b"):
            await channels.create(name)
            assert await channels.publish(name, name.encode()) == 1
            await channels.create(name)
        for name in ("a", "a.b", "a/b", "a b"):
            reader = await channels.open_reader(name, 0)
            assert await reader.next() == (1, name.encode())
            await reader.close()

    with_channels(use)


def test_what_is_handed_over_stands_in_line(with_channels: WithChannels) -> None:
    async def use(channels: QueryChannels) -> None:
        await channels.hand_over(CHANNEL, b"nobody misses it")
        await channels.create(CHANNEL)
        reader = await channels.open_reader(CHANNEL, 0)
        for number in range(1, 20, 2):
            await channels.hand_over(CHANNEL, str(number).encode())
            assert await channels.publish(CHANNEL, str(number + 1).encode()) == number + 1
        assert await take(reader, 20) == [(n, str(n).encode()) for n in range(1, 21)]
        await reader.close()

    with_channels(use)


def test_what_was_handed_over_is_confirmed_and_stands_there_once(with_channels: WithChannels) -> None:
    async def use(channels: QueryChannels) -> None:
        early = await channels.hand_over(CHANNEL, b"finds no channel")
        with pytest.raises(ChannelLost):
            await channels.confirm(early)
        await channels.create(CHANNEL)
        first = await channels.hand_over(CHANNEL, b"1")
        second = await channels.hand_over(CHANNEL, b"1")
        assert [await channels.confirm(handed) for handed in (second, first, second)] == [2, 1, 2]
        assert [await channels.confirm(early) for _ in range(2)] == [3, 3]
        assert await channels.end(CHANNEL) == 4

    with_channels(use)


@pytest.mark.services
def test_what_was_handed_to_a_connection_that_breaks_stands_there_once(nats_server: Nats) -> None:
    async def use(near: QueryChannels) -> None:
        await near.create(CHANNEL)
        far = await NatsChannels.open(NatsSource((f"nats://{relay.address}",), prefix=prefix))
        try:
            reader = await near.open_reader(CHANNEL, 0)
            await far.hand_over(CHANNEL, b"1")
            assert await reader.next() == (1, b"1")
            relay.stall()
            await far.hand_over(CHANNEL, b"2")
            relay.cut()
            await far.hand_over(CHANNEL, b"3")
            assert await near.end(CHANNEL) == 2
            relay.repair()
            assert sorted(data for _, data in await take(reader, 2)) == [b"2", b"3"]
            assert await far.publish(CHANNEL, b"4") == 4
            await reader.close()
        finally:
            await far.close()

    prefix = f"channels-{uuid.uuid4().hex}"
    relay = Relay(nats_server.url.removeprefix("nats://"))
    try:
        asyncio.run(on_nats(nats_server.url, prefix, use))
    finally:
        relay.close()


def test_a_channel_that_is_not_there_is_lost(with_channels: WithChannels) -> None:
    async def use(channels: QueryChannels) -> None:
        with pytest.raises(ChannelLost, match=CHANNEL):
            await channels.publish(CHANNEL, b"x")
        with pytest.raises(ChannelLost, match=CHANNEL):
            await channels.open_reader(CHANNEL, 0)
        await channels.remove(CHANNEL)

    with_channels(use)


def test_a_removed_channel_is_lost_to_all(with_channels: WithChannels) -> None:
    async def use(channels: QueryChannels) -> None:
        await channels.create(CHANNEL)
        reader = await channels.open_reader(CHANNEL, 0)
        waiting = asyncio.ensure_future(reader.next())
        await channels.publish(CHANNEL, b"x")
        await waiting
        waiting = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0.01)
        await channels.remove(CHANNEL)
        with pytest.raises(ChannelLost, match=CHANNEL):
            await asyncio.wait_for(waiting, 5)
        with pytest.raises(ChannelLost, match=CHANNEL):
            await channels.publish(CHANNEL, b"x")
        await channels.remove(CHANNEL)
        await channels.create("successor")
        assert await channels.publish("successor", b"x") == 1
        await reader.close()

    with_channels(use)


def test_the_largest_payload_travels_whole(with_channels: WithChannels) -> None:
    request = DqRequest(7, NodeID(1), "results", CollectionID(3), 1.5, bytes(range(256)) * 1024)
    change = SealedSegmentsChangeInfo(CollectionID(3), 9, {SegmentID(4): NodeID(2)}, {}, {"v0": NodeID(2)})

    async def use(channels: QueryChannels) -> None:
        await channels.create(CHANNEL)
        for message in (request, change):
            await channels.publish(CHANNEL, encode_message(message))
        reader = await channels.open_reader(CHANNEL, 0)
        assert [decode_message(data) for _, data in await take(reader, 2)] == [request, change]
        await reader.close()

    assert len(request.read) == PAYLOAD_MAX_BYTES
    with_channels(use)


@pytest.mark.services
def test_a_message_whose_answer_is_lost_stands_there_once(
    nats_server: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, answers = NatsConnection.request, 0

    async def forgetful(self: NatsConnection, subject: str, *rest: object) -> Msg:
        nonlocal answers
        answer = await ask(self, subject, *rest)  # type: ignore[arg-type]
        if not subject.startswith("$JS"):
            answers += 1
            if answers % 2:
                raise Interrupted("the answer was lost")
        return answer

    async def use(channels: QueryChannels) -> None:
        await channels.create(CHANNEL)
        assert [await channels.publish(CHANNEL, b"x") for _ in range(5)] == [1, 2, 3, 4, 5]
        assert answers == 10

    monkeypatch.setattr(NatsConnection, "request", forgetful)
    asyncio.run(on_nats(nats_server.url, f"channels-{uuid.uuid4().hex}", use))


@pytest.mark.services
def test_what_is_too_old_is_lost(nats_server: Nats, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(channels: QueryChannels) -> None:
        await channels.create(CHANNEL)
        for number in range(8):
            await channels.publish(CHANNEL, str(number).encode())
        newest = await channels.open_reader(CHANNEL, 0)
        assert await take(newest, 5) == [(n + 1, str(n).encode()) for n in range(3, 8)]
        oldest = await channels.open_reader(CHANNEL, 1)
        with pytest.raises(ChannelLost, match="trimmed"):
            await oldest.next()
        for reader in (newest, oldest):
            await reader.close()

    monkeypatch.setattr(nats_channels, "KEPT_MAX_MESSAGES", 5)
    asyncio.run(on_nats(nats_server.url, f"channels-{uuid.uuid4().hex}", use))


async def aged(channels: NatsChannels, position: int) -> None:
    """Return when the channel does not keep this position any more."""
    while (await channels._check(CHANNEL))[0] <= position:  # noqa: ASYNC110 - NATS does not report it
        await asyncio.sleep(0.02)


@pytest.mark.services
def test_a_reader_cut_off_for_longer_than_messages_are_kept_gets_an_error(
    nats_server: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(near: QueryChannels) -> None:
        await near.create(CHANNEL)
        far = await NatsChannels.open(NatsSource((f"nats://{relay.address}",), prefix=prefix))
        try:
            behind, ahead = [await far.open_reader(CHANNEL, start) for start in (1, 3)]
            await near.publish(CHANNEL, b"1")
            assert await behind.next() == (1, b"1")
            relay.stall()
            await near.publish(CHANNEL, b"a version that it misses")
            await aged(cast(NatsChannels, near), 2)
            relay.cut()
            relay.repair()
            with pytest.raises(ChannelLost, match="position 2 is trimmed"):
                await behind.next()
            await near.publish(CHANNEL, b"3")
            assert await ahead.next() == (3, b"3")  # it has missed nothing
            for reader in (behind, ahead):
                await reader.close()
        finally:
            await far.close()

    monkeypatch.setattr(nats_channels, "KEPT_S", 1.0)
    prefix = f"channels-{uuid.uuid4().hex}"
    relay = Relay(nats_server.url.removeprefix("nats://"))
    try:
        asyncio.run(on_nats(nats_server.url, prefix, use))
    finally:
        relay.close()


@pytest.mark.services
def test_a_process_paused_for_longer_than_messages_are_kept_gets_an_error(
    nats_server: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection holds. The messages it missed are gone when it reads on, and nothing comes after."""

    async def stand_still(channels: QueryChannels) -> None:
        await channels.create(CHANNEL)
        reader = await channels.open_reader(CHANNEL, 0)
        await channels.publish(CHANNEL, b"1")
        await reader.next()
        standing.set()
        assert go_on.wait(TIMEOUT_S)
        with pytest.raises(ChannelLost, match="position 2 is trimmed"):
            await reader.next()
        await reader.close()

    async def go_by(channels: QueryChannels) -> None:
        nats = cast(NatsChannels, channels)
        await asyncio.to_thread(standing.wait, TIMEOUT_S)
        while (await nats._ask(f"STREAM.INFO.{nats._stream(CHANNEL)}"))["state"]["consumer_count"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await channels.publish(CHANNEL, b"a version that it misses")
        await aged(nats, 2)
        go_on.set()

    monkeypatch.setattr(nats_channels, "KEPT_S", 1.5)
    for name in ("FORGOTTEN_AFTER_S", "_PULL_EXPIRES_S"):
        monkeypatch.setattr(follower, name, 0.5)
    monkeypatch.setattr(nats_channels._Reader, "heartbeat_s", 0.2)
    standing, go_on = threading.Event(), threading.Event()
    url, prefix = nats_server.url, f"channels-{uuid.uuid4().hex}"
    with ThreadPoolExecutor(2) as threads:
        works = [threads.submit(asyncio.run, on_nats(url, prefix, use)) for use in (stand_still, go_by)]
    for work in works:
        work.result()


def test_messages_are_kept_for_longer_than_a_server_remembers_who_reads_them() -> None:
    """Else a version could pass, and age, between two questions to one consumer; nobody would notice."""
    assert nats_channels.KEPT_S > follower.FORGOTTEN_AFTER_S + follower._PULL_EXPIRES_S


@pytest.mark.services
def test_a_server_that_dies_takes_its_channels_along(tmp_path: Path) -> None:
    async def use(channels: QueryChannels) -> None:
        await channels.create(CHANNEL)
        reader = await channels.open_reader(CHANNEL, 0)
        await channels.publish(CHANNEL, b"x")
        assert await reader.next() == (1, b"x")
        server.kill()
        with pytest.raises(Unavailable):
            await channels.publish(CHANNEL, b"while it is away")
        server.launch()
        await asyncio.to_thread(server.wait_ready)
        with pytest.raises(ChannelLost, match=CHANNEL):
            await reader.next()
        with pytest.raises(ChannelLost, match=CHANNEL):
            await channels.publish(CHANNEL, b"x")
        await channels.create("successor")
        assert await channels.publish("successor", b"x") == 1
        await reader.close()

    async def run() -> None:
        channels = await NatsChannels.open(NatsSource((server.url,)), timeout_s=1.0)
        try:
            await asyncio.wait_for(use(channels), TIMEOUT_S)
        finally:
            await channels.close()

    server = Nats(tmp_path)
    server.start()
    try:
        asyncio.run(run())
    finally:
        server.kill()


@pytest.mark.services
def test_a_message_that_no_server_takes_is_refused(nats_server: Nats) -> None:
    async def use(channels: QueryChannels) -> None:
        await channels.create(CHANNEL)
        with pytest.raises(InvalidParameter, match="send it by RPC"):
            await channels.publish(CHANNEL, bytes(1024 * 1024))

    asyncio.run(on_nats(nats_server.url, f"channels-{uuid.uuid4().hex}", use))


@pytest.mark.services
def test_a_channel_that_nobody_uses_any_more_is_removed(
    nats_server: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner was killed, or could not remove it. No other channel is touched."""

    async def lost(channels: QueryChannels, name: str) -> None:
        while True:
            try:
                await channels.end(name)
            except ChannelLost:
                return
            await asyncio.sleep(0.02)

    async def use(near: QueryChannels) -> None:
        for name in ("followed", "with a message", "left"):
            await near.create(name)
        reader = await near.open_reader("followed", 0)
        await near.publish("followed", b"1")
        assert await reader.next() == (1, b"1")
        nats = cast(NatsChannels, near)
        await nats._ask(f"STREAM.PURGE.{nats._stream('followed')}")  # as if the message had become too old
        await near.publish("with a message", b"1")
        with monkeypatch.context() as patch:
            patch.setattr(nats_channels, "_UNUSED_LOOK_S", 0.05)
            sweeper, stranger = [
                await NatsChannels.open(NatsSource((nats_server.url,), prefix=p)) for p in (prefix, "other")
            ]
            await lost(near, "left")
            await near.create("left later")
            await lost(near, "left later")
            for channels in (sweeper, stranger):
                await channels.close()
        for name in ("followed", "with a message"):
            assert await near.publish(name, b"2") == 2
        assert await reader.next() == (2, b"2")
        await reader.close()

    prefix = f"channels-{uuid.uuid4().hex}"
    asyncio.run(on_nats(nats_server.url, prefix, use))


@pytest.mark.services
def test_a_channel_that_is_used_again_between_two_looks_stays(nats_server: Nats) -> None:
    async def use(channels: QueryChannels) -> None:
        nats = cast(NatsChannels, channels)
        await channels.create(CHANNEL)
        await nats._remove_unused()
        await channels.publish(CHANNEL, b"1")
        await nats._ask(f"STREAM.PURGE.{nats._stream(CHANNEL)}")  # as if the message had become too old
        await nats._remove_unused()
        assert await channels.end(CHANNEL) == 2
        await nats._remove_unused()
        with pytest.raises(ChannelLost):
            await channels.end(CHANNEL)

    asyncio.run(on_nats(nats_server.url, f"channels-{uuid.uuid4().hex}", use))
