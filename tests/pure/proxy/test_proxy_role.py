"""The proxy role: joins the tick barrier before it writes, reports what is true, leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest
from fakes import CID, collection, settle
from proxy_bench import NODE, POLICY, Bench, inline
from structlog.testing import capture_logs

from elanus.core.errors import ChannelRewound, DiskFull, LeaseLost, NoSession, NotReady, Unavailable
from elanus.core.timestamps import Timestamp
from elanus.proxy.role.measures import NoMeasures
from elanus.proxy.role.proxy import Proxy
from elanus.proxy.role.queues import DmQueue, Turn
from elanus.proxy.role.stamps import OwnStamps

PCHANNEL = "by-dev-rootcoord-dml_0"


class Write:
    name = "write"
    pchannels = (PCHANNEL,)

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.ts = Timestamp(0)

    async def run(self, queue: DmQueue) -> Timestamp:
        return await queue.run(self.name, self.pchannels, self.write)

    async def write(self, turn: Turn) -> None:
        self.ts = turn.ts
        await self.go_on.wait()


async def started() -> Bench:
    bench = Bench(collection())
    await bench.proxy.start()
    return bench


async def test_it_joins_and_reports_before_anything_is_written() -> None:
    bench = await started()
    asked = [name for name, _ in bench.root.calls.asked]
    assert asked == ["update_channel_time_tick"]
    await bench.proxy.stop()


async def test_a_start_that_was_not_accepted_is_no_start() -> None:
    bench = Bench(collection())
    bench.root.calls.failing["update_channel_time_tick"] = Unavailable("not now")
    with pytest.raises(Unavailable):
        await bench.proxy.start()


async def test_it_reports_in_every_interval_and_goes_on_when_nobody_listens() -> None:
    bench = await started()
    await asyncio.sleep(1.0)
    assert len(bench.root.calls.of("update_channel_time_tick")) == 5
    bench.root.calls.failing["update_channel_time_tick"] = Unavailable("restarting")
    await asyncio.sleep(1.0)
    bench.root.calls.failing.clear()
    await asyncio.sleep(1.0)
    reports = bench.root.calls.of("update_channel_time_tick")
    assert len(reports) in (15, 16)
    assert [r.default_ts for r in reports] == sorted(r.default_ts for r in reports)
    await bench.proxy.stop()


async def test_a_log_that_is_full_is_logged_once_and_known_until_a_tick_finds_room() -> None:
    bench = await started()
    bench.root.calls.failing["update_channel_time_tick"] = DiskFull("no room left for the log")
    with capture_logs() as logged:
        await asyncio.sleep(1.0)
    assert [one["event"] for one in logged] == ["time tick not reported"]
    bench.root.calls.failing.clear()
    await asyncio.sleep(1.0)
    assert bench.proxy.ticker.log_full == "no room left for the log", "a report may write no tick"
    bench.proxy.ticker.request((PCHANNEL,), Timestamp(7))
    await asyncio.sleep(0.1)
    assert bench.proxy.ticker.log_full == ""
    await bench.proxy.stop()


async def test_a_channel_that_takes_no_ticks_is_known_until_one_is_written() -> None:
    bench = await started()
    bench.root.calls.failing["tick_now"] = ChannelRewound("nothing is written to it")
    bench.proxy.ticker.request((PCHANNEL,), Timestamp(7))
    await asyncio.sleep(0.1)
    assert bench.proxy.ticker.rewound == {(PCHANNEL,): "nothing is written to it"}
    bench.root.calls.failing.clear()
    bench.proxy.ticker.request((PCHANNEL,), Timestamp(8))
    await asyncio.sleep(0.1)
    assert bench.proxy.ticker.rewound == {}
    await bench.proxy.stop()


async def test_a_report_is_strictly_below_the_oldest_unfinished_write() -> None:
    bench = await started()
    writes = [Write(), Write()]
    running = [asyncio.ensure_future(w.run(bench.proxy.dm_queue)) for w in writes]
    await settle()
    report = await bench.proxy.report_tick(bench.root.stamp())
    assert report.node_id == NODE
    assert report.channels == {PCHANNEL: writes[0].ts - 1}
    assert report.default_ts > writes[1].ts
    writes[0].go_on.set()
    await running[0]
    assert (await bench.proxy.report_tick(bench.root.stamp())).channels == {PCHANNEL: writes[1].ts - 1}
    writes[1].go_on.set()
    await running[1]
    assert (await bench.proxy.report_tick(bench.root.stamp())).channels == {}
    await bench.proxy.stop()


async def test_it_leaves_the_barrier_only_after_its_last_write() -> None:
    bench = await started()
    write = Write()
    running = asyncio.ensure_future(write.run(bench.proxy.dm_queue))
    await settle()
    stopping = asyncio.ensure_future(bench.proxy.stop())
    await asyncio.sleep(1.0)
    assert not stopping.done()
    with pytest.raises(NotReady):
        await Write().run(bench.proxy.dm_queue)
    with pytest.raises(NotReady):
        await bench.proxy.dd_queue.run("late", lambda: asyncio.sleep(0))
    write.go_on.set()
    await stopping
    assert running.done()
    reports = bench.root.calls.of("update_channel_time_tick")
    assert reports[-1].channels == {PCHANNEL: write.ts - 1}, "it went on reporting while it waited"


async def test_a_write_that_does_not_end_is_given_up_not_left_behind() -> None:
    bench = await started()
    running = asyncio.ensure_future(Write().run(bench.proxy.dm_queue))
    await settle()
    await bench.proxy.stop()
    assert running.cancelled()


async def test_it_stops_also_when_the_root_coordinator_is_gone() -> None:
    bench = await started()
    bench.root.calls.failing["update_channel_time_tick"] = Unavailable("rootcoord is not running")
    await bench.proxy.stop()
    count = len(bench.root.calls.asked)
    await asyncio.sleep(5)
    assert len(bench.root.calls.asked) == count, "its ticker has ended"


async def test_a_proxy_that_rootcoord_does_not_know_gives_its_lease_up() -> None:
    bench = await started()
    bench.root.calls.failing["update_channel_time_tick"] = LeaseLost("this rootcoord is not the active one")
    await asyncio.sleep(1.0)
    assert bench.lease.given_up == "", "that was about rootcoord, not about it"
    bench.root.calls.failing["update_channel_time_tick"] = NoSession("proxy 1 has no session")
    await asyncio.sleep(1.0)
    assert bench.lease.given_up == "proxy 1 has no session"
    await bench.proxy.stop()


async def test_returning_allocations_makes_the_next_write_ask_again() -> None:
    bench = await started()
    assigner = bench.proxy._assigner
    partition_id = collection().partitions[0].partition_id
    for _ in range(2):
        await assigner.assign(CID, partition_id, "v", 1, bench.root.stamp())
    await bench.proxy.return_allocations(CID)
    await assigner.assign(CID, partition_id, "v", 1, bench.root.stamp())
    assert len(bench.data.calls.of("allocate")) == 2
    await bench.proxy.stop()


async def test_an_invalidation_of_everything_empties_the_cache() -> None:
    bench = await started()
    await bench.proxy.cache.fill("default", "c")
    await bench.proxy.invalidate_everything()
    assert bench.proxy.cache.get("default", "c") is None
    await bench.proxy.stop()


async def test_an_invalidation_empties_the_cache() -> None:
    bench = await started()
    await bench.proxy.cache.fill("default", "c")
    await bench.proxy.invalidate_collection(CID)
    assert bench.proxy.cache.get("default", "c") is None
    await bench.proxy.stop()


async def test_a_proxy_that_only_reads_has_no_part_in_ticks() -> None:
    """The process may hang or end: no tick waits for it."""
    bench = Bench(collection())
    ticked: list[int] = []
    reader = Proxy(
        bench.lease,
        bench.proxy.coordinators,
        bench.nodes,
        bench.log,
        OwnStamps(bench.root.stamp),
        inline,
        POLICY,
        NoMeasures(),
        is_reader=True,
        ticked=lambda: ticked.append(1),
    )
    await reader.start()
    await asyncio.sleep(5)
    assert bench.root.calls.asked == []
    reader.ticker.request((PCHANNEL,), Timestamp(7))
    await asyncio.sleep(1)
    assert [name for name, _ in bench.root.calls.asked] == ["tick_now"]
    assert ticked == [1], "a follower of the log need not wait for its next look"
    await reader.stop()
