"""The verbs of loads: what query nodes hold, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elanus.core.ids import NodeID


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A load of a collection, or of some of its partitions.

    ``replicas``: 0 if the client names none. ``resource_groups``: one for all replicas, or one for each
    (empty: the default group). ``load_fields``: those that are held and can be read (empty: all);
    ``skip_dynamic``: without the dynamic field. ``refresh``: asks for segments added since the last load;
    those are served anyway, so it changes nothing.
    """

    database: str
    collection: str
    partitions: tuple[str, ...] = ()
    replicas: int = 0
    resource_groups: tuple[str, ...] = ()
    load_fields: tuple[str, ...] = ()
    skip_dynamic: bool = False
    refresh: bool = False


@dataclass(frozen=True, slots=True)
class LoadedView:
    """The load progress of a collection or partition as QueryCoord reports it: percentage 0–100."""

    name: str
    percentage: int
    queryable: bool


@dataclass(frozen=True, slots=True)
class LoadStateView:
    """``state``: ``NotExist``, ``NotLoad``, ``Loading`` or ``Loaded``. ``obstacle``: the logs and
    segments that cannot be read, with reason and remedy, and what holds up the load; empty when there is
    nothing of this kind."""

    state: str
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One copy of a loaded collection. ``leads``: the node that serves each vchannel's growing rows.

    ``outbound``: the number of its nodes that belong to other resource groups, by group.
    """

    number: int
    node_ids: tuple[NodeID, ...]
    leads: Mapping[str, NodeID]
    resource_group: str
    outbound: Mapping[str, int] = field(default_factory=dict)


class LoadVerbs(Protocol):
    def load(self, request: LoadRequest) -> None:
        """Start the load (of all partitions when none is named); return before it is complete.

        Raises `FieldNotFound`, `IndexNotFound`, `InvalidParameter`; `CollectionNotLoaded` when there is
        nothing to refresh.
        """
        ...

    def release(self, database: str, collection: str, partitions: Sequence[str]) -> None: ...
    def loading_progress(self, database: str, collection: str, partitions: Sequence[str]) -> LoadedView:
        """Raises `CollectionNotLoaded` or `PartitionNotLoaded` when no load was requested."""
        ...

    def load_state(self, database: str, collection: str, partitions: Sequence[str]) -> LoadStateView: ...
    def loaded_collections(self, database: str) -> Mapping[str, LoadedView]: ...
    def loaded_partitions(self, database: str, collection: str) -> Mapping[str, LoadedView]: ...
    def replicas(self, database: str, collection: str) -> Sequence[ReplicaView]:
        """Return the replicas that can be read. Raises `CollectionNotLoaded`."""
        ...

    def load_balance(
        self, database: str, collection: str, source: int, targets: Sequence[int], segment_ids: Sequence[int]
    ) -> None:
        """Move sealed segments (none named: all) from one query node to others; see `QueryCoordApi`."""
        ...
