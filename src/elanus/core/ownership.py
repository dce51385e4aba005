"""Which data node owns which vchannel.

A data node follows whole pchannels, so the vchannels of one pchannel have one owner: reading a pchannel twice
would cost more than better balance gains. Pchannels are placed by the number of their vchannels. A live node
keeps its pchannels; a pchannel moves only if that improves the balance, or if its owner is gone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set

from elanus.core.channels import pchannel_of
from elanus.core.ids import NO_NODE, NodeID


def in_place(addresses: Mapping[NodeID, str]) -> frozenset[NodeID]:
    """Return the nodes that count: the latest one at each address.

    Ids grow, and an address belongs to one process at a time, so earlier nodes at the address are gone, even
    if their sessions have not ended yet.
    """
    latest: dict[str, NodeID] = {}
    for node_id in sorted(addresses):
        latest[addresses[node_id]] = node_id
    return frozenset(latest.values())


def owners(
    current: Mapping[str, NodeID], live: Set[NodeID], ready: Set[NodeID], *, balanced: bool
) -> dict[str, NodeID]:
    """Return the owner of each vchannel; see `holders`. ``current``: the owner so far, `NO_NODE` for none.

    If no node is ready, vchannels without a live owner stay as they are.
    """
    owned: dict[str, Counter[NodeID]] = defaultdict(Counter)
    for vchannel in sorted(current):
        owned[pchannel_of(vchannel)][current[vchannel]] += 1
    found = holders(owned, live, ready, balanced=balanced)
    return {v: found.get(pchannel_of(v), current[v]) for v in sorted(current)}


def holders(
    owned: Mapping[str, Mapping[NodeID, int]], live: Set[NodeID], ready: Set[NodeID], *, balanced: bool
) -> dict[str, NodeID]:
    """Return the owner of each pchannel that gets one.

    ``owned``: how many of the pchannel's vchannels each node owns so far, `NO_NODE` for those without an
    owner. ``live`` nodes keep what they have; ``ready`` nodes, a subset of those, may get more. With
    ``balanced``, pchannels move until no further move of one improves the balance between two ready nodes;
    without, only pchannels without a live owner are placed. Equal input gives equal output.
    """
    sizes = {pchannel: sum(counts.values()) for pchannel, counts in owned.items()}
    found = {
        pchannel: holder
        for pchannel, counts in owned.items()
        if (holder := _holder(counts, live)) is not None
    }
    if ready:
        _place([p for p in owned if p not in found], found, sizes, ready)
    if ready and balanced:
        _balance(found, sizes, ready)
    return found


def least_busy(busy: Mapping[NodeID, int], preferred: NodeID = NO_NODE) -> list[NodeID]:
    """Return the nodes by load, least busy first; among equals the preferred one is first."""
    return sorted(busy, key=lambda node_id: (busy[node_id], node_id != preferred, node_id))


def _holder(counts: Mapping[NodeID, int], live: Set[NodeID]) -> NodeID | None:
    """Return the live node that owns most of a pchannel's vchannels."""
    return min((n for n in counts if n in live), key=lambda n: (-counts[n], n), default=None)


def _place(
    unowned: Iterable[str], holders: dict[str, NodeID], sizes: Mapping[str, int], ready: Set[NodeID]
) -> None:
    """Place pchannels, largest first, each on the node with the fewest vchannels."""
    load = _load(holders, sizes, ready)
    for pchannel in sorted(unowned, key=lambda p: (-sizes[p], p)):
        node_id = min(load, key=lambda n: (load[n], n))
        holders[pchannel] = node_id
        load[node_id] += sizes[pchannel]


def _balance(holders: dict[str, NodeID], sizes: Mapping[str, int], ready: Set[NodeID]) -> None:
    """Balance the nodes. Each move brings two nodes closer to each other, so this terminates."""
    load = _load(holders, sizes, ready)
    while (move := _move(holders, sizes, load)) is not None:
        pchannel, target = move
        load[holders[pchannel]] -= sizes[pchannel]
        load[target] += sizes[pchannel]
        holders[pchannel] = target


def _move(
    holders: Mapping[str, NodeID], sizes: Mapping[str, int], load: Mapping[NodeID, int]
) -> tuple[str, NodeID] | None:
    """Return a pchannel to move, and the node with the least load as its target, None if no move helps.

    It comes from the fullest node with a suitable pchannel, and is the largest one that does not make the
    source emptier than the target, if there is such a one.
    """
    least = min(load, key=lambda n: (load[n], n))
    for node_id in sorted(load, key=lambda n: (-load[n], n)):
        gap = load[node_id] - load[least]
        helping = [p for p, holder in holders.items() if holder == node_id and sizes[p] < gap]
        if helping:
            return min(helping, key=lambda p: (2 * sizes[p] > gap, abs(gap - 2 * sizes[p]), p)), least
    return None


def _load(holders: Mapping[str, NodeID], sizes: Mapping[str, int], ready: Set[NodeID]) -> dict[NodeID, int]:
    load = dict.fromkeys(ready, 0)
    for pchannel, node_id in holders.items():
        if node_id in load:
            load[node_id] += sizes[pchannel]
    return load
