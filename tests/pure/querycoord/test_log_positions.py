"""Datacoord learns from where on query nodes need the log."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock

import pytest
from fakes import CID, collection, manifest, recovery, settle
from query_bench import NODE, Bench

from elanus.api.querynode import LoadSegment
from elanus.api.recovery import LogHold
from elanus.core.channels import pchannel_of
from elanus.core.errors import Unavailable
from elanus.core.ids import NodeID

ONE = collection()


async def loaded(bench: Bench) -> Bench:
    bench.set_data(recovery(ONE))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await settle()
    return bench


async def test_datacoord_learns_what_the_nodes_have_yet_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of nodes that read, and of a load that will have them read."""
    bench = await loaded(Bench())
    pchannel = pchannel_of(ONE.vchannels[0])
    bench.node.positions = {pchannel: 70}
    await asyncio.sleep(10)
    assert bench.data.calls.of("hold_log")[-1] == (LogHold(NODE, pchannel, 70),)
    loading, go_on = asyncio.Event(), asyncio.Event()
    load_segment = bench.node.load_segment

    async def slow(request: LoadSegment) -> None:
        loading.set()
        await go_on.wait()
        await load_segment(request)

    monkeypatch.setattr(bench.node, "load_segment", slow)
    bench.set_data(recovery(ONE, manifest(1)))
    await loading.wait()
    await asyncio.sleep(10)
    (vchannel,) = bench.data.recoveries[CID].vchannels
    recovering = LogHold(NodeID(0), pchannel, vchannel.checkpoint.position)
    assert set(bench.data.calls.of("hold_log")[-1]) == {LogHold(NODE, pchannel, 70), recovering}
    go_on.set()
    await asyncio.sleep(10)
    assert bench.data.calls.of("hold_log")[-1] == (LogHold(NODE, pchannel, 70),)
    await bench.coord.stop()


async def test_a_node_that_does_not_answer_holds_the_log_until_its_session_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await loaded(Bench())
    bench.node.positions = {"p": 70}
    await asyncio.sleep(10)
    monkeypatch.setattr(bench.node, "status", AsyncMock(side_effect=Unavailable("busy")))
    await asyncio.sleep(10)
    assert bench.data.calls.of("hold_log")[-1] == (LogHold(NODE, "p", 70),)
    monkeypatch.setattr(bench.coord._peers.fleet, "alive", tuple)
    await asyncio.sleep(10)
    assert bench.data.calls.of("hold_log")[-1] == ()
    await bench.coord.stop()
