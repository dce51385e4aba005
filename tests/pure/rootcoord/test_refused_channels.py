"""Pchannels whose log was put back to an older copy: they are left out until they take entries again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from root_bench import Bench, Root, new, refused

from elanus.core.channels import pchannel_of
from elanus.core.errors import ChannelRewound
from elanus.core.messages import MsgKind
from elanus.log.memory import MemoryLog
from elanus.log.port import NewEntry, Position, channel_rewound


class RewoundChannels(MemoryLog):
    """``rewound``: the pchannels that take no entries."""

    def __init__(self) -> None:
        super().__init__()
        self.rewound: set[str] = set()

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        if pchannel in self.rewound:
            raise channel_rewound(pchannel, 90, 70)
        return await super().append(pchannel, entries, durable=durable)


async def two_channels() -> tuple[Bench, Root, RewoundChannels, str, str]:
    """A root coordinator with two collections on a pchannel each."""
    bench = Bench()
    log = bench.log = RewoundChannels()
    root = await bench.start()
    a, b = [(await root.create_collection(new(name, shards=1))).vchannels[0] for name in ("a", "b")]
    return bench, root, log, pchannel_of(a), pchannel_of(b)


async def test_a_start_leaves_them_out_and_ticks_the_others() -> None:
    bench, root, log, a, b = await two_channels()
    await root.create_partition("default", "a", "early")
    log.rewound = {a}
    end = log.end(a)
    root = await bench.restart()
    await bench.tick()
    assert log.end(a) == end
    assert bench.headers(b)[-1].kind is MsgKind.TIME_TICK
    assert set(await root.ticks()) == {a, b}
    known = await root.describe_collection("default", "a")
    wrong = f"nothing is written to {a}: position 90 is needed, but the log ends at 70: an older copy"
    [(pchannel, text)] = (await root.refused_channels()).items()
    assert (pchannel, wrong in text, "restore a copy" in text) == (a, True, True)
    await refused(root.tick_now((a, b), bench.oracle.allocate()), ChannelRewound, wrong)
    await root.tick_now((b,), bench.oracle.allocate())
    for change in (
        root.drop_collection("default", "a"),
        root.create_partition("default", "a", "p"),
        root.drop_partition("default", "a", "early"),
    ):
        await refused(change, ChannelRewound, wrong)
    assert await root.describe_collection("default", "a") == known, "nothing was begun"
    await root.drop_collection("default", "b")
    for name in ("c", "d"):
        [vchannel] = (await root.create_collection(new(name, shards=1))).vchannels
        assert pchannel_of(vchannel) == b
    await root.stop()


async def test_one_that_is_put_back_under_a_running_root_coordinator() -> None:
    bench, root, log, a, b = await two_channels()
    await bench.tick()
    waiting = asyncio.ensure_future(root.tick_now((a,), bench.oracle.allocate()))
    log.rewound = {a}
    bench.proxy.unfinished = {b: bench.oracle.allocate()}
    healthy = asyncio.ensure_future(root.tick_now((b,), bench.oracle.allocate()))
    with pytest.raises(ChannelRewound):
        await waiting
    bench.proxy.unfinished = {}
    await healthy
    await bench.tick()
    assert list(await root.refused_channels()) == [a]
    assert bench.headers(b)[-1].kind is MsgKind.TIME_TICK
    await root.stop()


async def test_they_are_ticked_again_once_they_take_entries_beginning_with_the_epoch() -> None:
    bench, root, log, a, _ = await two_channels()
    log.rewound = {a}
    root = await bench.restart()
    before = len(bench.headers(a))
    log.rewound = set()
    await asyncio.sleep(3)
    assert await root.refused_channels() == {}
    await root.tick_now((a,), bench.oracle.allocate())
    kinds = [header.kind for header in bench.headers(a)[before:]]
    assert kinds[:2] == [MsgKind.EPOCH, MsgKind.TIME_TICK]
    await root.stop()
