"""A look at all query nodes each second. Their pulses say what has changed.

Four parts of the role need them: which collections are not served as they should be (`served_watch`), which
nodes hold collections that were released (`strays`), which node is in which resource group (`groups`), and
from where on the nodes need the log (`log_positions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from elanus.api.querynode import QueryNodePulse
from elanus.core.errors import ElanusError
from elanus.core.ids import CollectionID, NodeID
from elanus.querycoord.fleet import Fleet, ask_all
from elanus.querycoord.groups import ResourceGroups
from elanus.querycoord.loader import CollectionLoader
from elanus.querycoord.log_positions import LogPositions
from elanus.querycoord.mirrors import Mirrors
from elanus.querycoord.served_watch import ServedWatch
from elanus.querycoord.strays import Strays

_LOOK_S = 1.0
_log = structlog.get_logger("querycoord")


class NodeWatch:
    """``loaders``: those of the loaded collections; ``lock`` is held while that changes. ``nodes_changed`` is
    called when a node has joined or left, or answers again."""

    def __init__(
        self,
        fleet: Fleet,
        groups: ResourceGroups,
        loaders: Mapping[CollectionID, CollectionLoader],
        mirrors: Mirrors,
        log_positions: LogPositions,
        lock: asyncio.Lock,
        nodes_changed: Callable[[], None],
    ) -> None:
        self._fleet = fleet
        self._groups = groups
        self._loaders = loaders
        self._mirrors = mirrors
        self._log_positions = log_positions
        self._lock = lock
        self._nodes_changed = nodes_changed
        self._served = ServedWatch(loaders)
        self._strays = Strays(loaders)
        self.latest: Mapping[NodeID, QueryNodePulse] = {}
        """The nodes' pulses of the last look at them."""

    def reconciled(self, collection_id: CollectionID) -> None:
        """Note that what a collection should serve, or does, may have changed."""
        self._served.reconciled(collection_id)

    def released(self, collection_id: CollectionID) -> None:
        """Note that a collection is not loaded any more."""
        self._strays.released(collection_id)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._groups.keep(recovering=False)
                pulses = await ask_all(self._fleet, lambda node: node.pulse())
            except ElanusError as error:
                _log.info("query nodes not reached", error=error.message)
                continue
            if pulses.keys() != self.latest.keys():
                self._nodes_changed()
            self.latest = pulses
            self._log_positions.note({**pulses, **self._mirrors.pulses()})
            self._served.check(pulses, self._groups.view())
            await self._release_strays(pulses)

    async def _release_strays(self, pulses: Mapping[NodeID, QueryNodePulse]) -> None:
        """Release collections on nodes that missed the release."""
        for node_id, collection_id in self._strays.among(pulses):
            async with self._lock:
                if collection_id in self._loaders:
                    continue  # loaded again meanwhile
                try:
                    await self._fleet.node(node_id).release_collection(collection_id)
                except ElanusError as error:
                    _log.info("release not delivered", node=node_id, error=error.message)
