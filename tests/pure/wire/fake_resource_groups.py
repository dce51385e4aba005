"""Resource groups of `FakeVerbs`: made and dropped by name; transfers are only noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from elanus.core.errors import ResourceGroupAlreadyExists, ResourceGroupNotFound
from elanus.core.group_config import GroupConfig
from elanus.core.ids import NodeID
from elanus.core.resource_groups import DEFAULT_RESOURCE_GROUP
from elanus.proxy.api.resource_groups import ResourceGroupView


class FakeResourceGroups:
    def __init__(self) -> None:
        super().__init__()
        default = ResourceGroupView(DEFAULT_RESOURCE_GROUP, 1_000_000, (NodeID(3), NodeID(4)), {}, {}, {})
        self.resource_groups = {default.name: default}
        self.transfers: list[tuple[str | int, ...]] = []

    def create_resource_group(self, name: str, config: GroupConfig | None = None) -> None:
        if name in self.resource_groups:
            raise ResourceGroupAlreadyExists(f"resource group already exist[rg={name}]")
        self.resource_groups[name] = ResourceGroupView(name, 0, (), {}, {}, {}, config or GroupConfig())

    def update_resource_groups(self, configs: Mapping[str, GroupConfig]) -> None:
        for name, config in configs.items():
            self.resource_groups[name] = replace(self.describe_resource_group(name), config=config)

    def drop_resource_group(self, name: str) -> None:
        self.resource_groups.pop(name, None)

    def list_resource_groups(self) -> Sequence[str]:
        return list(self.resource_groups)

    def describe_resource_group(self, name: str) -> ResourceGroupView:
        if name not in self.resource_groups:
            raise ResourceGroupNotFound(f"resource group not found[rg={name}]")
        return self.resource_groups[name]

    def transfer_node(self, source: str, target: str, count: int) -> None:
        self.transfers.append((source, target, count))

    def transfer_replica(self, database: str, collection: str, source: str, target: str, count: int) -> None:
        self.transfers.append((database, collection, source, target, count))
