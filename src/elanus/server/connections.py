"""A process's connections to the nodes that its coordinators command."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakValueDictionary

from elanus.rpc.carrier import RpcChannel


class Connections:
    """One connection per address, opened on first use and kept while somebody has it or a client of it.

    Nodes come with new addresses all the time, and nobody says when one has gone for good: the coordinators
    forget its client. A connection that is collected closes itself.
    """

    def __init__(self, connect: Callable[[str], RpcChannel]) -> None:
        self._connect = connect
        self._opened: WeakValueDictionary[str, RpcChannel] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._opened)

    def to(self, address: str) -> RpcChannel:
        channel = self._opened.get(address)
        if channel is None:
            channel = self._opened[address] = self._connect(address)
        return channel

    async def close(self) -> None:
        for channel in list(self._opened.values()):
            await channel.close()
