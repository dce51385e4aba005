"""Clients of a collection of which now some partitions are loaded, now others, under load.

Rows of a partition that is not loaded, or is being loaded or released, may be missing from an answer. Rows of
the others must be there. One client alone releases and loads.
"""

from __future__ import annotations

import asyncio

from elanus.core.ids import CollectionID, PartitionID
from elanus.sim.client_verbs import READ_TIMEOUT_S
from elanus.sim.workload import Client

_LOOK_S = 0.2
_READ_ENDS_S = READ_TIMEOUT_S + 2.0
"""By then a read that began before the load was complete has been answered, or has failed."""
_RELEASES = 0.4


class PartlyClient(Client):
    """A client that loads and releases partitions, too."""

    async def _change_load(self, name: str) -> str:
        """Load a partition that is not loaded, or release another one."""
        cached = await self._system.ask(self._proxy(), "look", lambda verbs: verbs.collection(name))
        partitions = sorted(cached.partitions.values())
        missing = [p for p in partitions if self._judge.loads.may_miss(p)]
        present = [p for p in partitions if p not in missing]
        if present and (not missing or self._random.random() < _RELEASES):
            partition_id = self._random.choice(present)
            self._judge.loads.releases(partition_id)
            release = self._system.roles_of_clients.query.release
            await self._of_collection("release", name, lambda of: release(of, (partition_id,)))
            self._system.trace.count("partitions released")
            return f"partition {partition_id} is released"
        partition_id = self._random.choice(missing)
        await self._load_partition(name, cached.collection_id, partition_id)
        self._system.trace.count("partitions loaded")
        return f"partition {partition_id} is loaded"

    async def _load_partition(
        self, name: str, collection_id: CollectionID, partition_id: PartitionID
    ) -> None:
        """Load a partition; return when it is loaded, and have its rows demanded soon afterwards."""
        while self._system.is_under_way("release"):  # it would take the partition away again
            await asyncio.sleep(_LOOK_S)
        query, replicas = self._system.roles_of_clients.query, self._system.reading.replicas
        await self._of_collection("load", name, lambda of: query.load(of, (partition_id,), replicas))
        while True:
            loads = await query.loads(collection_id)
            if loads and loads[0].percentages.get(partition_id) == 100:
                break
            await asyncio.sleep(_LOOK_S)
        loaded = self._judge.loads.loaded(partition_id)
        asyncio.get_running_loop().call_later(_READ_ENDS_S, loaded)
