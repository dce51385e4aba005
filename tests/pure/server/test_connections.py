"""The connections of a process to nodes: one per address, as long as somebody has it."""

from __future__ import annotations

import gc

from elanus.api.indexnode import IndexNodeApi
from elanus.rpc.carrier import RpcChannel
from elanus.server.connections import Connections


async def test_a_connection_lives_as_long_as_a_client_of_it() -> None:
    """Nodes come with new addresses all the time, and no address is said to be gone for good."""
    opened: list[str] = []

    def connect(address: str) -> RpcChannel:
        opened.append(address)
        return RpcChannel(address)

    connections = Connections(connect)
    client = connections.to("127.0.0.1:1").client(IndexNodeApi)
    for port in range(2, 100):
        connections.to(f"127.0.0.1:{port}").client(IndexNodeApi)
    gc.collect()
    assert len(connections) == 1
    connections.to("127.0.0.1:1").client(IndexNodeApi)
    assert len(opened) == 99
    del client
    gc.collect()
    assert len(connections) == 0
    await connections.close()
