"""The current resource groups: the persisted groups combined with the nodes that are alive now.

`ResourceGroups.view` is always up to date with the fleet. `keep` persists the changes, and the coordinator
calls it repeatedly: the only requirement is that a node that stays alive keeps its group. The default group
is never persisted, because it consists of the nodes that are in no other group.

While no node at all is alive, no node is considered lost: a coordinator that has just started may not have
seen their sessions yet.
"""

from __future__ import annotations

import asyncio

from elanus.core.ids import NodeID
from elanus.core.resource_groups import (
    DEFAULT_RESOURCE_GROUP,
    NO_GROUPS,
    Groups,
    PlacedReplica,
    check_droppable,
    created,
    recover,
    settle,
    transfer_nodes,
)
from elanus.querycoord.fleet import Fleet
from elanus.querycoord.state import LoadState


class ResourceGroups:
    """The persisted resource groups. Decisions and errors are those of `elanus.core.resource_groups`."""

    def __init__(self, state: LoadState, fleet: Fleet) -> None:
        self._state = state
        self._fleet = fleet
        self._groups = NO_GROUPS
        self._seen: tuple[Groups, tuple[NodeID, ...], Groups] | None = None
        self._lock = asyncio.Lock()

    async def restore(self) -> None:
        self._groups = {**NO_GROUPS, **{group.name: group for group in await self._state.groups()}}
        if self._fleet.alive():
            self._groups = self.view()

    def view(self) -> Groups:
        """Return the groups with the nodes that are alive.

        Every loader calls this often, so it is recomputed only when nodes or groups have changed.
        """
        groups, alive = self._groups, self._fleet.alive()
        if self._seen is None or self._seen[0] is not groups or self._seen[1] != alive:
            self._seen = (groups, alive, settle(groups, alive))
        return self._seen[2]

    async def keep(self, *, recovering: bool) -> None:
        """Persist which nodes joined and which were lost.

        ``recovering``: groups below their capacity take nodes from the default group.
        """
        async with self._lock:
            if not self._fleet.alive():
                return
            view = self.view()
            await self._put(recover(view) if recovering else view)

    async def create(self, name: str) -> None:
        async with self._lock:
            await self._put({**self._groups, name: created(self._groups, name)})

    async def drop(self, name: str, replicas: tuple[PlacedReplica, ...]) -> None:
        """Drop a group. A group that does not exist counts as dropped."""
        async with self._lock:
            group = self.view().get(name)
            if group is None:
                return
            check_droppable(group, replicas)
            await self._state.remove_group(name)
            self._groups = {n: g for n, g in self._groups.items() if n != name}

    async def transfer(
        self, source: str, target: str, count: int, replicas: tuple[PlacedReplica, ...]
    ) -> None:
        async with self._lock:
            await self._put(transfer_nodes(self.view(), source, target, count, replicas))

    async def _put(self, groups: Groups) -> None:
        changed = [
            group
            for name, group in groups.items()
            if name != DEFAULT_RESOURCE_GROUP and group != self._groups.get(name)
        ]
        if changed:
            await self._state.put_groups(changed)
        self._groups = groups
