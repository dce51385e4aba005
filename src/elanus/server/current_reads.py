"""The read side of the query node that is currently running, across its restarts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from elanus.api.querynode import NodeHits, NodeQuery, NodeSearch, NodeStatistics, QueryNodeReads
from elanus.core.errors import NotReady
from elanus.core.ids import CollectionID
from elanus.core.term_statistics import TermStatistics
from elanus.core.timestamps import Timestamp
from elanus.proxy.fanout.deadline import Patience


class CurrentReads:
    """Implements `elanus.proxy.role.read_path.ReadNodes`. Raises `NotReady` while there is no query node."""

    def __init__(self, current: Callable[[], QueryNodeReads | None]) -> None:
        self._current = current

    def _node(self) -> QueryNodeReads:
        node = self._current()
        if node is None:
            raise NotReady("the query node is not running; retry when it is back")
        return node

    async def start(self) -> None:
        """Nothing to do: the node is started as a role of its own."""

    async def stop(self) -> None:
        """Nothing to do: the node is stopped as a role of its own."""

    def forget(self, collection_id: CollectionID) -> None:
        """Nothing to do: nothing is cached outside the node."""

    def service_time(self, collection_id: CollectionID, patience: Patience) -> Timestamp:
        return self._node().service_time(collection_id)

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, patience: Patience) -> None:
        with patience.waiting():
            self._node().wait_service_time(collection_id, ts, patience.left_s())

    # By now the guarantee timestamp is served, and the read runs in the calling thread: no waiting is needed.

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits:
        return self._node().search(request)

    def query(self, request: NodeQuery, patience: Patience) -> Mapping[str, pa.Array]:
        return self._node().query(request)

    def statistics(self, request: NodeStatistics, patience: Patience) -> TermStatistics:
        return self._node().statistics(request)

    def count(self, request: NodeQuery, patience: Patience) -> int:
        return self._node().count(request)
