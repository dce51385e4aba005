"""The read side of the query node that is currently running, across its restarts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from elanus.api.querycoord import LoadStatus, QueryCoordApi
from elanus.api.querynode import NodeHits, NodeQuery, NodeSearch, NodeStatistics, QueryNodeReads
from elanus.core.errors import CollectionNotFullyLoaded, CollectionNotLoaded, NotReady
from elanus.core.ids import CollectionID
from elanus.core.term_statistics import TermStatistics
from elanus.core.timestamps import Timestamp
from elanus.proxy.fanout.blocking import Waits
from elanus.proxy.fanout.deadline import Patience

_ASK_S = 5.0


class CurrentReads:
    """Implements `elanus.proxy.role.read_path.ReadNodes`. Raises `NotReady` while there is no query node.

    A node that does not have a collection cannot know whether it is to load it: ``querycoord`` does.
    """

    def __init__(
        self, current: Callable[[], QueryNodeReads | None], querycoord: QueryCoordApi, waits: Waits
    ) -> None:
        self._current = current
        self._querycoord = querycoord
        self._waits = waits

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
        try:
            return self._node().service_time(collection_id)
        except CollectionNotLoaded as error:
            self._check_not_loading(collection_id, patience)
            raise error from None

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, patience: Patience) -> None:
        try:
            with patience.waiting():
                self._node().wait_service_time(collection_id, ts, patience.left_s())
        except CollectionNotLoaded as error:
            self._check_not_loading(collection_id, patience)
            raise error from None

    def _check_not_loading(self, collection_id: CollectionID, patience: Patience) -> None:
        """Raises `CollectionNotFullyLoaded` if the collection is to be loaded."""
        try:
            loads = self._waits.run(self._loads(collection_id), min(patience.left_s(), _ASK_S))
        except TimeoutError:
            raise NotReady("the query coordinator does not answer; retry when it is back") from None
        for load in loads:
            percent = min(load.percentages.values(), default=0)
            raise CollectionNotFullyLoaded(
                f"collection not fully loaded[collection={collection_id}]: {percent} % are loaded; retry"
            )

    async def _loads(self, collection_id: CollectionID) -> tuple[LoadStatus, ...]:
        return await self._querycoord.loads(collection_id)

    # By now the guarantee timestamp is served, and the read runs in the calling thread: no waiting is needed.

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits:
        return self._node().search(request)

    def query(self, request: NodeQuery, patience: Patience) -> Mapping[str, pa.Array]:
        return self._node().query(request)

    def statistics(self, request: NodeStatistics, patience: Patience) -> TermStatistics:
        return self._node().statistics(request)

    def count(self, request: NodeQuery, patience: Patience) -> int:
        return self._node().count(request)
