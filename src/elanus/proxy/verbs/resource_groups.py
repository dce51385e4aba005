"""The verbs for resource groups. Collections are given by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elanus.api.querycoord import QueryCoordApi
from elanus.core.errors import CollectionNotFound
from elanus.core.group_config import GroupConfig
from elanus.core.ids import CollectionID
from elanus.core.names import check_resource_group_name
from elanus.proxy.api.resource_groups import ResourceGroupView
from elanus.proxy.verbs.family import VerbFamily


class ResourceGroups(VerbFamily):
    @property
    def _groups(self) -> QueryCoordApi:
        return self._proxy.coordinators.query

    def create_resource_group(self, name: str, config: GroupConfig | None = None) -> None:
        check_resource_group_name(name)
        self._proxy.define("create resource group", lambda: self._groups.create_resource_group(name, config))

    def update_resource_groups(self, configs: Mapping[str, GroupConfig]) -> None:
        self._proxy.define("update resource groups", lambda: self._groups.update_resource_groups(configs))

    def drop_resource_group(self, name: str) -> None:
        self._proxy.define("drop resource group", lambda: self._groups.drop_resource_group(name))

    def list_resource_groups(self) -> Sequence[str]:
        return self._proxy.define("list resource groups", lambda: self._groups.list_resource_groups())

    def describe_resource_group(self, name: str) -> ResourceGroupView:
        return self._proxy.define("describe resource group", lambda: self._described(name))

    def transfer_node(self, source: str, target: str, count: int) -> None:
        self._proxy.define("transfer node", lambda: self._groups.transfer_node(source, target, count))

    def transfer_replica(self, database: str, collection: str, source: str, target: str, count: int) -> None:
        collection_id = self._collection(database, collection).collection_id
        self._proxy.define(
            "transfer replica",
            lambda: self._groups.transfer_replica(collection_id, source, target, count),
        )

    async def _described(self, name: str) -> ResourceGroupView:
        status = await self._groups.describe_resource_group(name)
        return ResourceGroupView(
            status.name,
            status.capacity,
            status.nodes,
            await self._by_name(status.loaded),
            await self._by_name(status.outgoing),
            await self._by_name(status.incoming),
            status.config,
        )

    async def _by_name(self, counts: Mapping[CollectionID, int]) -> dict[str, int]:
        """Return the counts by collection name.

        Collections with the same name in several databases are summed; one dropped meanwhile is left out.
        """
        named: dict[str, int] = {}
        for collection_id, count in counts.items():
            try:
                collection = await self._proxy.coordinators.root.collection_by_id(collection_id)
            except CollectionNotFound:
                continue
            named[collection.name] = named.get(collection.name, 0) + count
        return named
