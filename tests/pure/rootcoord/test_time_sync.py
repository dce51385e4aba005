"""Ticks in the log: what the reports allow, at once when somebody asks, and never of a forgotten epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from fakes import FakeProxy, settle
from root_bench import Bench, new

from elanus.api.rootcoord import TickReport
from elanus.core.errors import LeaseLost, NoSession, Unavailable
from elanus.core.ids import NodeID
from elanus.core.messages import MsgKind
from elanus.core.ticks import TickBarrier
from elanus.core.timestamps import Timestamp
from elanus.meta.port import Put
from elanus.rootcoord.coord import _EPOCH_KEY

ZERO, ONE = "by-dev-rootcoord-dml_0", "by-dev-rootcoord-dml_1"
BOTH = (ZERO, ONE)


async def with_a_collection() -> Bench:
    """A collection on pchannels 0 and 1, and a proxy that has reported once."""
    bench = Bench()
    root = await bench.start()
    await root.create_collection(new(shards=2))
    await bench.tick()
    return bench


def ticks_of(bench: Bench, pchannel: str) -> list[int]:
    return [h.ts for h in bench.headers(pchannel) if h.kind is MsgKind.TIME_TICK]


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_a_report_becomes_a_tick_in_every_pchannel_in_use_and_in_no_other() -> None:
    bench = await with_a_collection()
    report = bench.proxy.report()
    await bench.root.update_channel_time_tick(report)
    assert {p: ticks_of(bench, p)[-1] for p in bench.log.pchannels()} == dict.fromkeys(
        BOTH, report.default_ts
    )
    assert await bench.root.ticks() == dict.fromkeys(BOTH, report.default_ts)
    await bench.root.stop()


async def test_an_unfinished_write_holds_the_tick_of_its_pchannel_alone() -> None:
    bench = await with_a_collection()
    bench.proxy.unfinished = {ONE: bench.oracle.allocate()}
    await bench.tick()
    ticks = await bench.root.ticks()
    assert ticks[ONE] == bench.proxy.unfinished[ONE] - 1 < ticks[ZERO]
    await bench.root.stop()


async def test_an_epoch_stands_before_every_tick() -> None:
    bench = await with_a_collection()
    for _ in range(2):
        await bench.restart()
        await bench.tick()
    for pchannel in BOTH:
        epochs = [(h.kind, h.epoch) for h in bench.headers(pchannel) if h.epoch]
        marks = [e for kind, e in epochs if kind is MsgKind.EPOCH]
        assert len(set(marks)) == 3
        assert marks == sorted(marks)
        assert [e for _, e in epochs] == sorted(e for _, e in epochs)
    await bench.root.stop()


async def test_metadata_that_is_older_than_the_log_gives_no_epoch_that_the_log_has_passed() -> None:
    bench = await with_a_collection()
    saved = await bench.meta.get(_EPOCH_KEY)
    assert saved is not None
    for _ in range(3):
        await bench.restart()
        await asyncio.sleep(1.0)
    await bench.meta.txn([Put(_EPOCH_KEY, saved.value)])  # restored from a copy
    await bench.restart()
    await bench.tick()
    for pchannel in BOTH:
        epochs = [h.epoch for h in bench.headers(pchannel) if h.epoch]
        assert epochs == sorted(epochs)
        assert bench.headers(pchannel)[-1].kind is MsgKind.TIME_TICK
    await bench.root.stop()


async def test_after_a_restart_no_tick_passes_before_the_proxy_has_reported() -> None:
    bench = await with_a_collection()
    before = {p: ticks_of(bench, p) for p in BOTH}
    await bench.restart()
    await bench.root.create_collection(new("d", shards=2))
    assert {p: ticks_of(bench, p) for p in BOTH} == before
    await bench.tick()
    assert all(ticks_of(bench, p)[-1] > before[p][-1] for p in BOTH)
    await bench.root.stop()


async def test_ticks_ascend_over_restarts() -> None:
    bench = await with_a_collection()
    for step_ms in (-60_000, 60_000, 0):
        bench.clock.step_ms(step_ms)
        await bench.tick()
        await bench.restart()
        await bench.tick()
    for pchannel in BOTH:
        ticks = ticks_of(bench, pchannel)
        assert ticks == sorted(set(ticks))
    await bench.root.stop()


# asking for a tick


async def test_asking_for_a_tick_collects_reports_at_once() -> None:
    bench = await with_a_collection()
    wanted = bench.oracle.allocate()
    await bench.root.tick_now(BOTH, wanted)
    assert min((await bench.root.ticks()).values()) >= wanted
    assert now_s() == 0
    await bench.root.stop()


async def test_who_asks_at_the_same_time_shares_a_round() -> None:
    bench = await with_a_collection()
    asked = [bench.root.tick_now(BOTH, bench.oracle.allocate()) for _ in range(100)]
    await asyncio.gather(*asked)
    assert len(bench.proxy.calls.of("report_tick")) <= 2
    await bench.root.stop()


async def test_who_asks_for_what_is_there_already_asks_nobody() -> None:
    bench = await with_a_collection()
    await bench.root.tick_now(BOTH, (await bench.root.ticks())[ZERO])
    await bench.root.tick_now(("by-dev-rootcoord-dml_3",), bench.oracle.allocate())
    assert bench.proxy.calls.of("report_tick") == []
    await bench.root.stop()


async def test_an_unfinished_write_is_waited_for_and_not_asked_about_without_pause() -> None:
    bench = await with_a_collection()
    bench.proxy.unfinished = {ONE: bench.oracle.allocate()}
    wanted = bench.oracle.allocate()
    asking = asyncio.ensure_future(bench.root.tick_now(BOTH, wanted))
    await asyncio.sleep(1.0)
    assert not asking.done()
    assert len(bench.proxy.calls.of("report_tick")) < 30
    await bench.root.tick_now((ZERO,), wanted)  # the other pchannel need not wait
    bench.proxy.unfinished = {}
    await asking
    assert now_s() < 1.06
    await bench.root.stop()


async def test_a_thousand_who_wait_cost_what_one_costs() -> None:
    bench = await with_a_collection()
    await bench.restart()  # as after a restart of the server: the proxy has not reported yet
    bench.proxy.calls.failing["report_tick"] = Unavailable("starting")
    asked: list[int] = []
    advance = TickBarrier.advance

    def counted(barrier: TickBarrier, pchannels: Iterable[str]) -> dict[str, Timestamp]:
        names = list(pchannels)
        asked.append(len(names))
        return advance(barrier, names)

    costs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TickBarrier, "advance", counted)
        for waiting in (1, 1000):
            wanted = [bench.oracle.allocate() for _ in range(waiting)]
            asking = [asyncio.ensure_future(bench.root.tick_now(BOTH, ts)) for ts in wanted]
            asked.clear()
            await asyncio.sleep(1.0)
            costs.append(sum(asked))
            for one in asking:
                one.cancel()
            await asyncio.wait(asking)
    assert 0 < costs[1] <= costs[0] + 4, f"looks at pchannels for 1 and for 1,000 who wait: {costs}"
    await bench.root.stop()


async def test_requests_end_each_with_its_own_tick() -> None:
    bench = await with_a_collection()
    held = bench.proxy.unfinished = {ONE: bench.oracle.allocate()}
    later = bench.oracle.allocate()
    both = asyncio.ensure_future(bench.root.tick_now(BOTH, later))
    before = asyncio.ensure_future(bench.root.tick_now((ONE,), Timestamp(held[ONE] - 1)))
    free = asyncio.ensure_future(bench.root.tick_now((ZERO,), later))
    await asyncio.sleep(0.5)
    assert (before.done(), free.done(), both.done()) == (True, True, False)
    bench.proxy.unfinished = {}
    await both
    await bench.root.stop()


async def test_a_failed_round_is_reported_to_all_who_wait_for_it() -> None:
    bench = await with_a_collection()
    append, failing = bench.log.append, [True]

    async def append_or_fail(*args: Any, **options: Any) -> Any:
        if failing:
            raise Unavailable("the log is away")
        return await append(*args, **options)

    bench.log.append = append_or_fail  # type: ignore[method-assign]
    asked = [bench.root.tick_now(BOTH, bench.oracle.allocate()) for _ in range(3)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in outcomes] == [Unavailable] * 3
    failing.clear()
    await bench.root.tick_now(BOTH, bench.oracle.allocate())  # the next request begins a new round
    await bench.root.stop()


async def test_a_proxy_that_does_not_answer_holds_the_tick_until_it_does() -> None:
    bench = await with_a_collection()
    bench.proxy.calls.failing["report_tick"] = Unavailable("restarting")
    wanted = bench.oracle.allocate()
    asking = asyncio.ensure_future(bench.root.tick_now(BOTH, wanted))
    await asyncio.sleep(0.5)
    assert not asking.done()
    await bench.tick()  # its own report, from the ticker
    await asking
    assert min((await bench.root.ticks()).values()) >= wanted
    await bench.root.stop()


async def test_one_who_gives_up_does_not_end_the_round_of_the_others() -> None:
    bench = await with_a_collection()
    go_on = asyncio.Event()
    report_tick = bench.proxy.report_tick

    async def slow(now: Timestamp) -> TickReport:
        await go_on.wait()
        return await report_tick(now)

    bench.proxy.report_tick = slow  # type: ignore[method-assign]
    one, other = (asyncio.ensure_future(bench.root.tick_now(BOTH, bench.oracle.allocate())) for _ in range(2))
    await settle()
    one.cancel()
    await settle()
    go_on.set()
    await other
    await bench.root.stop()


# sources


async def test_a_proxy_that_left_holds_no_tick_and_one_that_joined_does_until_it_reports() -> None:
    bench = await with_a_collection()
    bench.nodes.leave(bench.proxy.node_id)
    bench.nodes.join(bench.proxy.node_id, bench.proxy)
    before = await bench.root.ticks()
    await bench.root.create_collection(new("d", shards=2))
    assert await bench.root.ticks() == before
    await bench.tick()
    assert (await bench.root.ticks())[ZERO] > before[ZERO]
    await bench.root.stop()


async def test_a_stopped_coordinator_writes_no_tick_any_more() -> None:
    bench = await with_a_collection()
    bench.proxy.unfinished = {ONE: bench.oracle.allocate()}
    asking = asyncio.ensure_future(bench.root.tick_now(BOTH, bench.oracle.allocate()))
    await settle()
    asking.cancel()
    await bench.root.stop()
    length = len(bench.all_headers())
    bench.proxy.unfinished = {}
    await asyncio.sleep(5)
    assert len(bench.all_headers()) == length


# definitions hold the ticks


@pytest.mark.parametrize(
    "kind", [MsgKind.CREATE_COLLECTION, MsgKind.DROP_COLLECTION, MsgKind.CREATE_PARTITION]
)
async def test_no_tick_passes_a_definition_that_is_on_its_way(kind: MsgKind) -> None:
    bench = await with_a_collection()
    put, go_on = bench.root.catalog.put, asyncio.Event()

    async def slow_put(*collections: object) -> None:
        await go_on.wait()
        await put(*collections)  # type: ignore[arg-type]

    bench.root.catalog.put = slow_put  # type: ignore[method-assign]
    work = {
        MsgKind.CREATE_COLLECTION: lambda: bench.root.create_collection(new("d", shards=2)),
        MsgKind.DROP_COLLECTION: lambda: bench.root.drop_collection("default", "c"),
        MsgKind.CREATE_PARTITION: lambda: bench.root.create_partition("default", "c", "p"),
    }[kind]
    defining = asyncio.ensure_future(work())  # type: ignore[no-untyped-call]
    await settle()
    await bench.tick()
    go_on.set()
    await defining
    await bench.tick()
    for pchannel in BOTH:
        headers = bench.headers(pchannel)
        at = max(n for n, h in enumerate(headers) if h.kind is kind)
        earlier = [h.ts for h in headers[:at] if h.kind is MsgKind.TIME_TICK]
        later = [h.ts for h in headers[at:] if h.kind is MsgKind.TIME_TICK]
        assert max(earlier) < headers[at].ts <= max(later)
    await bench.root.stop()


async def test_a_report_of_a_proxy_without_a_session_is_refused() -> None:
    bench = await with_a_collection()
    before = await bench.root.ticks()
    with pytest.raises(NoSession, match=r"proxy 99 .* new id"):
        await bench.root.update_channel_time_tick(TickReport(NodeID(99), Timestamp(5), {}))
    assert await bench.root.ticks() == before
    await bench.root.stop()


async def test_a_report_of_a_proxy_that_was_left_out_is_refused() -> None:
    bench = await with_a_collection()
    bench.nodes.leave(bench.proxy.node_id)
    with pytest.raises(NoSession):
        await bench.tick()
    await bench.root.stop()


async def test_a_first_report_may_come_before_the_news_of_its_session() -> None:
    bench = await with_a_collection()
    newcomer = FakeProxy()
    bench.nodes.registered = {NodeID(7): newcomer}
    await bench.root.update_channel_time_tick(TickReport(NodeID(7), bench.oracle.allocate(), {}))
    assert NodeID(7) in bench.nodes
    held = (await bench.root.ticks())[ZERO]
    await bench.tick()
    await bench.tick()
    assert (await bench.root.ticks())[ZERO] > held, "it counts"
    await bench.root.update_channel_time_tick(TickReport(NodeID(7), bench.oracle.allocate(), {}))
    await bench.root.stop()


async def test_a_first_report_is_accepted_by_the_active_coordinator_only() -> None:
    bench = await with_a_collection()
    bench.nodes.registered = {NodeID(7): FakeProxy()}
    bench.lease.calls.failing["confirm"] = LeaseLost("another one is active")
    first = TickReport(NodeID(7), bench.oracle.allocate(), {})
    with pytest.raises(LeaseLost, match="another one"):
        await bench.root.update_channel_time_tick(first)
    bench.lease.calls.failing.clear()
    before = await bench.root.ticks()
    await bench.tick()
    assert (await bench.root.ticks())[ZERO] > before[ZERO], "it was not accepted, and holds none"
    await bench.root.update_channel_time_tick(first)
    accepted = await bench.root.ticks()
    await bench.tick()
    assert await bench.root.ticks() == accepted, "it was, and holds them"
    await bench.root.stop()


async def test_a_timestamp_of_a_coordinator_that_was_replaced_is_not_given_out() -> None:
    bench = await with_a_collection()
    bench.lease.calls.failing["confirm"] = LeaseLost("another one is active")
    with pytest.raises(LeaseLost):
        await bench.root.alloc_timestamp(1)
    await bench.root.stop()
