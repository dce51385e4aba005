"""Datacoord's data nodes: who is there, which vchannels each owns, what each is told and has seen.

A node is there while it has a session, and takes part once it has registered. A registration has an epoch:
what the node did under an earlier one is over, and so is all it did once its session has ended. Who owns a
vchannel is persisted with the vchannel, beside an epoch that grows with every change of owner and stands in
the owner's commits; whatever a former owner still brings is refused. So nobody has to be sure that a node is
dead before its vchannels are given to others. Who gets which is `elanus.core.ownership`.

What a node is told follows from what it owns: it is compared with what it was told last, until the two agree.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog

from elanus.core.errors import CommitRefused, ElanusError, NodeReplaced
from elanus.core.ids import NO_NODE, NodeID, SegmentID
from elanus.core.nodes import Nodes
from elanus.core.ownership import in_place, least_busy, owners
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.attempts import Attempts
from elanus.datacoord.flushing import Flushing
from elanus.datacoord.state import DataState, Vchannel
from elanus.rpc.datacoord import ChannelAssignment, DataNodeRegistration, DataNodeTick
from elanus.rpc.datanode import DataNodePorts
from elanus.rpc.rootcoord import RootCoordApi

_RETRY_PAUSE_S = 0.5
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A registration that is in force. ``owned`` is set when what the node owns has changed."""

    node_id: NodeID
    epoch: int
    ports: DataNodePorts
    owned: asyncio.Event = field(default_factory=asyncio.Event, compare=False)


class NodeListener(Protocol):
    """Who has work done by data nodes. Called on the event loop; must not raise."""

    def node_registered(self) -> None:
        """There is one more, or one again."""

    def node_ended(self, epoch: int) -> None:
        """What was ordered from this registration will not be done."""


class DataNodes:
    """``sessions``: the nodes that are there. ``lock`` is the role's; methods that say so are called under
    it. ``spawn`` runs something until the role stops."""

    def __init__(
        self,
        state: DataState,
        flushing: Flushing,
        attempts: Attempts,
        rootcoord: RootCoordApi,
        sessions: Nodes[DataNodePorts],
        lock: asyncio.Lock,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._state = state
        self._flushing = flushing
        self._attempts = attempts
        self._rootcoord = rootcoord
        self._sessions = sessions
        self._lock = lock
        self._spawn = spawn
        self._nodes: dict[NodeID, LiveNode] = {}
        self._ticks: dict[str, Timestamp] = {}
        """Up to where each vchannel's owner has seen it, by its own word."""
        self._listeners: tuple[NodeListener, ...] = ()
        self._sessions_changed = asyncio.Event()
        self._unfollow: Callable[[], None] = _nothing

    def start(self, *listeners: NodeListener) -> None:
        self._listeners = listeners
        self._unfollow = self._sessions.on_change(self._sessions_changed.set)
        self._spawn(self._follow_sessions())

    def stop(self) -> None:
        self._unfollow()

    # who is there

    async def register(self, node_id: NodeID) -> DataNodeRegistration:
        """Raises `NodeReplaced`, and what the metadata raises."""
        await self._sessions.refresh()
        async with self._lock:
            live = self._live()
            if node_id not in live:
                raise NodeReplaced(f"the session of data node {node_id} is over, or its address another's")
            ports = self._sessions[node_id]
            self._end([n for n in self._nodes.values() if n.node_id == node_id or n.node_id not in live])
            node = LiveNode(node_id, await self._rootcoord.alloc_ids(1), ports)
            await self._share_out(node)
            self._nodes[node_id] = node
            own = [v for v in self._state.vchannels() if v.owner == node_id]
        self._spawn(self._keep_told(node, {v.vchannel: v.epoch for v in own}))
        for listener in self._listeners:
            listener.node_registered()
        _log.info("data node registered", node=node_id, epoch=node.epoch, vchannels=len(own))
        return DataNodeRegistration(node.epoch, tuple(map(_assignment, own)))

    def of_epoch(self, epoch: int) -> LiveNode:
        """Raises `CommitRefused` for a registration that is not in force."""
        for node in self._nodes.values():
            if node.epoch == epoch:
                return node
        raise CommitRefused(f"no data node is registered under epoch {epoch}: register again")

    def check_owner(self, vchannel: str, epoch: int) -> None:
        """Raises `CommitRefused` for what a former owner of the vchannel says.

        So is one that has not registered since this role started: what it has read of the log may be gone,
        and its attempts are forgotten.
        """
        known = self._state.vchannel(vchannel)
        if known is not None and (known.epoch != epoch or self.owner(vchannel) is None):
            raise CommitRefused(
                f"{vchannel} is owned by data node {known.owner} under epoch {known.epoch}: "
                f"epoch {epoch} is over, register again"
            )

    def by_load(self, busy: Mapping[NodeID, int] | None = None, vchannel: str = "") -> list[LiveNode]:
        """Those that take orders, least busy first; among equals the vchannel's owner. How busy they are
        their vchannels tell, where nothing else is said."""
        owned = Counter(v.owner for v in self._state.vchannels()) if busy is None else busy
        known = self._state.vchannel(vchannel)
        owner = NO_NODE if known is None else known.owner
        order = least_busy({node_id: owned.get(node_id, 0) for node_id in self._nodes}, owner)
        return [self._nodes[node_id] for node_id in order]

    def _live(self) -> frozenset[NodeID]:
        return in_place({node_id: ports.address for node_id, ports in self._sessions.items()})

    def _end(self, nodes: Iterable[LiveNode]) -> None:
        for node in tuple(nodes):
            _log.info("registration of a data node is over", node=node.node_id, epoch=node.epoch)
            del self._nodes[node.node_id]
            self._attempts.close_of(node.epoch)
            node.owned.set()
            for listener in self._listeners:
                listener.node_ended(node.epoch)

    async def _follow_sessions(self) -> None:
        while True:
            await self._sessions_changed.wait()
            self._sessions_changed.clear()
            try:
                async with self._lock:
                    live = self._live()
                    self._end([node for node in self._nodes.values() if node.node_id not in live])
                    await self._share_out()
            except Exception as error:  # noqa: BLE001 - without this loop nobody takes a dead node's vchannels
                _log.warning("vchannels not given to others", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(_RETRY_PAUSE_S)
                self._sessions_changed.set()

    # who owns what

    def placed(self, new: Sequence[Vchannel]) -> list[Vchannel]:
        """New vchannels with their owners. Under the lock; `tell` when they are persisted."""
        current = {v.vchannel: v.owner for v in (*self._state.vchannels(), *new)}
        wanted = owners(current, self._live(), self._nodes.keys(), balanced=False)
        placed = []
        for vchannel in new:
            owner = self._nodes.get(wanted[vchannel.vchannel])
            if owner is not None:
                vchannel = replace(vchannel, owner=owner.node_id, epoch=owner.epoch)
            placed.append(vchannel)
        return placed

    def tell(self) -> None:
        """What nodes own has changed."""
        for node in self._nodes.values():
            node.owned.set()

    async def _share_out(self, newcomer: LiveNode | None = None) -> None:
        """Give vchannels to others as nodes come and go. Under the lock.

        A newcomer gets an epoch for everything it owns: it may be an old acquaintance with jobs of old.
        """
        vchannels = list(self._state.vchannels())
        ready = self._nodes.keys() | ({newcomer.node_id} if newcomer else set())
        wanted = owners({v.vchannel: v.owner for v in vchannels}, self._live(), ready, balanced=True)
        changed = [
            replace(v, owner=wanted[v.vchannel])
            for v in vchannels
            if wanted[v.vchannel] != v.owner or (newcomer and v.owner == newcomer.node_id)
        ]
        if not changed:
            return
        epoch = newcomer.epoch if newcomer else await self._rootcoord.alloc_ids(1)
        names = {v.vchannel for v in changed}
        await self._state.put(self._flushing.given_up(names), [replace(v, epoch=epoch) for v in changed])
        for name in names:
            self._ticks.pop(name, None)
        self.tell()

    # what they have seen

    def take(self, node: LiveNode, ticks: Sequence[DataNodeTick]) -> dict[str, DataNodeTick]:
        """Of what a node reports, what is its to report, and counts from the checkpoint in force: a commit
        may have passed the rest. What another report has overtaken on its way is left out. Under the lock."""
        own = {
            t.vchannel: t
            for t in ticks
            if self.owner(t.vchannel) is node and t.ts >= self._ticks.get(t.vchannel, NO_TIMESTAMP)
        }
        self._ticks |= {name: t.ts for name, t in own.items()}
        return {name: t for name, t in own.items() if self._is_current(t)}

    def owner(self, vchannel: str) -> LiveNode | None:
        """None where it has none, or one that has not registered."""
        known = self._state.vchannel(vchannel)
        return None if known is None else self._nodes.get(known.owner)

    def _is_current(self, tick: DataNodeTick) -> bool:
        vchannel = self._state.vchannel(tick.vchannel)
        return vchannel is not None and tick.checkpoint_ts == vchannel.checkpoint.ts

    def has_seen(self, vchannel: str, at_least: Timestamp) -> bool:
        return self._ticks.get(vchannel, NO_TIMESTAMP) >= at_least

    # what they are told

    async def order(self, node: LiveNode, orders: Mapping[str, tuple[SegmentID, ...]]) -> None:
        """Have a node flush segments of its vchannels; none: only move the checkpoint on.

        An order that does not arrive, or whose vchannel has changed owners meanwhile, is given again.
        """
        epochs = {name: self._epoch_of(node, name) for name in orders}
        for name, segment_ids in orders.items():
            epoch = epochs[name]
            if epoch is None or self._epoch_of(node, name) != epoch:
                continue
            try:
                reason = self._flushing.reason(name, segment_ids)
                await node.ports.orders.flush_segments(node.epoch, name, segment_ids, reason)
            except ElanusError as error:
                _log.warning("data node not reached", node=node.node_id, error=error.message)
                continue
            if self._epoch_of(node, name) == epoch:
                self._flushing.delivered(name, epoch, segment_ids)

    def _epoch_of(self, node: LiveNode, name: str) -> int | None:
        """Under which the node owns the vchannel; None: it does not."""
        vchannel = self._state.vchannel(name)
        return vchannel.epoch if vchannel is not None and self.owner(name) is node else None

    async def _keep_told(self, node: LiveNode, told: dict[str, int]) -> None:
        """As long as the registration is in force. ``told``: the epochs of the vchannels the node follows."""
        while self._nodes.get(node.node_id) is node:
            node.owned.clear()
            owned = {v.vchannel: v for v in self._state.vchannels() if v.owner == node.node_id}
            over = {n: e for n, e in told.items() if n not in owned or owned[n].epoch != e}
            new = [v for v in owned.values() if told.get(v.vchannel) != v.epoch]
            try:
                await self._tell(node, over, new)
            except ElanusError as error:
                _log.warning("data node not reached", node=node.node_id, error=error.message)
                await asyncio.sleep(_RETRY_PAUSE_S)
                continue
            for name in over:
                del told[name]
            told |= {v.vchannel: v.epoch for v in new}
            await node.owned.wait()

    async def _tell(self, node: LiveNode, over: Mapping[str, int], new: Sequence[Vchannel]) -> None:
        """A dropped vchannel the node leaves by itself, when it has read the drop."""
        left = {n: e for n, e in over.items() if (v := self._state.vchannel(n)) is not None and not v.dropped}
        if left:
            await node.ports.orders.unwatch_channels(node.epoch, left)
        if new:
            await node.ports.orders.watch_channels(node.epoch, tuple(map(_assignment, new)))


def _nothing() -> None:
    """Before the start there is nothing to undo."""


def _assignment(vchannel: Vchannel) -> ChannelAssignment:
    return ChannelAssignment(
        vchannel.vchannel, vchannel.collection_id, vchannel.schema, vchannel.checkpoint, vchannel.epoch
    )
