"""A load asks for an early tick, and does not depend on its coming."""

from __future__ import annotations

import asyncio

import pytest
from fakes import CID, collection, manifest, recovery, settle
from query_bench import Bench

from elanus.core.errors import ChannelRewound
from elanus.core.timestamps import Timestamp


@pytest.mark.parametrize("is_refused", [False, True], ids=["no tick comes", "its log takes no tick"])
async def test_a_load_does_not_wait_for_its_tick(is_refused: bool) -> None:
    bench = Bench()
    bench.set_data(recovery(collection(), manifest(1)))

    async def tick_now(pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        if is_refused:
            raise ChannelRewound("the log is an older copy")
        await asyncio.Event().wait()

    bench.root.tick_now = tick_now  # type: ignore[method-assign]
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await settle()
    assert bench.node.served() == {1}
    assert asyncio.get_running_loop().time() < 1
    await bench.coord.stop()
