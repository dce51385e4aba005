"""The read side of the query node that runs at this moment, through restarts of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from elanus.core.errors import NotReady
from elanus.core.ids import CollectionID
from elanus.core.timestamps import Timestamp
from elanus.proxy.patience import Patience
from elanus.rpc.querynode import NodeHits, NodeQuery, NodeSearch, QueryNodeReads


class CurrentReads:
    """Implements `elanus.proxy.reads.Nodes`. Raises `NotReady` while there is no query node."""

    def __init__(self, current: Callable[[], QueryNodeReads | None]) -> None:
        self._current = current

    def _node(self) -> QueryNodeReads:
        node = self._current()
        if node is None:
            raise NotReady("the query node is not running; retry when it is back")
        return node

    async def start(self) -> None:
        """The node is started as a role of its own."""

    async def stop(self) -> None:
        """As is its end."""

    def forget(self, collection_id: CollectionID) -> None:
        """Nothing is known beyond the node itself."""

    def service_time(self, collection_id: CollectionID) -> Timestamp:
        return self._node().service_time(collection_id)

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, patience: Patience) -> None:
        with patience.waiting():
            self._node().wait_service_time(collection_id, ts, patience.left_s())

    # By then its moment is served, and the read is this thread's own work: there is nothing to wait for.

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits:
        return self._node().search(request)

    def query(self, request: NodeQuery, patience: Patience) -> Mapping[str, pa.Array]:
        return self._node().query(request)

    def count(self, request: NodeQuery, patience: Patience) -> int:
        return self._node().count(request)
