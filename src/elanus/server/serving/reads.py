"""How a serving process reads: from its own query node, where it holds a grant, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import pyarrow as pa

from elanus.api.querynode import NodeHits, NodeQuery, NodeSearch, NodeStatistics, QueryNodeReads
from elanus.api.serving import EVERY_COLLECTION
from elanus.core.errors import NotReady
from elanus.core.ids import CollectionID
from elanus.core.term_statistics import TermStatistics
from elanus.core.timestamps import Timestamp
from elanus.proxy.fanout.deadline import Patience
from elanus.proxy.role.iterator_pages import Pages
from elanus.proxy.role.own_writes import OwnWrites
from elanus.server.settings import ProxySettings

BEHIND_MAX_S = 1.0
"""A read that its own node cannot serve within this time is passed on."""


def reading_settings(settings: ProxySettings) -> ProxySettings:
    """Return the settings by which a serving process lets clients sign in.

    A refused call is passed on, and the main process decides. So the process looks at one wrong password of
    an address per minute and leaves the others to the main process: each process would else allow as many as
    the server should in all.
    """
    tries = min(settings.wrong_passwords_per_minute, 1)  # 0: no limit
    return settings.model_copy(update={"wrong_passwords_per_minute": tries})


class Grants:
    """Implements `elanus.api.serving.ReadGrants`. Changed on the event loop, read by any thread."""

    def __init__(self) -> None:
        self._granted: frozenset[CollectionID] = frozenset()

    def __contains__(self, collection_id: CollectionID) -> bool:
        return collection_id in self._granted

    def __len__(self) -> int:
        return len(self._granted)

    async def grant(self, collection_id: CollectionID) -> None:
        self._granted |= {collection_id}

    async def withhold(self, collection_id: CollectionID) -> None:
        if collection_id == EVERY_COLLECTION:
            self._granted = frozenset()
        else:
            self._granted -= {collection_id}


class GrantedReads:
    """Implements `elanus.proxy.role.read_path.ReadNodes`.

    Every method raises `NotReady` without a grant: also the reads themselves, since a read may have waited
    for its timestamp while the grant was taken back.
    """

    def __init__(self, node: QueryNodeReads, grants: Grants) -> None:
        self._node = node
        self._grants = grants

    def _granted(self, collection_id: CollectionID) -> QueryNodeReads:
        if collection_id not in self._grants:
            raise NotReady(f"this process does not serve collection {collection_id}: the main process does")
        return self._node

    async def start(self) -> None:
        """Nothing to do: the process starts its node."""

    async def stop(self) -> None:
        """Nothing to do: the process stops its node."""

    def forget(self, collection_id: CollectionID) -> None:
        """Nothing to do: nothing is cached outside the node."""

    def service_time(self, collection_id: CollectionID, patience: Patience) -> Timestamp:
        return self._granted(collection_id).service_time(collection_id)

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, patience: Patience) -> None:
        node = self._granted(collection_id)
        with patience.waiting():
            node.wait_service_time(collection_id, ts, min(patience.left_s(), BEHIND_MAX_S))

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits:
        return self._granted(request.collection_id).search(request)

    def query(self, request: NodeQuery, patience: Patience) -> Mapping[str, pa.Array]:
        return self._granted(request.collection_id).query(request)

    def statistics(self, request: NodeStatistics, patience: Patience) -> TermStatistics:
        return self._granted(request.collection_id).statistics(request)

    def count(self, request: NodeQuery, patience: Patience) -> int:
        return self._granted(request.collection_id).count(request)


class PassedWrites(OwnWrites):
    """The last write of each client that was passed on, to whichever collection.

    Only the main process looks at what a write concerns. A Bounded read therefore waits for the client's last
    write to any collection.
    """

    def wrote(self, client: str, ts: Timestamp) -> None:
        self.note(client, EVERY_COLLECTION, ts)

    def last(self, client: str, collection_id: CollectionID) -> Timestamp:
        return super().last(client, EVERY_COLLECTION)


class PagesElsewhere(Pages):
    """Search iterators are the main process's: it remembers where each one is, for every connection."""

    def page(self, *_: Any, **__: Any) -> NoReturn:
        raise NotReady("search iterators are answered by the main process")
