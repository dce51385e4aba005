"""Which query node belongs to which resource group: joined and lost nodes, and moves toward declared sizes.

A node that joins is added to the group that lacks most nodes, else to the one with most room below its
limits, which normally is the default group. `reconcile` moves nodes, until no move brings a group nearer to
its configuration: groups with too few nodes take some of groups with more than they request, and groups
with too many, or with nodes that they do not accept, give those away. The order of preference is that of the
reference, except that a preferred group comes before the default group, however much room that has. The node
that joined last is moved first, because it holds the least data.

Pure. Not here: what the replicas of a group do when its nodes change (`elanus.core.resource_groups`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from elanus.core.ids import NodeID
from elanus.core.resource_groups import DEFAULT_RESOURCE_GROUP, Groups, ResourceGroup

Labels = Mapping[NodeID, Mapping[str, str]]
"""The labels of the nodes that have any."""
_NO_LABELS: Labels = {}
_Rank = tuple[int, int]
_UNFIT: _Rank = (0, 0)


def settle(groups: Groups, alive: Iterable[NodeID], labels: Labels = _NO_LABELS) -> dict[str, ResourceGroup]:
    """Return the groups updated to the live nodes: lost nodes removed, new ones assigned to a group."""
    there = set(alive)
    kept = {
        name: replace(group, nodes=tuple(n for n in group.nodes if n in there))
        for name, group in groups.items()
    }
    placed = _Placed(kept, labels)
    for node in sorted(there.difference(*(group.nodes for group in kept.values())), reverse=True):
        placed.join(node)
    return placed.groups


def reconcile(groups: Groups, labels: Labels = _NO_LABELS) -> dict[str, ResourceGroup]:
    """Return the groups after all moves toward their configurations that are possible with these nodes."""
    placed = _Placed(dict(groups), labels)
    before: dict[str, ResourceGroup] = {}
    while (
        placed.groups != before
    ):  # a node that is given may make another one spare that fits where one lacks
        before = dict(placed.groups)
        for name in sorted(groups):
            while placed.missing(name) and placed.take(name):
                pass
        for name in sorted(groups):
            while placed.redundant(name) and placed.give(name):
                pass
    return placed.groups


class _Placed:
    """The groups while nodes are moved between them."""

    def __init__(self, groups: dict[str, ResourceGroup], labels: Labels) -> None:
        self.groups = groups
        self._labels = labels

    def join(self, node: NodeID) -> None:
        """Add a node that is in no group."""
        accepting = [name for name in self.groups if self._accepts(name, node)]
        target = self._best(lambda n: (0, self.missing(n)) if n in accepting else _UNFIT)
        target = target or self._best(lambda n: (0, self._room(n)) if n in accepting else _UNFIT)
        self._put(target or DEFAULT_RESOURCE_GROUP, node)

    def take(self, target: str) -> bool:
        """Move a node into a group that lacks some; returns whether there is one."""
        preferred = self.groups[target].declared.transfer_from

        def rank(name: str) -> _Rank:
            if name == target or self._movable(name, target) is None:
                return _UNFIT
            return self._rank(self.redundant(name), self._oversized(name), name in preferred)

        source = self._best(rank)
        return bool(source) and self._move(source, target)

    def give(self, source: str) -> bool:
        """Move a node out of a group that has too many; returns whether another can have it."""
        preferred = self.groups[source].declared.transfer_to

        def rank(name: str) -> _Rank:
            if name == source or not self._room(name) or self._movable(source, name) is None:
                return _UNFIT
            return self._rank(self.missing(name), self._room(name), name in preferred)

        target = self._best(rank)
        if not target and source != DEFAULT_RESOURCE_GROUP:
            target = DEFAULT_RESOURCE_GROUP  # it takes what nobody else can have, beyond its limits too
        return bool(target) and self._move(source, target)

    def missing(self, name: str) -> int:
        return max(0, self.groups[name].declared.requests - len(self._own(name)))

    def redundant(self, name: str) -> int:
        return max(0, len(self._own(name)) - self.groups[name].declared.limits) + len(self._strangers(name))

    @staticmethod
    def _rank(urgent: int, possible: int, is_preferred: bool) -> _Rank:
        """A group that needs the move comes before one that is preferred, and that one before the others."""
        return (2, urgent) if urgent else (int(is_preferred), possible)

    def _oversized(self, name: str) -> int:
        own = len(self._own(name)) - self.groups[name].declared.requests
        return max(0, own) + len(self._strangers(name))

    def _room(self, name: str) -> int:
        return max(0, self.groups[name].declared.limits - len(self._own(name)))

    def _own(self, name: str) -> list[NodeID]:
        return [n for n in self.groups[name].nodes if self._accepts(name, n)]

    def _strangers(self, name: str) -> list[NodeID]:
        """Return the nodes in the group that its node filter does not accept."""
        return [n for n in self.groups[name].nodes if not self._accepts(name, n)]

    def _accepts(self, name: str, node: NodeID) -> bool:
        if name == DEFAULT_RESOURCE_GROUP:
            return True
        return self.groups[name].declared.accepts(self._labels.get(node, {}))

    def _movable(self, source: str, target: str) -> NodeID | None:
        """Return the node that would move: one that its group does not accept, else one of those above
        requests."""
        own = self._own(source)
        spare = own if len(own) > self.groups[source].declared.requests else []
        for candidates in (self._strangers(source), spare):
            fitting = [n for n in candidates if self._accepts(target, n)]
            if fitting:
                return max(fitting)
        return None

    def _best(self, rank: Callable[[str], _Rank]) -> str:
        """Return the group of the highest rank, the first by name among equals; "" if all are unfit."""
        best, highest = "", _UNFIT
        for name in sorted(self.groups):
            value = rank(name)
            if value > highest:
                best, highest = name, value
        return best

    def _move(self, source: str, target: str) -> bool:
        node = self._movable(source, target)
        if node is None:
            return False
        group = self.groups[source]
        self.groups[source] = replace(group, nodes=tuple(n for n in group.nodes if n != node))
        self._put(target, node)
        return True

    def _put(self, name: str, node: NodeID) -> None:
        group = self.groups[name]
        self.groups[name] = replace(group, nodes=tuple(sorted((*group.nodes, node))))
