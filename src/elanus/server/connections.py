"""A process's connections to the nodes that its coordinators command."""

from __future__ import annotations

from collections.abc import Callable

from elanus.rpc.carrier import RpcChannel


class Connections:
    """One connection per address, opened on first use and kept until `close`."""

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
