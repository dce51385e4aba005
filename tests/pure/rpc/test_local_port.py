"""Calls within a process: as between processes, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from role_interfaces import INTERFACES
from test_carrier import EVERY_METHOD, WHY, NodeThat, Recorder, methods
from type_samples import sample

from elanus.api.datanode import DataNodeApi
from elanus.core.errors import CoordinatorReplaced, DeadlineExceeded, Internal, SegmentNotFound, Unavailable
from elanus.core.ids import NodeID
from elanus.rpc import deadlines
from elanus.rpc.local_port import LocalPort


def port_of(flush: Callable[[], Awaitable[Any]]) -> LocalPort:
    port = LocalPort("datanode")
    port.up([(DataNodeApi, NodeThat(flush))])
    return port


def flush(port: LocalPort, timeout_s: float | None = None, issued_by: NodeID | None = None) -> Awaitable[Any]:
    return port.client(DataNodeApi, timeout_s, issued_by=issued_by).flush_segments(1, "v", (), WHY)


async def forever() -> None:
    await asyncio.Event().wait()


def test_every_method_of_every_interface_is_called() -> None:
    async def run() -> None:
        roles = {name: Recorder(api) for name, api in INTERFACES.items()}
        port = LocalPort("all")
        port.up([(api, roles[name]) for name, api in INTERFACES.items()])
        for api, method in EVERY_METHOD:
            hints = methods(INTERFACES[api])[method]
            result = hints.pop("return")
            sent = tuple(sample(hint, seed) for seed, hint in enumerate(hints.values(), start=1))
            answer = await getattr(port.client(INTERFACES[api]), method)(*sent)
            assert roles[api].asked.pop() == sent, f"{api}.{method}"
            assert answer == sample(result, seed=50), f"{api}.{method}"

    asyncio.run(run())


def test_an_error_of_the_tree_stays_and_any_other_is_internal() -> None:
    async def missing() -> None:
        raise SegmentNotFound("no segment 7")

    async def broken() -> None:
        raise TimeoutError("of something else")

    async def run() -> None:
        with pytest.raises(SegmentNotFound, match="no segment 7"):
            await flush(port_of(missing))
        with pytest.raises(Internal, match="flush_segments: TimeoutError: of something else"):
            await flush(port_of(broken))

    asyncio.run(run())


def test_a_call_waits_for_a_role_that_is_starting() -> None:
    async def run() -> None:
        port = LocalPort("datanode")
        call = asyncio.ensure_future(flush(port))
        await asyncio.sleep(0)
        assert not call.done()
        port.up([(DataNodeApi, Recorder(DataNodeApi))])
        await call

    asyncio.run(run())


@pytest.mark.parametrize("is_up", [True, False])
def test_a_call_lasts_no_longer_than_its_timeout(is_up: bool) -> None:
    async def run() -> None:
        port = port_of(forever) if is_up else LocalPort("datanode")
        with pytest.raises(DeadlineExceeded, match="datanode did not answer flush_segments in time"):
            await flush(port, 0.01)

    asyncio.run(run())


def test_a_call_lasts_no_longer_than_the_one_that_it_helps_to_answer() -> None:
    async def run() -> None:
        deadlines.bind(0.01)
        with pytest.raises(DeadlineExceeded):
            await flush(port_of(forever))

    asyncio.run(run())


def test_the_target_knows_how_long_its_caller_waits() -> None:
    left: list[float | None] = []

    async def look() -> None:
        left.append(deadlines.within(None))

    async def run() -> None:
        await flush(port_of(look), 60.0)
        await flush(port_of(look))

    asyncio.run(run())
    assert left[0] is not None
    assert 0 < left[0] <= 60
    assert left[1] is None


def test_a_role_that_goes_down_ends_its_calls() -> None:
    async def run() -> None:
        port = port_of(forever)
        call = asyncio.ensure_future(flush(port))
        await asyncio.sleep(0.01)
        port.down()
        with pytest.raises(Unavailable, match="datanode went down during flush_segments"):
            await call

    asyncio.run(run())


def test_a_caller_that_gives_up_ends_its_call() -> None:
    ended = asyncio.Event()

    async def stay() -> None:
        try:
            await forever()
        finally:
            ended.set()

    async def run() -> None:
        call = asyncio.ensure_future(flush(port_of(stay)))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await ended.wait()

    asyncio.run(run())


def test_orders_of_a_coordinator_that_was_replaced_are_refused_until_the_role_starts_again() -> None:
    async def run() -> None:
        port = LocalPort("datanode")
        port.up([(DataNodeApi, Recorder(DataNodeApi))])
        await flush(port, issued_by=NodeID(7))
        with pytest.raises(CoordinatorReplaced):
            await flush(port, issued_by=NodeID(6))
        with pytest.raises(CoordinatorReplaced):
            await flush(port)
        port.down()
        port.up([(DataNodeApi, Recorder(DataNodeApi))])
        await flush(port, issued_by=NodeID(6))

    asyncio.run(run())
