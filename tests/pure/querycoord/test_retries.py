"""How soon a loader tries again what has failed often."""

from __future__ import annotations

import asyncio

from fakes import manifest, recovery
from query_bench import Bench
from test_loading import ONE, loaded

from elanus.core.errors import Unavailable


async def test_what_failed_often_is_tried_again_at_once_when_something_has_changed() -> None:
    bench = await loaded(Bench())
    bench.node.calls.failing["load_segment"] = Unavailable("a file cannot be read")
    bench.set_data(recovery(ONE, manifest(1)))
    await asyncio.sleep(40)
    tried = len(bench.node.calls.of("status"))
    await asyncio.sleep(10)
    assert len(bench.node.calls.of("status")) - tried < 30, "the looks have become seldom"
    bench.node.calls.failing.clear()
    bench.data.changes.happened()
    await asyncio.sleep(2)
    assert bench.node.served() == {1}
    await bench.coord.stop()


async def test_what_failed_often_is_tried_again_soon_when_a_collection_is_served_no_more() -> None:
    bench = await loaded(Bench())
    bench.node.calls.failing["load_segment"] = Unavailable("a file cannot be read")
    bench.set_data(recovery(ONE, manifest(1)))
    await asyncio.sleep(40)
    bench.node.calls.failing.clear()
    bench.node.restart()
    await asyncio.sleep(2.5)
    assert bench.node.served() == {1}
    await bench.coord.stop()
