"""Pchannels whose log does not answer, or is full: the others are ticked, and reads of them go on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fakes import settle
from root_bench import Bench, Root, new, refused

from elanus.core.channels import pchannel_of
from elanus.core.errors import DiskFull, ElanusError, Unavailable
from elanus.core.messages import MsgKind
from elanus.log.memory import MemoryLog
from elanus.log.port import NewEntry, Position


class SilentChannels(MemoryLog):
    """``silent``: the pchannels whose appends wait until `answer`, and then raise ``error`` if there is one.

    ``asked``: how many appends came to each of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.silent: set[str] = set()
        self.asked: dict[str, int] = {}
        self.error: ElanusError | None = None
        self._answered = asyncio.Event()

    def answer(self, error: ElanusError | None = None) -> None:
        self.error = error
        self._answered.set()
        self._answered = asyncio.Event()

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        if pchannel in self.silent:
            self.asked[pchannel] = self.asked.get(pchannel, 0) + 1
            await self._answered.wait()
            if self.error is not None:
                raise self.error
        return await super().append(pchannel, entries, durable=durable)


class FullChannels(MemoryLog):
    """``full``: the pchannels without room."""

    def __init__(self) -> None:
        super().__init__()
        self.full: set[str] = set()

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        if pchannel in self.full:
            raise DiskFull(f"no room left in {pchannel}")
        return await super().append(pchannel, entries, durable=durable)


async def two_channels(log: MemoryLog) -> tuple[Bench, Root, str, str]:
    """A root coordinator with two collections on a pchannel each, and a proxy that has reported once."""
    bench = Bench()
    bench.log = log
    root = await bench.start()
    a, b = [(await root.create_collection(new(name, shards=1))).vchannels[0] for name in ("a", "b")]
    await bench.tick()
    return bench, root, pchannel_of(a), pchannel_of(b)


def ticks_of(bench: Bench, pchannel: str) -> list[int]:
    return [h.ts for h in bench.headers(pchannel) if h.kind is MsgKind.TIME_TICK]


async def test_one_that_does_not_answer_delays_no_tick_of_the_others() -> None:
    log = SilentChannels()
    bench, root, a, b = await two_channels(log)
    log.silent = {a}
    for _ in range(3):
        await asyncio.wait_for(bench.tick(), 0.5)
        wanted = bench.oracle.allocate()
        await asyncio.wait_for(root.tick_now((b,), wanted), 0.5)
        assert ticks_of(bench, b)[-1] >= wanted
    assert log.asked == {a: 1}, "one append at a time"
    assert a in await root.ticks()
    await root.stop()


async def test_who_waits_for_it_gets_its_tick_once_it_answers_in_the_order_of_time() -> None:
    log = SilentChannels()
    bench, root, a, b = await two_channels(log)
    log.silent = {a}
    both = asyncio.ensure_future(root.tick_now((a, b), bench.oracle.allocate()))
    await asyncio.sleep(0.2)
    early = asyncio.ensure_future(root.tick_now((a,), (await root.ticks())[a]))
    later = asyncio.ensure_future(root.tick_now((a,), wanted := bench.oracle.allocate()))
    await asyncio.sleep(1)
    assert not any(one.done() for one in (both, early, later)), "its tick is not in the log yet"
    log.silent = set()
    log.answer()
    await asyncio.gather(both, early, later)
    ticks = ticks_of(bench, a)
    assert ticks[-1] >= wanted
    assert ticks == sorted(set(ticks))
    await root.stop()


async def test_who_waits_for_it_gets_its_error_and_the_others_do_not() -> None:
    log = SilentChannels()
    bench, root, a, b = await two_channels(log)
    log.silent = {a}
    bench.proxy.unfinished = {b: bench.oracle.allocate()}
    wanted = bench.oracle.allocate()
    silent, held = (asyncio.ensure_future(root.tick_now((p,), wanted)) for p in (a, b))
    await asyncio.sleep(0.2)
    log.answer(Unavailable(f"no acknowledgement of {a}"))
    await refused(silent, Unavailable, f"no acknowledgement of {a}")
    assert not held.done()
    bench.proxy.unfinished = {}
    await held
    assert await root.refused_channels() == {a: f"no acknowledgement of {a}"}
    for change in (root.drop_collection("default", "a"), root.create_partition("default", "a", "p")):
        await refused(change, Unavailable, f"no acknowledgement of {a}")
    log.silent = set()
    log.answer()
    await bench.tick()
    await bench.tick()
    assert await root.refused_channels() == {}
    await root.drop_collection("default", "a")
    await root.stop()


async def test_a_tick_that_failed_is_not_taken_for_one_that_is_there() -> None:
    """A read that asks for no later tick would wait for it in vain until its client gives up."""
    log = FullChannels()
    bench, root, p, _ = await two_channels(log)
    last = ticks_of(bench, p)[-1]
    wanted = bench.oracle.allocate()
    log.full.add(p)
    await bench.tick()
    assert (await root.ticks())[p] == last
    await refused(root.tick_now((p,), wanted), DiskFull)
    log.full.clear()
    await root.tick_now((p,), wanted)
    assert ticks_of(bench, p)[-1] >= wanted
    await root.stop()


async def test_a_stop_leaves_no_tick_on_its_way() -> None:
    log = SilentChannels()
    bench, root, a, _ = await two_channels(log)
    log.silent = {a}
    await bench.tick()
    await root.stop()
    length = len(bench.all_headers())
    log.silent = set()
    log.answer()
    await bench.tick()
    await settle()
    assert len(bench.all_headers()) == length


async def test_a_start_goes_on_without_one_that_does_not_answer_and_uses_it_once_it_does() -> None:
    log = SilentChannels()
    bench, root, a, b = await two_channels(log)
    for n in range(5):
        await root.create_collection(new(f"more{n}", shards=2))
    log.silent = {a}
    root = await asyncio.wait_for(bench.restart(), 10)
    await bench.tick()
    assert bench.headers(b)[-1].kind is MsgKind.TIME_TICK
    [(pchannel, text)] = (await root.refused_channels()).items()
    assert pchannel == a
    assert "has not taken an entry within 3 s" in text
    await asyncio.sleep(5)
    assert log.asked == {a: 1}, "it is not asked again before it has answered"
    await refused(root.drop_collection("default", "a"), Unavailable, "has not taken an entry")
    await refused(root.tick_now((a,), bench.oracle.allocate()), Unavailable, "has not taken an entry")
    before = len(bench.headers(a))
    log.silent = set()
    log.answer()
    await settle()
    assert await root.refused_channels() == {}
    await root.tick_now((a,), bench.oracle.allocate())
    assert [h.kind for h in bench.headers(a)[before:]][:2] == [MsgKind.EPOCH, MsgKind.TIME_TICK]
    await root.stop()


async def test_a_start_goes_on_without_one_that_is_full() -> None:
    log = FullChannels()
    bench, root, a, b = await two_channels(log)
    log.full = {a}
    root = await bench.restart()
    await bench.tick()
    assert bench.headers(b)[-1].kind is MsgKind.TIME_TICK
    assert await root.refused_channels() == {a: f"no room left in {a}"}
    await refused(root.tick_now((a, b), bench.oracle.allocate()), DiskFull, a)
    await refused(root.create_partition("default", "a", "p"), DiskFull, a)
    log.full = set()
    await asyncio.sleep(3)
    await root.tick_now((a, b), bench.oracle.allocate())
    await root.stop()


async def test_new_collections_avoid_one_that_took_no_tick() -> None:
    log = FullChannels()
    bench, root, a, b = await two_channels(log)
    log.full = {a}
    await bench.tick()
    for name in ("c", "d"):
        [vchannel] = (await root.create_collection(new(name, shards=1))).vchannels
        assert pchannel_of(vchannel) == b
    await root.stop()
