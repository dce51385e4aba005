"""The current resource groups: the persisted groups combined with the nodes that are alive now.

`ResourceGroups.view` is always up to date with the fleet. `keep` persists the changes, and the coordinator
calls it repeatedly: the only requirement is that a node that stays alive keeps its group. The nodes of the
default group are never persisted, because they are those in no other group; its configuration is, when a
client has declared one.

A node that is about to stop leaves its group, and so the replicas move to the others (`leave`). It is in no
group from then on, though it still answers.

While no node at all is alive, no node is considered lost: a coordinator that has just started may not have
seen their sessions yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import structlog

from elanus.api.querycoord import ResourceGroupStatus
from elanus.core.errors import ElanusError
from elanus.core.group_config import GroupConfig
from elanus.core.group_nodes import reconcile, settle
from elanus.core.ids import NodeID
from elanus.core.resource_groups import (
    DEFAULT_RESOURCE_GROUP,
    NO_GROUPS,
    Groups,
    PlacedReplica,
    ResourceGroup,
    census,
    check_droppable,
    created,
    find,
    transfer_nodes,
    updated,
)
from elanus.meta.cancellation import uncancellable
from elanus.querycoord.fleet import Fleet
from elanus.querycoord.state import LoadState

_RECOVER_S = 10.0
"""How long a resource group may wait for a new node before it takes one from another group (as in the
reference)."""
_log = structlog.get_logger("querycoord")


class ResourceGroups:
    """The persisted resource groups. Decisions and errors are those of `elanus.core.resource_groups`."""

    def __init__(self, state: LoadState, fleet: Fleet) -> None:
        self._state = state
        self._fleet = fleet
        self._groups = NO_GROUPS
        self._seen: tuple[Groups, tuple[NodeID, ...], Groups] | None = None
        self._leaving: set[NodeID] = set()
        self._lock = asyncio.Lock()

    async def restore(self) -> None:
        self._groups = {**NO_GROUPS, **{group.name: group for group in await self._state.groups()}}
        if self._fleet.alive():
            self._groups = self.view()

    def view(self) -> Groups:
        """Return the groups with the nodes that are alive.

        Every loader calls this often, so it is recomputed only when nodes or groups have changed.
        """
        groups, alive = self._groups, self._staying()
        if self._seen is None or self._seen[0] is not groups or self._seen[1] != alive:
            self._seen = (groups, alive, settle(groups, alive, self._fleet.labels()))
        return self._seen[2]

    def _staying(self) -> tuple[NodeID, ...]:
        alive = self._fleet.alive()
        return tuple(n for n in alive if n not in self._leaving) if self._leaving else alive

    def is_leaving(self, node_id: NodeID) -> bool:
        return node_id in self._leaving

    def leave(self, node_id: NodeID) -> bool:
        """Take a node out of its group, if that has others. Returns whether it has."""
        self._leaving.intersection_update(self._fleet.alive())
        if not any(node_id in g.nodes and len(g.nodes) > 1 for g in self.view().values()):
            return False
        self._leaving.add(node_id)
        return True

    def status(self, name: str, placed: tuple[PlacedReplica, ...]) -> ResourceGroupStatus:
        """Return the state of a group. ``placed``: all replicas. Raises `ResourceGroupNotFound`."""
        return _status(find(self.view(), name), placed)

    def statuses(self, placed: tuple[PlacedReplica, ...]) -> tuple[ResourceGroupStatus, ...]:
        """As `status`, of all groups, by name."""
        return tuple(_status(group, placed) for _, group in sorted(self.view().items()))

    async def recover(self) -> None:
        """Move nodes to groups that have lost theirs, until cancelled."""
        while True:
            await asyncio.sleep(_RECOVER_S)
            try:
                await self.keep(recovering=True)
            except ElanusError as error:
                _log.info("resource groups not updated", error=error.message)

    async def keep(self, *, recovering: bool) -> None:
        """Persist which nodes joined and which were lost.

        ``recovering``: nodes also move between the groups, toward their configurations.
        """
        async with self._lock:
            if not self._staying():
                return
            view = self.view()
            await self._put(self._reconciled(view) if recovering else view)

    async def create(self, name: str, config: GroupConfig | None) -> None:
        async with self._lock:
            groups = self.view()
            groups = {**groups, name: created(groups, name, config)}
            await self._put(groups if config is None else self._reconciled(groups))

    async def update(self, configs: Mapping[str, GroupConfig]) -> None:
        """Change configurations, and move nodes accordingly."""
        async with self._lock:
            await self._put(self._reconciled(updated(self.view(), configs)))

    async def drop(self, name: str, replicas: tuple[PlacedReplica, ...]) -> None:
        """Drop a group. A group that does not exist counts as dropped."""
        async with self._lock:
            groups = self.view()
            group = groups.get(name)
            if group is None:
                return
            check_droppable(groups, group, replicas)
            await self._remove(name)

    async def transfer(
        self, source: str, target: str, count: int, replicas: tuple[PlacedReplica, ...]
    ) -> None:
        async with self._lock:
            await self._put(transfer_nodes(self.view(), source, target, count, replicas))

    def _reconciled(self, groups: Groups) -> Groups:
        return reconcile(groups, self._fleet.labels())

    @uncancellable
    async def _remove(self, name: str) -> None:
        await self._state.remove_group(name)
        self._groups = {n: g for n, g in self._groups.items() if n != name}

    @uncancellable
    async def _put(self, groups: Groups) -> None:
        changed = [
            group
            for name, group in groups.items()
            if name != DEFAULT_RESOURCE_GROUP and group != self._groups.get(name)
        ]
        default = groups[DEFAULT_RESOURCE_GROUP]
        if default.config != self._groups[DEFAULT_RESOURCE_GROUP].config:
            changed.append(replace(default, nodes=()))
        if changed:
            await self._state.put_groups(changed)
        self._groups = groups


def _status(group: ResourceGroup, placed: tuple[PlacedReplica, ...]) -> ResourceGroupStatus:
    counts = census(group, placed)
    return ResourceGroupStatus(
        group.name,
        group.capacity,
        group.nodes,
        dict(counts.loaded),
        dict(counts.outgoing),
        dict(counts.incoming),
        group.declared,
    )
