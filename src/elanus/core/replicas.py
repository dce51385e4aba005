"""Replicas: which query nodes serve a copy of a collection together.

A replica is a group of nodes that together hold one copy of what is loaded. A node belongs to at most one
replica of a collection, so that its death affects only one copy. Live nodes keep their replica: moving a node
between replicas moves everything it holds.

Pure. Not here: which nodes are available (`elanus.core.resource_groups`), and which node of the replica holds
which segment (`elanus.core.placement`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elanus.core.errors import NodesNotEnough
from elanus.core.ids import NodeID


def check_enough(alive: int, replicas: int, group: str) -> None:
    """Raises `NodesNotEnough` if a resource group is to hold more replicas than it has live nodes."""
    if alive < replicas:
        raise NodesNotEnough(
            f"resource group node not enough[rg={group}][currentNodeNum={alive}]"
            f"[expectedNodeNum={replicas}]: nodes not enough: {replicas} replicas need as many query nodes, "
            f"{alive} are alive in resource group {group}: start more nodes, transfer some into it, or use a "
            "smaller replica_number"
        )


def group_nodes(
    alive: Sequence[NodeID], replicas: int, current: Mapping[int, Sequence[NodeID]]
) -> dict[int, tuple[NodeID, ...]]:
    """Return the nodes of each replica, numbered from 0.

    ``current``: the grouping so far. Live nodes keep their replica, new ones join the smallest. A
    replica that lost all its nodes gets one from the largest, or has none while too few nodes are left.
    """
    groups: dict[int, list[NodeID]] = {
        number: [n for n in current.get(number, ()) if n in alive] for number in range(replicas)
    }
    placed = {node_id for group in groups.values() for node_id in group}
    for node_id in sorted(set(alive) - placed):
        smallest = min(groups, key=lambda number: (len(groups[number]), number))
        groups[smallest].append(node_id)
    for number, group in groups.items():
        largest = max(groups, key=lambda other: (len(groups[other]), -other))
        if not group and len(groups[largest]) > 1:
            groups[number].append(groups[largest].pop())
    return {number: tuple(sorted(group)) for number, group in groups.items()}
