"""A dropped collection whose log cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_bench import Bench
from fakes import CID, collection
from test_commits import S, flushing

from elanus.core.errors import CommitRefused


async def test_a_dropped_collection_whose_log_cannot_be_read_ends_without_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(shards=2))
    segment = await flushing(bench)
    coord, vchannels = bench.coord, bench.collections[0].vchannels
    assert not await coord.channel_unreadable(bench.epoch, vchannels[0])
    assert (await bench.segment(segment)).state is not S.DROPPED
    await coord.drop_collection(CID)
    with pytest.raises(CommitRefused):
        await coord.channel_unreadable(bench.epoch - 1, vchannels[0])
    for vchannel in vchannels:
        assert await coord.channel_unreadable(bench.epoch, vchannel)
        assert await coord.channel_unreadable(bench.epoch, vchannel)  # said twice
    assert not await coord.holds_channels(CID)
    assert (await bench.segment(segment)).state is S.DROPPED
    await coord.stop()
