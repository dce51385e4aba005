"""The connections of a process to the nodes that its coordinators give orders to."""

from __future__ import annotations

from collections.abc import Callable

from elanus.rpc.carrier import RpcChannel


class Connections:
    """One per address, opened when it is first asked for, and kept until `close`."""

    def __init__(self, connect: Callable[[str], RpcChannel]) -> None:
        self._connect = connect
        self._opened: dict[str, RpcChannel] = {}

    def to(self, address: str) -> RpcChannel:
        if address not in self._opened:
            self._opened[address] = self._connect(address)
        return self._opened[address]

    async def close(self) -> None:
        for channel in self._opened.values():
            await channel.close()
