"""The resource groups as they stand: what is persisted of them, seen with the nodes that are alive now.

`ResourceGroups.view` is always up to date with the fleet. What has changed is persisted by `keep`, which the
coordinator calls again and again: what matters is only that a node that stays alive keeps its group. The
default group is never persisted, for it has what no other group has.

While no node at all is alive nobody is taken for lost: a coordinator that begins may not have seen their
sessions yet.
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
    """The decisions, and the errors, are those of `elanus.core.resource_groups`."""

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
        """Every loader looks often: it is made anew only when nodes or groups have changed."""
        groups, alive = self._groups, self._fleet.alive()
        if self._seen is None or self._seen[0] is not groups or self._seen[1] != alive:
            self._seen = (groups, alive, settle(groups, alive))
        return self._seen[2]

    async def keep(self, *, recovering: bool) -> None:
        """Persist who came and went.

        ``recovering``: groups below their capacity take from the default one.
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
        """One that is not there counts as dropped."""
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
