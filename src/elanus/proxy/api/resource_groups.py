"""The verbs of resource groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elanus.core.group_config import GroupConfig
from elanus.core.ids import NodeID


@dataclass(frozen=True, slots=True)
class ResourceGroupView:
    """``node_ids``: the nodes alive. The counts are keyed by collection name.

    ``loaded``: the replicas in the group; ``outgoing``: nodes of other groups that still serve those;
    ``incoming``: nodes of the group that still serve replicas of other groups.
    """

    name: str
    capacity: int
    node_ids: tuple[NodeID, ...]
    loaded: Mapping[str, int]
    outgoing: Mapping[str, int]
    incoming: Mapping[str, int]
    config: GroupConfig = field(default_factory=GroupConfig)


class ResourceGroupVerbs(Protocol):
    def create_resource_group(self, name: str, config: GroupConfig | None = None) -> None: ...
    def update_resource_groups(self, configs: Mapping[str, GroupConfig]) -> None:
        """Raises `ResourceGroupNotFound`, `ResourceGroupIllegalConfig`."""
        ...

    def drop_resource_group(self, name: str) -> None: ...
    def list_resource_groups(self) -> Sequence[str]: ...
    def describe_resource_group(self, name: str) -> ResourceGroupView:
        """Raises `ResourceGroupNotFound`."""
        ...

    def transfer_node(self, source: str, target: str, count: int) -> None: ...
    def transfer_replica(
        self, database: str, collection: str, source: str, target: str, count: int
    ) -> None: ...
