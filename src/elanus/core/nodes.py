"""The nodes of another role that are registered now."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from elanus.core.ids import NodeID

Api = TypeVar("Api")


class Nodes(Mapping[NodeID, Api]):
    """A mapping of node ids to clients of the nodes. It follows joins and departures with a short delay."""

    @abstractmethod
    async def refresh(self) -> None:
        """Include every node that had registered when this was called. Raises `Unavailable`."""

    @abstractmethod
    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every change, on the event loop. Return a function that removes it."""


class NodesAs(Nodes[Api]):
    """The same nodes with other clients. ``client`` makes a node's client; `KeyError` if the node is gone."""

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
