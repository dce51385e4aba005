"""Orders of a coordinator that was replaced: the gate, and the gate behind the carrier."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from typing import Any

import pytest
from role_interfaces import INTERFACES

from elanus.api.datanode import DataNodeApi, FlushReason
from elanus.api.fencing import Gate, orders_of
from elanus.api.gc import SweeperApi
from elanus.api.pipeline import PipelineApi, SparkState
from elanus.core.errors import CoordinatorReplaced, LeaseLost
from elanus.core.ids import NodeID
from elanus.rpc.carrier import RpcChannel, RpcServer

FORMER, LATTER = NodeID(5), NodeID(9)
UNFENCED = {"QueryNodeApi": {"pulse", "status"}, "PipelineApi": {"ping"}}
ISSUERS = {
    "QueryNodeApi": "querycoord",
    "DataNodeApi": "datacoord",
    "ImportNodeApi": "datacoord",
    "IndexNodeApi": "indexcoord",
    "SweeperApi": "datacoord",
    "PipelineApi": "datacoord",
}


@pytest.mark.parametrize("api", sorted(INTERFACES))
def test_the_orders_of_each_interface_are_these(api: str) -> None:
    methods = {name for name, _ in inspect.getmembers(INTERFACES[api], inspect.iscoroutinefunction)}
    orders = methods - UNFENCED.get(api, set()) if api in ISSUERS else set()
    assert orders_of(INTERFACES[api]) == dict.fromkeys(orders, ISSUERS.get(api, ""))


# the gate


def test_until_a_coordinator_is_known_every_order_passes() -> None:
    gate = Gate()
    gate.admit("datacoord", None)
    gate.admit("datacoord", FORMER)


def test_after_a_later_one_orders_of_the_former_are_refused() -> None:
    gate = Gate()
    gate.note("datacoord", FORMER)
    gate.admit("datacoord", FORMER)
    gate.note("datacoord", LATTER)
    gate.admit("datacoord", LATTER)
    with pytest.raises(CoordinatorReplaced, match="an order of datacoord 5: datacoord 9 has taken its place"):
        gate.admit("datacoord", FORMER)


def test_a_call_of_an_earlier_session_changes_nothing() -> None:
    gate = Gate()
    gate.note("datacoord", LATTER)
    gate.note("datacoord", FORMER)
    with pytest.raises(CoordinatorReplaced):
        gate.admit("datacoord", FORMER)


def test_an_order_without_a_session_is_refused_once_a_coordinator_is_known() -> None:
    gate = Gate()
    gate.note("datacoord", FORMER)
    with pytest.raises(CoordinatorReplaced, match="without the session"):
        gate.admit("datacoord", None)


def test_roles_are_distinguished() -> None:
    gate = Gate()
    gate.note("datacoord", LATTER)
    gate.admit("indexcoord", FORMER)


def test_the_refused_one_learns_that_it_does_not_count() -> None:
    assert issubclass(CoordinatorReplaced, LeaseLost)
    assert CoordinatorReplaced.retriable


# behind the carrier


class Node:
    """A process that takes orders, and remembers them."""

    def __init__(self) -> None:
        self.orders: list[str] = []

    async def flush_segments(self, *_args: Any) -> None:
        self.orders.append("flush")

    async def sweep(self, *_args: Any) -> None:
        self.orders.append("sweep")

    async def cancel_job(self, _job: str) -> None:
        self.orders.append("cancel")

    async def ping(self) -> SparkState:
        self.orders.append("ping")
        return SparkState.AWAKE


def run_with_node(work: Any) -> list[str]:
    async def run() -> list[str]:
        node = Node()
        with tempfile.TemporaryDirectory(prefix="rpc") as directory:
            server = RpcServer(
                f"unix:{directory}/s", [(DataNodeApi, node), (SweeperApi, node), (PipelineApi, node)]
            )
            await server.start()
            channel = RpcChannel(f"unix:{directory}/s")
            try:
                await work(channel)
            finally:
                await channel.close()
                await server.stop(0)
        return node.orders

    return asyncio.run(run())


def test_a_former_coordinator_that_wakes_up_orders_nothing() -> None:
    async def work(channel: RpcChannel) -> None:
        former = channel.client(DataNodeApi, issued_by=FORMER)
        await former.flush_segments(1, "v", (), FlushReason("size"))
        await channel.client(DataNodeApi, issued_by=LATTER).flush_segments(2, "v", (), FlushReason("size"))
        with pytest.raises(CoordinatorReplaced):
            await former.flush_segments(1, "v", (), FlushReason("size"))

    assert run_with_node(work) == ["flush", "flush"]


def test_a_session_known_to_one_interface_is_known_to_the_others_of_the_process() -> None:
    async def work(channel: RpcChannel) -> None:
        await channel.client(DataNodeApi, issued_by=LATTER).flush_segments(2, "v", (), FlushReason("size"))
        with pytest.raises(CoordinatorReplaced):
            await channel.client(PipelineApi, issued_by=FORMER).cancel_job("build-1")

    assert run_with_node(work) == ["flush"]


def test_a_question_is_answered_to_anybody_and_makes_its_session_known() -> None:
    async def work(channel: RpcChannel) -> None:
        await channel.client(PipelineApi, issued_by=LATTER).ping()
        await channel.client(PipelineApi, issued_by=FORMER).ping()
        await channel.client(PipelineApi).ping()
        with pytest.raises(CoordinatorReplaced):
            await channel.client(PipelineApi, issued_by=FORMER).cancel_job("build-1")

    assert run_with_node(work) == ["ping", "ping", "ping"]
