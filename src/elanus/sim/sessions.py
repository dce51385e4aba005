"""The sessions of data nodes.

The system holds them, as the parent of a pipeline process does in a standalone: from the start of a life to
its end, so that datacoord learns of the end at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from elanus.core.ids import NodeID
from elanus.core.nodes import Nodes
from elanus.rpc.datanode import DataNodePorts


class DataNodeSessions(Nodes[DataNodePorts]):
    """As one life of datacoord sees them. ``lives``: the name of each node's life, changed by the system,
    which then calls `changed`; ``connect`` makes the clients."""

    def __init__(self, lives: Mapping[NodeID, str], connect: Callable[[str], DataNodePorts]) -> None:
        self._lives = lives
        self._connect = connect
        self._ports: dict[NodeID, DataNodePorts] = {}
        self._listeners: list[Callable[[], None]] = []

    def __getitem__(self, node_id: NodeID) -> DataNodePorts:
        name = self._lives[node_id]
        if node_id not in self._ports:
            self._ports[node_id] = self._connect(name)
        return self._ports[node_id]

    def __iter__(self) -> Iterator[NodeID]:
        return iter(tuple(self._lives))

    def __len__(self) -> int:
        return len(self._lives)

    async def refresh(self) -> None:
        """Always up to date."""

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def changed(self) -> None:
        for listener in tuple(self._listeners):
            listener()
