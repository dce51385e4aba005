"""Ticks over several proxies: one that joins, stalls, dies, comes back; and how often they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fakes import FakeNodes, FakeProxy, settle

from elanus.api.rootcoord import TickReport
from elanus.core.errors import Unavailable
from elanus.core.ids import NodeID
from elanus.core.timestamps import Timestamp, compose, physical_ms
from elanus.log.memory import MemoryLog
from elanus.log.port import Log
from elanus.rootcoord.timesync import TimeSync

P, Q = "dml_0", "dml_1"
ONE, TWO, THREE = NodeID(1), NodeID(2), NodeID(3)


class Proxy(FakeProxy):
    """Reports its unfinished writes. ``answers``: it does when that is set."""

    def __init__(self, node_id: NodeID) -> None:
        super().__init__()
        self.node_id = node_id
        self.unfinished: dict[str, Timestamp] = {}
        self.answers = asyncio.Event()
        self.answers.set()

    async def report_tick(self, now: Timestamp) -> TickReport:
        await super().report_tick(now)
        await self.answers.wait()
        return TickReport(self.node_id, now, {p: Timestamp(ts - 1) for p, ts in self.unfinished.items()})


def stamp() -> Timestamp:
    return compose(1 + round(asyncio.get_running_loop().time() * 1000))


class Fences(MemoryLog):
    """A log that is fenced when ``takes`` is set. ``fenced``: by pchannel, who is."""

    def __init__(self) -> None:
        super().__init__()
        self.fenced: dict[str, list[NodeID]] = {}
        self.writers: list[NodeID] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.broken = False

    def appender(self, writer: NodeID, confirm: Callable[[], Awaitable[None]]) -> Fences:
        return self

    async def fence(self, pchannel: str, is_gone: Callable[[NodeID], bool]) -> None:
        await self.takes.wait()
        if self.broken:
            raise Unavailable("no servers")
        self.fenced[pchannel] = [writer for writer in self.writers if is_gone(writer)]


@asynccontextmanager
async def several(
    *node_ids: NodeID, idle_tick_ms: int = 0, log: Log | None = None
) -> AsyncIterator[tuple[TimeSync, FakeNodes]]:
    proxies = FakeNodes({node_id: Proxy(node_id) for node_id in node_ids})
    sync = TimeSync(log or MemoryLog(), proxies, stamp, idle_tick_ms=idle_tick_ms)
    sync.start(epoch=1)
    await sync.use([P, Q], stamp())
    sync.follow()
    yield sync, proxies
    await sync.stop()


async def report(sync: TimeSync, proxy: Proxy) -> bool:
    taken = sync.take(await proxy.report_tick(stamp()))
    await sync.write_ticks()
    return taken


async def test_the_slowest_proxy_sets_the_tick_of_each_pchannel_apart() -> None:
    async with several(ONE, TWO) as (sync, proxies):
        proxies[ONE].unfinished = {P: compose(1)}
        await asyncio.sleep(1.0)
        wanted = stamp()
        await sync.tick_now([Q], wanted)
        assert sync.tick_of(P) < compose(1) < wanted <= sync.tick_of(Q)


async def test_no_tick_passes_before_all_that_were_there_at_the_start_have_reported() -> None:
    async with several(ONE, TWO) as (sync, proxies):
        await report(sync, proxies[ONE])
        assert sync.tick_of(P) == 0
        await report(sync, proxies[TWO])
        assert sync.tick_of(P) > 0


async def test_one_that_joins_holds_up_nobody_until_its_first_report_and_counts_from_there_on() -> None:
    async with several(ONE) as (sync, proxies):
        await report(sync, proxies[ONE])
        before = sync.tick_of(P)
        proxies.join(TWO, late := Proxy(TWO))
        late.answers.clear()
        await asyncio.sleep(1.0)
        await sync.tick_now([P], stamp())
        assert sync.tick_of(P) > before
        assert late.calls.of("report_tick") == [], "it is not asked either"
        late.answers.set()
        await report(sync, late)
        reported = sync.tick_of(P)
        await asyncio.sleep(1.0)
        late.unfinished = {P: stamp()}
        await asyncio.sleep(1.0)
        await report(sync, late)
        await report(sync, proxies[ONE])
        assert reported <= sync.tick_of(P) < late.unfinished[P]


async def test_one_that_stalls_holds_the_ticks_until_it_has_left() -> None:
    async with several(ONE, TWO) as (sync, proxies):
        for proxy in proxies.values():
            await report(sync, proxy)
        proxies[TWO].answers.clear()
        await asyncio.sleep(1.0)
        wanted = stamp()
        asking = asyncio.ensure_future(sync.tick_now([P], wanted))
        await asyncio.sleep(5.0)
        assert not asking.done()
        assert sync.tick_of(P) < wanted
        left_s = asyncio.get_running_loop().time()
        proxies.leave(TWO)  # its lease is over
        await asking
        assert sync.tick_of(P) >= wanted
        assert asyncio.get_running_loop().time() <= left_s + 1.1


async def test_a_proxy_that_comes_back_must_join_and_report_again() -> None:
    async with several(ONE, TWO) as (sync, proxies):
        two = proxies[TWO]
        proxies.leave(TWO)
        assert not await report(sync, two)
        await report(sync, proxies[ONE])
        before = sync.tick_of(P)
        assert before > 0
        proxies.join(TWO, two)
        await asyncio.sleep(1.0)
        two.unfinished = {P: stamp()}
        await asyncio.sleep(1.0)
        assert await report(sync, two)
        await report(sync, proxies[ONE])
        assert before <= sync.tick_of(P) < two.unfinished[P]


async def test_a_report_that_was_on_its_way_when_its_proxy_left_changes_nothing() -> None:
    async with several(ONE, TWO) as (sync, proxies):
        late = await proxies[TWO].report_tick(stamp())
        proxies.leave(TWO)
        assert not sync.take(late)


async def test_ticks_go_on_with_what_the_others_report_when_one_call_fails() -> None:
    """Its last report stays true: up to there the tick may go."""
    async with several(ONE, TWO, THREE) as (sync, proxies):
        for proxy in proxies.values():
            await report(sync, proxy)
        await asyncio.sleep(1.0)
        await report(sync, proxies[THREE])
        asked = stamp()
        proxies[THREE].calls.failing["report_tick"] = Unavailable("the call was lost")
        await sync.tick_now([P, Q], asked)
        assert sync.tick_of(P) == asked


async def test_rounds_are_no_closer_than_their_interval_however_many_ask() -> None:
    async with several(ONE, TWO) as (sync, proxies):

        async def reader(n: int) -> None:
            for _ in range(20):
                await asyncio.sleep(0.0001 * (1 + n % 7))
                await sync.tick_now([P, Q], Timestamp(stamp() + 1))

        await asyncio.gather(*(reader(n) for n in range(50)))
        took_s = asyncio.get_running_loop().time()
        rounds = len(proxies[ONE].calls.of("report_tick"))
        assert rounds == len(proxies[TWO].calls.of("report_tick"))
        assert rounds <= 1 + took_s / 0.002 < 1000


async def test_who_comes_while_a_round_is_under_way_has_the_next_at_once() -> None:
    async with several(ONE) as (sync, proxies):
        await asyncio.sleep(1.0)
        proxies[ONE].answers.clear()
        first = asyncio.ensure_future(sync.tick_now([P], stamp()))
        await settle()
        await asyncio.sleep(0.01)
        second = asyncio.ensure_future(sync.tick_now([P], stamp()))
        await settle()
        proxies[ONE].answers.set()
        began_s = asyncio.get_running_loop().time()
        await asyncio.gather(first, second)
        assert asyncio.get_running_loop().time() == began_s
        assert len(proxies[ONE].calls.of("report_tick")) == 2


def at_ms(ms: int) -> Timestamp:
    return compose(ms, 0)


async def ticks_after(sync: TimeSync, now_ms: int, *, written: tuple[str, ...] = ()) -> tuple[int, int]:
    """The last ticks of `P` and `Q` after a report at that time, in milliseconds."""
    assert sync.take(TickReport(ONE, at_ms(now_ms), {}, written))
    await sync.write_ticks()
    return physical_ms(sync.tick_of(P)), physical_ms(sync.tick_of(Q))


async def test_what_is_idle_is_ticked_more_seldom_and_what_is_written_to_at_once() -> None:
    async with several(ONE, idle_tick_ms=1000) as (sync, _):
        assert await ticks_after(sync, 10_000) == (10_000, 10_000)
        assert await ticks_after(sync, 10_200) == (10_000, 10_000)
        assert await ticks_after(sync, 10_400, written=(Q,)) == (10_000, 10_400)
        assert await ticks_after(sync, 10_999) == (10_000, 10_400)
        assert await ticks_after(sync, 11_000) == (11_000, 10_400)
        assert await ticks_after(sync, 11_400) == (11_000, 11_400)


async def test_a_reader_that_asks_waits_for_no_idle_tick() -> None:
    async with several(ONE, idle_tick_ms=1000) as (sync, proxies):
        assert await report(sync, proxies[ONE])
        first = sync.tick_of(P)
        await asyncio.sleep(0.3)
        asked_for = stamp()
        assert await report(sync, proxies[ONE])
        assert sync.tick_of(P) == first < asked_for, "a report alone moves nothing that is idle"
        await asyncio.wait_for(sync.tick_now([P], asked_for), timeout=5)
        assert sync.tick_of(P) >= asked_for
        assert sync.tick_of(Q) == first


async def test_a_tick_that_was_held_back_follows_when_the_write_has_ended() -> None:
    async with several(ONE, idle_tick_ms=1000) as (sync, _):
        await ticks_after(sync, 10_000)
        sync.take(TickReport(ONE, at_ms(10_200), {P: at_ms(10_100)}, (P,)))
        await sync.write_ticks()
        assert physical_ms(sync.tick_of(P)) == 10_100
        assert await ticks_after(sync, 10_400, written=(P,)) == (10_400, 10_000)


async def test_a_definition_is_passed_by_the_next_tick_where_it_is_written() -> None:
    async with several(ONE, idle_tick_ms=1000) as (sync, _):
        await ticks_after(sync, 10_000)
        sync.begin_ddl(at_ms(10_100), [P])
        sync.end_ddl(at_ms(10_100))
        assert await ticks_after(sync, 10_200) == (10_200, 10_000)


async def test_a_tick_leaves_nobody_out_whose_writes_the_log_still_takes() -> None:
    log = Fences()
    log.writers = [ONE, TWO, THREE]
    async with several(ONE, TWO, log=log) as (sync, proxies):
        for proxy in proxies.values():
            await report(sync, proxy)
        assert log.fenced == {P: [THREE], Q: [THREE]}, "one that was gone before this root coordinator began"
        log.takes.clear()
        before = {p: sync.tick_of(p) for p in (P, Q)}
        proxies[TWO].answers.clear()
        proxies.leave(TWO)
        await asyncio.sleep(1.0)
        wanted = stamp()
        asking = asyncio.ensure_future(sync.tick_now([P], wanted))
        await asyncio.sleep(5.0)
        assert not asking.done()
        assert before[P] < wanted
        log.takes.set()
        await asking
        assert log.fenced[P] == [TWO, THREE]
        await report(sync, proxies[ONE])
        assert log.fenced[Q] == [TWO, THREE], "each pchannel before its own next tick"


async def test_a_seal_can_have_proxies_fenced_before_the_next_tick() -> None:
    log = Fences()
    log.writers = [ONE, TWO]
    async with several(ONE, TWO, log=log) as (sync, proxies):
        for proxy in proxies.values():
            await report(sync, proxy)
        ticks = sync.ticks()
        proxies.leave(TWO)
        await sync.fence([P])
        assert log.fenced == {P: [TWO], Q: []}
        assert sync.ticks() == ticks


async def test_a_fence_that_fails_holds_the_tick_and_is_tried_again() -> None:
    log = Fences()
    log.writers = [ONE, TWO]
    async with several(ONE, TWO, log=log) as (sync, proxies):
        for proxy in proxies.values():
            await report(sync, proxy)
        log.broken = True
        proxies.leave(TWO)
        await asyncio.sleep(1.0)
        end = log.end(P)
        await report(sync, proxies[ONE])
        assert log.end(P) == end
        assert "no servers" in sync.refused()[P]
        log.broken = False
        await asyncio.sleep(1.0)
        await report(sync, proxies[ONE])
        assert log.fenced[P] == [TWO]
        assert log.end(P) > end
        assert not sync.refused()
