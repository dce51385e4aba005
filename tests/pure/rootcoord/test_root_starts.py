"""A start that fails half-way leaves nothing running once the role is stopped."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest
from root_bench import Bench, new

from elanus.core.errors import Unavailable
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, physical_ms
from elanus.log.memory import MemoryLog
from elanus.log.port import START
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import Put
from elanus.rootcoord.catalog import Catalog


async def test_a_start_that_failed_half_way_can_be_stopped_and_leaves_no_task() -> None:
    bench = Bench()
    before = asyncio.all_tasks()
    unreadable = patch.object(Catalog, "start", side_effect=Unavailable("the catalog is not there"))
    with unreadable, pytest.raises(Unavailable):
        await bench.start()
    await bench.root.stop()
    assert asyncio.all_tasks() == before
    await bench.start()
    await bench.root.stop()


class Dated(MemoryLog):
    """A log on servers of its own. ``broken``: pchannels that cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()

    async def newest(self, pchannel: str) -> Timestamp:
        if pchannel in self.broken:
            raise Unavailable("no servers")
        reader = self.open_reader(pchannel, START, headers_only=True)
        entries = await reader.read()
        reader.close()
        return entries[-1].header.ts if entries else NO_TIMESTAMP


async def older_metadata(later_ms: int) -> tuple[Bench, MemoryMeta, MemoryMeta]:
    """A stopped cluster; its metadata without its last collection, and of now. The one was saved
    ``later_ms`` before the other."""
    bench = Bench()
    bench.log = Dated()
    root = await bench.start()
    await root.create_collection(new("known"))
    snapshot = await copied(bench.meta)
    await asyncio.sleep(later_ms / 1000)
    await root.create_collection(new("unknown"))
    await root.stop()
    return bench, snapshot, bench.meta


async def copied(meta: MemoryMeta) -> MemoryMeta:
    made = MemoryMeta()
    for key, entry in await meta.list(""):
        await made.txn([Put(key, entry.value)])
    return made


async def test_metadata_that_are_older_than_the_log_are_refused_until_the_right_ones_are_back() -> None:
    bench, snapshot, latest = await older_metadata(10_000)
    bench.meta = await copied(snapshot)
    for _ in range(2):  # a refusal changes nothing that the next start looks at
        with pytest.raises(Unavailable, match="an older snapshot of etcd was restored"):
            await bench.start()
        await bench.root.stop()
    assert await bench.meta.list("") == await (await copied(snapshot)).list("")
    bench.meta = latest
    root = await bench.start()
    assert {c.name for c in await root.list_collections("")} == {"known", "unknown"}
    await root.stop()


async def test_older_metadata_are_accepted_up_to_the_end_of_the_log_that_the_error_names() -> None:
    bench, bench.meta, _ = await older_metadata(10_000)
    with pytest.raises(Unavailable) as refused:
        await bench.start()
    await bench.root.stop()
    until_ms = int(refused.value.message.partition("accept_log_until_ms=")[2].partition(":")[0])
    with pytest.raises(Unavailable):
        await bench.start(accept_log_until_ms=until_ms - 1)
    await bench.root.stop()
    bench.clock.step_ms(-60_000)
    root = await bench.start(accept_log_until_ms=until_ms)
    assert {c.name for c in await root.list_collections("")} == {"known"}
    assert physical_ms(await root.alloc_timestamp(1)) > until_ms, "none of those in the log again"
    await root.stop()


async def test_a_restart_and_a_new_cluster_start_whatever_is_in_the_log() -> None:
    bench, _, _ = await older_metadata(0)
    await bench.start()
    await bench.root.stop()
    bench.meta = MemoryMeta()
    await bench.start()
    await bench.root.stop()


async def test_one_channel_that_can_be_read_is_enough_to_compare_and_none_is_not() -> None:
    bench, bench.meta, _ = await older_metadata(10_000)
    assert isinstance(bench.log, Dated)
    first, *others = bench.log.pchannels()
    bench.log.broken = {first, *others}
    with pytest.raises(Unavailable, match="no channel of the log can be read"):
        await bench.start()
    await bench.root.stop()
    bench.log.broken = set(others)
    with pytest.raises(Unavailable, match="an older snapshot"):
        await bench.start()
    await bench.root.stop()
