"""A coordinator's process that is stopped, replaced, and woken up again: what becomes of its orders."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from elanus.api.datanode import DataNodeApi, FlushReason
from elanus.core.ids import NodeID
from elanus.rpc.carrier import RpcChannel, RpcServer

FORMER, LATTER = 5, 9
CHILD = Path(__file__).with_name("ordering_child.py")


class Node:
    """Remembers whose orders it took."""

    def __init__(self) -> None:
        self.orders: list[int] = []
        self.ordered = asyncio.Event()

    async def flush_segments(self, epoch: int, *_args: Any) -> None:
        self.orders.append(epoch)
        self.ordered.set()


def test_a_coordinator_that_was_stopped_and_replaced_orders_nothing_when_it_wakes_up() -> None:
    async def run() -> tuple[list[int], str]:
        node = Node()
        server = RpcServer("127.0.0.1:0", [(DataNodeApi, node)])
        await server.start()
        address = f"127.0.0.1:{server.port}"
        former = await asyncio.create_subprocess_exec(
            sys.executable, str(CHILD), address, str(FORMER), stdout=asyncio.subprocess.PIPE
        )
        channel = RpcChannel(address)
        try:
            async with asyncio.timeout(60):
                await node.ordered.wait()
                former.send_signal(signal.SIGSTOP)
                latter = channel.client(DataNodeApi, issued_by=NodeID(LATTER))
                await latter.flush_segments(LATTER, "v", (), FlushReason("size"))
                former.send_signal(signal.SIGCONT)
                said, _ = await former.communicate()
        finally:
            if former.returncode is None:
                former.kill()
                await former.wait()
            await channel.close()
            await server.stop(0)
        return node.orders, said.decode()

    orders, said = asyncio.run(run())
    assert said == f"an order of datacoord {FORMER}: datacoord {LATTER} has taken its place"
    assert orders[-1] == LATTER
    assert orders.count(LATTER) == 1
