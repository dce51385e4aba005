"""How a synchronous read runs where nothing may block.

The proxy's reader (`elanus.proxy.reads`) runs in a thread of its own and blocks until the query node has
reached its timestamp. Here an attempt that would block is broken off with `NotYet`, and made again when the
time has come, with everything it looked at before as it was: the timestamp it took, and the service time
it saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from elanus.core.ids import CollectionID
from elanus.core.timestamps import Timestamp
from elanus.proxy.patience import Patience
from elanus.proxy.reads import Nodes
from elanus.rpc.querynode import NodeHits, NodeQuery, NodeSearch


class NotYet(Exception):
    """The read has to wait for this service time."""

    def __init__(self, collection_id: CollectionID, ts: Timestamp) -> None:
        super().__init__(f"collection {collection_id} has not reached {ts}")
        self.collection_id = collection_id
        self.ts = ts


@dataclass(slots=True)
class Moment:
    """What one read has looked at so far. ``waited``: its wait has ended, it looks at the present again."""

    stamp: Timestamp
    served: Timestamp | None = None
    waited: bool = False


class ReadsOfMoments:
    """`elanus.proxy.reads.Nodes` and the oracle for a proxy: those of ``moment`` while one is set."""

    def __init__(self, nodes: Nodes, stamp: Callable[[], Timestamp]) -> None:
        self.moment: Moment | None = None
        self._nodes = nodes
        self._stamp = stamp

    def stamp(self) -> Timestamp:
        return self._stamp() if self.moment is None else self.moment.stamp

    async def start(self) -> None:
        """The node is there by itself."""

    async def stop(self) -> None:
        """And stays."""

    def forget(self, collection_id: CollectionID) -> None:
        """Nothing is known beyond the node itself."""

    def service_time(self, collection_id: CollectionID) -> Timestamp:
        served = self._nodes.service_time(collection_id)
        if self.moment is None or self.moment.waited:
            return served
        if self.moment.served is None:
            self.moment.served = served
        return self.moment.served

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, patience: Patience) -> None:
        if self._nodes.service_time(collection_id) < ts:
            raise NotYet(collection_id, ts)
        if self.moment is not None:
            self.moment.waited = True

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits:
        return self._nodes.search(request, patience)

    def query(self, request: NodeQuery, patience: Patience) -> Mapping[str, pa.Array]:
        return self._nodes.query(request, patience)

    def count(self, request: NodeQuery, patience: Patience) -> int:
        return self._nodes.count(request, patience)
