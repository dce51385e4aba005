"""The nodes of another role, as a role finds them: those that are there now."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from elanus.core.ids import NodeID

Api = TypeVar("Api")


class Nodes(Mapping[NodeID, Api]):
    """From node id to a client of the node. Changes as nodes come and go, a little behind them."""

    @abstractmethod
    async def refresh(self) -> None:
        """Know every node that had registered when this was called. Raises `Unavailable`."""

    @abstractmethod
    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every change, on the event loop. Returns what ends that."""


class NodesAs(Nodes[Api]):
    """The same nodes, by other clients. ``client`` makes a node's; it raises `KeyError` for who is gone."""

    def __init__(self, nodes: Nodes[Any], client: Callable[[NodeID], Api]) -> None:
        self._nodes = nodes
        self._client = client

    def __getitem__(self, node_id: NodeID) -> Api:
        return self._client(node_id)

    def __iter__(self) -> Iterator[NodeID]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    async def refresh(self) -> None:
        await self._nodes.refresh()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._nodes.on_change(listener)
