"""Resource groups: query nodes set apart, so that loads on some nodes do not affect the others.

Every query node is in one group, and every replica belongs to one: it is placed on nodes of that group. A
group has a configuration (`elanus.core.group_config`): a client declares it, or transfers nodes, and that
changes the configurations of both groups. A lost node leaves its group, but the configuration stays;
`elanus.core.group_nodes` decides which nodes move to a group that lacks some. The *capacity* of a group is
the number of nodes that it requests.

A replica whose group has no node left stays on the nodes it had, which now belong to other groups
("outgoing"), until its group gets a node: reads continue.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from elanus.core.errors import (
    InvalidParameter,
    NodesNotEnough,
    ResourceGroupAlreadyExists,
    ResourceGroupLimitReached,
    ResourceGroupNotFound,
)
from elanus.core.group_config import GroupConfig, check_config, check_not_named
from elanus.core.ids import CollectionID, NodeID
from elanus.core.limits import RESOURCE_GROUPS_MAX
from elanus.core.replicas import group_nodes

DEFAULT_RESOURCE_GROUP = "__default_resource_group"
_DEFAULT_CAPACITY = 1_000_000
"""The capacity that the reference reports for the default group, which takes any number of nodes."""


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """``config``: None if nothing was declared: the group then requests ``capacity`` nodes and no more.
    Records of groups that were stored before there were configurations have none."""

    name: str
    capacity: int = 0
    nodes: tuple[NodeID, ...] = ()
    config: GroupConfig | None = None

    @property
    def declared(self) -> GroupConfig:
        """The configuration in effect."""
        if self.config is not None:
            return self.config
        return GroupConfig(0 if self.name == DEFAULT_RESOURCE_GROUP else self.capacity, self.capacity)

    def configured(self, config: GroupConfig) -> ResourceGroup:
        """Return the group with another configuration."""
        capacity = self.capacity if self.name == DEFAULT_RESOURCE_GROUP else config.requests
        return replace(self, capacity=capacity, config=config)


Groups = Mapping[str, ResourceGroup]
"""Groups by name. The default group is always among them."""

NO_GROUPS: Groups = {DEFAULT_RESOURCE_GROUP: ResourceGroup(DEFAULT_RESOURCE_GROUP, _DEFAULT_CAPACITY)}
"""The groups before any has been created."""


@dataclass(frozen=True, slots=True)
class PlacedReplica:
    """A replica of a loaded collection, with its resource group and the nodes that serve it."""

    collection_id: CollectionID
    number: int
    group: str
    nodes: tuple[NodeID, ...]


@dataclass(frozen=True, slots=True)
class Census:
    """The work of a group, per collection.

    ``loaded``: replicas that belong to it. ``outgoing``: nodes of other groups that still serve those;
    ``incoming``: nodes of this group that still serve replicas of other groups.
    """

    loaded: Mapping[CollectionID, int]
    outgoing: Mapping[CollectionID, int]
    incoming: Mapping[CollectionID, int]


def find(groups: Groups, name: str) -> ResourceGroup:
    """Return the group of that name. Raises `ResourceGroupNotFound`."""
    found = groups.get(name)
    if found is None:
        raise ResourceGroupNotFound(f"resource group not found[rg={name}]")
    return found


# what clients ask


def created(groups: Groups, name: str, config: GroupConfig | None = None) -> ResourceGroup:
    """Return a new group, or the one of that name if its configuration is the wanted one.

    ``config``: None for one that requests no nodes.

    Raises `ResourceGroupAlreadyExists`, `ResourceGroupLimitReached`, `ResourceGroupIllegalConfig`.
    """
    known = groups.get(name)
    if known is not None:
        if known.declared == (config or GroupConfig()):
            return known
        raise ResourceGroupAlreadyExists(
            f"resource group already exist, but create with different config[rg={name}]: resource group "
            f"already exist[rg={name}]"
        )
    if len(groups) >= RESOURCE_GROUPS_MAX:
        raise ResourceGroupLimitReached(
            f"resource group num reach limit {RESOURCE_GROUPS_MAX}: drop one that is empty"
        )
    if config is None:
        return ResourceGroup(name)
    return ResourceGroup(name).configured(check_config(name, config, groups))


def updated(groups: Groups, configs: Mapping[str, GroupConfig]) -> dict[str, ResourceGroup]:
    """Return the groups with these configurations in place of theirs, which change together or not at all.

    Raises `ResourceGroupNotFound`, `ResourceGroupIllegalConfig`.
    """
    return {
        **groups,
        **{n: find(groups, n).configured(check_config(n, config, groups)) for n, config in configs.items()},
    }


def check_droppable(groups: Groups, group: ResourceGroup, replicas: Iterable[PlacedReplica]) -> None:
    """Raises `InvalidParameter` for the default group, and for a group that has replicas, may have nodes, or
    is named in the configuration of another group."""
    if group.name == DEFAULT_RESOURCE_GROUP:
        raise InvalidParameter("delete default rg is not permitted")
    for replica in replicas:
        if replica.group == group.name:
            raise InvalidParameter(
                f"some replicas still loaded in resource group[{group.name}], release it first: invalid "
                f"parameter[expected=empty resource group][actual=resource group {group.name} has collection "
                f"{replica.collection_id} loaded]"
            )
    if group.declared.limits:
        raise InvalidParameter(
            f"delete non-empty rg is not permitted: resource group {group.name} has a capacity of "
            f"{group.capacity} nodes and limits of {group.declared.limits}, of which {len(group.nodes)} "
            "are alive; transfer them to another group, or set its requests and limits to 0"
        )
    check_not_named(group.name, {name: other.declared for name, other in groups.items()})


def transfer_nodes(
    groups: Groups, source: str, target: str, count: int, replicas: Sequence[PlacedReplica]
) -> dict[str, ResourceGroup]:
    """Return the groups after a transfer of ``count`` nodes, those that joined last first.

    Raises `InvalidParameter` if the groups are the same, do not exist, or serve the same collection, and
    `NodesNotEnough`.
    """
    for side, name in (("source", source), ("target", target)):
        if name not in groups:
            raise InvalidParameter(
                f"{side} resource group not found: {_expected('valid resource group', name)}"
            )
    if source == target:
        raise InvalidParameter(
            "source resource group and target resource group should not be the same, resource group: "
            f"{source}"
        )
    if count <= 0:
        raise InvalidParameter(_expected("NumNode > 0", f"invalid NumNode {count}"))
    in_both = _collections(replicas, source) & _collections(replicas, target)
    if in_both:
        raise InvalidParameter(
            _expected(
                "resource groups load not the same collection", f"collection {min(in_both)} loaded for both"
            )
        )
    if len(groups[source].nodes) < count:
        there = len(groups[source].nodes)
        raise NodesNotEnough(
            f"resource group node not enough[rg={source}][currentNodeNum={there}][expectedNodeNum={count}]: "
            f"nodes not enough: {count} asked for, resource group {source} has {there}"
        )
    moved = sorted(groups[source].nodes)[-count:]
    rest = tuple(n for n in groups[source].nodes if n not in moved)
    return {
        **groups,
        source: replace(_resized(groups[source], -count), nodes=rest),
        target: _with_nodes(_resized(groups[target], count), moved),
    }


def _resized(group: ResourceGroup, by: int) -> ResourceGroup:
    config = group.declared.resized(by)
    if group.config is not None and group.name != DEFAULT_RESOURCE_GROUP:
        return group.configured(config)
    if group.config is not None:  # a transfer out of the default group lets it have new nodes
        return group.configured(replace(config, limits=max(config.limits, group.declared.limits)))
    if group.name == DEFAULT_RESOURCE_GROUP:
        return group
    return replace(group, capacity=config.requests)


def _with_nodes(group: ResourceGroup, added: Iterable[NodeID]) -> ResourceGroup:
    return replace(group, nodes=tuple(sorted({*group.nodes, *added})))


def _collections(replicas: Iterable[PlacedReplica], group: str) -> set[CollectionID]:
    return {replica.collection_id for replica in replicas if replica.group == group}


def _expected(expected: str, actual: str) -> str:
    return f"invalid parameter[expected={expected}][actual={actual}]"


def census(group: ResourceGroup, replicas: Iterable[PlacedReplica]) -> Census:
    """Count, by collection, a group's replicas, their nodes outside it, and its nodes in other replicas."""
    loaded: Counter[CollectionID] = Counter()
    outgoing: Counter[CollectionID] = Counter()
    incoming: Counter[CollectionID] = Counter()
    for replica in replicas:
        own = sum(node_id in group.nodes for node_id in replica.nodes)
        if replica.group == group.name:
            loaded[replica.collection_id] += 1
            outgoing[replica.collection_id] += len(replica.nodes) - own
        else:
            incoming[replica.collection_id] += own
    return Census(loaded, +outgoing, +incoming)


def outbound(groups: Groups, replica: PlacedReplica) -> dict[str, int]:
    """Return how many of the replica's nodes belong to each other group."""
    return {
        name: count
        for name, group in groups.items()
        if name != replica.group and (count := sum(n in group.nodes for n in replica.nodes))
    }


# replicas


def spread(groups: Groups, asked: Sequence[str], replicas: int) -> tuple[str, ...]:
    """Return the group of each replica of a load: all in the named group (or the default), or one in each.

    Raises `InvalidParameter`, `ResourceGroupNotFound`.
    """
    if len(asked) not in (0, 1, replicas):
        raise InvalidParameter(
            "resource group num can only be 0, 1 or same as replica number: "
            f"{len(asked)} groups for replica_number {replicas}"
        )
    if len(asked) > 1 and DEFAULT_RESOURCE_GROUP in asked:
        raise InvalidParameter(
            "load operation can't use default resource group and other resource group together"
        )
    for name in asked:
        find(groups, name)
    named = tuple(asked) or (DEFAULT_RESOURCE_GROUP,)
    return named if len(named) == replicas else named * replicas


def check_same_groups(asked: Iterable[str], loaded: Sequence[str]) -> None:
    """Raises `InvalidParameter` if a load of a loaded collection names a group that has no replica of it."""
    strangers = [name for name in asked if name not in loaded]
    if strangers:
        raise InvalidParameter(
            f"load operation should use collection's resource group: it is loaded in {sorted(set(loaded))}, "
            f"requested {strangers}: use TransferReplica, or release the collection and load it again"
        )


def transfer_replicas(
    groups: Groups, of_replica: Sequence[str], source: str, target: str, count: int
) -> tuple[str, ...]:
    """Return the group of each replica after a transfer of ``count`` of a collection's replicas.

    Raises `ResourceGroupNotFound`, and `InvalidParameter`: replicas are not mixed with those in the default
    group, nor added to a group that already has replicas of the collection.
    """
    for side, name in (("source", source), ("target", target)):
        if name not in groups:
            raise ResourceGroupNotFound(
                f"the {side} resource group[{name}] doesn't exist: resource group not found[rg={name}]"
            )
    if count <= 0:
        raise InvalidParameter(_expected("NumReplica > 0", f"invalid NumReplica {count}"))
    here, there = of_replica.count(source), of_replica.count(target)
    if here < count:
        raise InvalidParameter(
            _expected(
                "NumReplica not greater than the number of replica in source resource group",
                f"only found [{here}] replicas in source resource group[{source}]",
            )
        )
    if there:
        raise InvalidParameter(
            _expected(
                "no same collection in target resource group",
                f"found [{there}] replicas of same collection in target resource group[{target}], "
                "dynamically increase replica num is unsupported",
            )
        )
    if DEFAULT_RESOURCE_GROUP in (source, target) and count != len(of_replica):
        raise InvalidParameter(
            _expected(
                "transfer all replicas from/to default resource group",
                f"try to transfer {count} replicas from/to but {len(of_replica)} replicas exist",
            )
        )
    going = [number for number, name in enumerate(of_replica) if name == source][:count]
    return tuple(target if number in going else name for number, name in enumerate(of_replica))


def nodes_of_replicas(
    groups: Groups, of_replica: Sequence[str], current: Mapping[int, Sequence[NodeID]]
) -> dict[int, tuple[NodeID, ...]]:
    """Return the nodes of each replica, numbered from 0: those of its group, distributed by `group_nodes`.

    ``current``: the grouping so far. If a group has no node, its replicas keep their live nodes.
    """
    alive = {node_id for group in groups.values() for node_id in group.nodes}
    grouping: dict[int, tuple[NodeID, ...]] = {}
    for name in dict.fromkeys(of_replica):
        numbers = [number for number, of in enumerate(of_replica) if of == name]
        nodes = groups[name].nodes if name in groups else ()
        if not nodes:
            grouping |= {n: tuple(node for node in current.get(n, ()) if node in alive) for n in numbers}
            continue
        own = {position: current.get(number, ()) for position, number in enumerate(numbers)}
        shares = group_nodes(nodes, len(numbers), own)
        grouping |= {number: shares[position] for position, number in enumerate(numbers)}
    return grouping
