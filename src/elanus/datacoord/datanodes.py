"""Datacoord's data nodes: which are live, which vchannels each owns, what each was ordered and has reported.

A node is live while it has a session, and takes part once it has registered. A registration has an epoch:
everything the node did under an earlier epoch is void, and so is everything it did once its session has
ended. The owner of a vchannel is persisted with the vchannel, together with an epoch that grows with every
change of owner and that the owner's commits carry; commits of a former owner are refused. So vchannels can be
given to other nodes without certainty that their owner is dead. `elanus.core.ownership` decides which node
gets which vchannel.

Watch and unwatch orders follow from ownership: what a node owns is compared with what it was last ordered to
watch, until the two agree.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol

import structlog

from elanus.api.datacoord import ChannelAssignment, DataNodeRegistration, DataNodeTick
from elanus.api.datanode import DataNodePorts, FlushReason
from elanus.core.channels import pchannel_of
from elanus.core.errors import CommitRefused, ElanusError, NodeReplaced
from elanus.core.ids import NO_NODE, NodeID, SegmentID
from elanus.core.nodes import Nodes
from elanus.core.ownership import holders, in_place, least_busy, owners
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.context import DataContext
from elanus.datacoord.flushing import Flushing
from elanus.datacoord.vchannel_table import Vchannel

_RETRY_PAUSE_S = 0.5
_SNAPSHOT = "snapshot"
"""The cause of ranges that snapshots, clones, backups, verifications and reads by Spark wait for."""
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A registration in force. ``owned`` is set when the node's vchannels may have changed, and ``changed``
    names them.

    ``watched``: the vchannels that the node has confirmed to own, with the epochs under which it does.
    ``waiting``: those whose orders wait for that.
    """

    node_id: NodeID
    epoch: int
    ports: DataNodePorts
    owned: asyncio.Event = field(default_factory=asyncio.Event, compare=False)
    changed: set[str] = field(default_factory=set, compare=False)
    watched: dict[str, int] = field(default_factory=dict, compare=False)
    waiting: set[str] = field(default_factory=set, compare=False)


class NodeListener(Protocol):
    """A component that orders work from data nodes. Called on the event loop; must not raise."""

    def node_registered(self) -> None:
        """A node has registered, for the first time or again."""

    def node_ended(self, epoch: int) -> None:
        """A registration is over: what was ordered under it will not be done."""


class DataNodes:
    """Registrations of data nodes and their vchannels. Implements
    `elanus.api.datacoord.RegistrationCalls`. ``sessions``: the nodes that have a session. Methods that say so
    are called under the role's lock."""

    def __init__(self, context: DataContext, flushing: Flushing, sessions: Nodes[DataNodePorts]) -> None:
        self._state = context.state
        self._attempts = context.attempts
        self._rootcoord = context.rootcoord
        self._lock = context.lock
        self._spawn = context.spawn
        self._flushing = flushing
        self._sessions = sessions
        self._nodes: dict[NodeID, LiveNode] = {}
        self._ticks: dict[str, Timestamp] = {}
        """Up to where each vchannel's owner has read it, as the owner last reported."""
        self._asked: dict[str, Timestamp] = {}
        """The ticks that `order_range` has not seen yet."""
        self._listeners: tuple[NodeListener, ...] = ()
        self._sessions_changed = asyncio.Event()
        self._unfollow: Callable[[], None] = _nothing

    def start(self, *listeners: NodeListener) -> None:
        self._listeners = listeners
        self._unfollow = self._sessions.on_change(self._sessions_changed.set)
        self._spawn(self._follow_sessions())

    def stop(self) -> None:
        self._unfollow()

    # registrations

    async def register_datanode(self, node_id: NodeID) -> DataNodeRegistration:
        """Register a data node and return its epoch and vchannels. Raises `NodeReplaced`, and whatever the
        metadata store raises."""
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
        node.watched.update({v.vchannel: v.epoch for v in own})
        self._spawn(self._send_watch_orders(node))
        for listener in self._listeners:
            listener.node_registered()
        _log.info("data node registered", node=node_id, epoch=node.epoch, vchannels=len(own))
        return DataNodeRegistration(node.epoch, tuple(map(_assignment, own)))

    def of_epoch(self, epoch: int) -> LiveNode:
        """Return the registration with this epoch. Raises `CommitRefused` if it is not in force."""
        for node in self._nodes.values():
            if node.epoch == epoch:
                return node
        raise CommitRefused(f"no data node is registered under epoch {epoch}: register again")

    def check_owner(self, vchannel: str, epoch: int) -> None:
        """Raise `CommitRefused` for a call of a former owner of the vchannel.

        An owner that has not registered since this role started is refused too: what it has read of the log
        may be gone, and its attempts are forgotten.
        """
        known = self._state.vchannel(vchannel)
        if known is not None and (known.epoch != epoch or self.owner(vchannel) is None):
            raise CommitRefused(
                f"{vchannel} is owned by data node {known.owner} under epoch {known.epoch}: "
                f"epoch {epoch} is over, register again"
            )

    def by_load(self, busy: Mapping[NodeID, int] | None = None, vchannel: str = "") -> list[LiveNode]:
        """Return the nodes that take orders, least busy first; among equals, the vchannel's owner comes
        first. Without ``busy``, the number of vchannels that a node owns counts as its load."""
        owned = self._state.owned_counts() if busy is None else busy
        known = self._state.vchannel(vchannel)
        owner = NO_NODE if known is None else known.owner
        order = least_busy({node_id: owned.get(node_id, 0) for node_id in self._nodes}, owner)
        return [self._nodes[node_id] for node_id in order]

    def _live(self) -> frozenset[NodeID]:
        return in_place({node_id: ports.address for node_id, ports in self._sessions.items()})

    def _end(self, nodes: Iterable[LiveNode]) -> None:
        for node in tuple(nodes):
            _log.info("data node registration ended", node=node.node_id, epoch=node.epoch)
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
                _log.warning("vchannels not reassigned", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(_RETRY_PAUSE_S)
                self._sessions_changed.set()

    # ownership

    def placed(self, new: Sequence[Vchannel]) -> list[Vchannel]:
        """Return new vchannels with their owners. Called under the lock; call `notify` once they are
        persisted. The cost is that of the pchannels, however many vchannels there are."""
        owned = {pchannel: Counter(counts) for pchannel, counts in self._state.owned().items()}
        for vchannel in new:
            owned.setdefault(pchannel_of(vchannel.vchannel), Counter())[vchannel.owner] += 1
        wanted = holders(owned, self._live(), self._nodes.keys(), balanced=False)
        placed = []
        for vchannel in new:
            owner = self._nodes.get(wanted.get(pchannel_of(vchannel.vchannel), vchannel.owner))
            if owner is not None:
                vchannel = replace(vchannel, owner=owner.node_id, epoch=owner.epoch)
            placed.append(vchannel)
        return placed

    def notify(self, vchannels: Iterable[str]) -> None:
        """Notify all nodes' loops that these vchannels may have changed owners, or have been dropped."""
        names = tuple(vchannels)
        for node in self._nodes.values():
            node.changed.update(names)
            node.owned.set()

    def forget_vchannel(self, vchannel: str) -> None:
        """The vchannel is dropped: nobody reports it any more, or waits for its ticks."""
        self._ticks.pop(vchannel, None)
        self._asked.pop(vchannel, None)
        self._flushing.forced.forget(vchannel)

    async def begin_again(self, changed: Sequence[Vchannel]) -> None:
        """Persist changed vchannels under a new epoch: each owner reads its own again, from the checkpoint.

        Called under the lock.
        """
        if not changed:
            return
        epoch = await self._rootcoord.alloc_ids(1)
        await self._put(changed, epoch)

    async def _put(self, changed: Sequence[Vchannel], epoch: int) -> None:
        names = {v.vchannel for v in changed}
        try:
            await self._state.put(self._flushing.given_up(names), [replace(v, epoch=epoch) for v in changed])
        finally:  # a caller that is cancelled may have persisted it, and the next one finds nothing changed
            for name in names:
                self._ticks.pop(name, None)
                self._asked.pop(name, None)
            self.notify(names)

    async def _share_out(self, newcomer: LiveNode | None = None) -> None:
        """Reassign vchannels after nodes have joined or left. Called under the lock.

        A newcomer gets a new epoch for everything it owns: it may have registered before and still run jobs
        of that registration.
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
        await self._put(changed, epoch)

    # reports

    def take(self, node: LiveNode, ticks: Sequence[DataNodeTick]) -> dict[str, DataNodeTick]:
        """Return the ticks of a report that count: those of vchannels that the node owns, and that count rows
        from the checkpoint in force (a commit may have moved it meanwhile). Ticks that a later report has
        overtaken are left out. Called under the lock."""
        own = {
            t.vchannel: t
            for t in ticks
            if self.owner(t.vchannel) is node and t.ts >= self._ticks.get(t.vchannel, NO_TIMESTAMP)
        }
        self._ticks |= {name: t.ts for name, t in own.items()}
        self._asked = {name: ts for name, ts in self._asked.items() if self._is_asked(name, ts)}
        return {name: t for name, t in own.items() if self._is_current(t)}

    def awaited(self, node: LiveNode, ticks: Sequence[DataNodeTick]) -> tuple[str, ...]:
        """Return the node's vchannels with something to flush as soon as their ticks allow it, without those
        that it has just reported."""
        wanted = chain(self._state.sealed_vchannels(), self._flushing.forced.wanted(), self._asked)
        reported = {t.vchannel for t in ticks}
        return tuple(v for v in dict.fromkeys(wanted) if v not in reported and self.owner(v) is node)

    def owner(self, vchannel: str) -> LiveNode | None:
        """Return the vchannel's owner; None if it has none, or one that has not registered."""
        known = self._state.vchannel(vchannel)
        return None if known is None else self._nodes.get(known.owner)

    def _is_asked(self, name: str, at_least: Timestamp) -> bool:
        is_behind = self._ticks.get(name, NO_TIMESTAMP) < at_least
        return is_behind and self._state.vchannel(name) is not None

    def _is_current(self, tick: DataNodeTick) -> bool:
        vchannel = self._state.vchannel(tick.vchannel)
        return vchannel is not None and tick.checkpoint_ts == vchannel.checkpoint.ts

    # orders

    async def order(
        self, node: LiveNode, orders: Mapping[str, tuple[SegmentID, ...]], cause: str = ""
    ) -> None:
        """Order a node to flush segments of its vchannels; without segments, only to advance the checkpoint.

        ``cause``: the reason that the job ledger shows; "": why the segments were sealed, or the log's size.
        An order that does not arrive, or whose vchannel has changed owners meanwhile, is repeated later. So
        is one for a vchannel that the node has not confirmed to own under its present epoch: the node would
        take it for the one before, and forget it with that.
        """
        epochs = {name: self._epoch_of(node, name) for name in orders}
        for name, segment_ids in orders.items():
            epoch = epochs[name]
            if epoch is None or self._epoch_of(node, name) != epoch:
                continue
            if node.watched.get(name) != epoch:
                node.waiting.add(name)
                node.owned.set()
                continue
            try:
                reason = FlushReason(cause) if cause else self._flushing.reason(name, segment_ids)
                await node.ports.orders.flush_segments(node.epoch, name, segment_ids, reason)
            except ElanusError as error:
                _log.warning("data node not reached", node=node.node_id, error=error.message)
                continue
            if self._epoch_of(node, name) == epoch:
                self._flushing.delivered(name, epoch, segment_ids)

    async def order_range(self, vchannel: str, at_least: Timestamp) -> bool:
        """Order a range of the vchannel, and return True, if its owner's tick has passed ``at_least``. If
        not, the owner is asked for its tick: with an order, and in answer to its reports."""
        owner = self.owner(vchannel)
        if owner is None:
            return False
        if self._ticks.get(vchannel, NO_TIMESTAMP) < at_least:
            if self._asked.get(vchannel, NO_TIMESTAMP) < at_least:
                self._asked[vchannel] = at_least
                self._spawn(self._ask(owner, vchannel, at_least))
            return False
        await self.order(owner, {vchannel: ()}, _SNAPSHOT)
        return True

    async def _ask(self, node: LiveNode, vchannel: str, at_least: Timestamp) -> None:
        try:
            await node.ports.orders.report_soon(node.epoch, vchannel, at_least)
        except ElanusError as error:
            _log.info("early tick not requested", node=node.node_id, error=error.message)

    def _epoch_of(self, node: LiveNode, name: str) -> int | None:
        """Return the epoch under which the node owns the vchannel; None if it does not own it."""
        vchannel = self._state.vchannel(name)
        return vchannel.epoch if vchannel is not None and self.owner(name) is node else None

    async def _send_watch_orders(self, node: LiveNode) -> None:
        """Send watch and unwatch orders while the registration is in force."""
        watched = node.watched
        while self._nodes.get(node.node_id) is node:
            node.owned.clear()
            names = sorted(node.changed)
            node.changed.clear()
            owned = {name: v for name in names if (v := self._owned_by(node, name)) is not None}
            over = {n: watched[n] for n in names if n in watched and _epoch(owned.get(n)) != watched[n]}
            new = [v for v in owned.values() if watched.get(v.vchannel) != v.epoch]
            try:
                await self._send_round(node, over, new)
                for name in over:
                    del watched[name]
                watched |= {v.vchannel: v.epoch for v in new}
                await self._send_for_reports(node)
            except ElanusError as error:
                _log.warning("data node not reached", node=node.node_id, error=error.message)
                node.changed.update(names)
                await asyncio.sleep(_RETRY_PAUSE_S)
                continue
            await node.owned.wait()

    async def _send_for_reports(self, node: LiveNode) -> None:
        """Have the node report the vchannels whose orders waited: orders are answers to reports."""
        for name in sorted(node.waiting):
            epoch = self._epoch_of(node, name)
            if epoch is not None and node.watched.get(name) == epoch:
                await node.ports.orders.report_soon(node.epoch, name, NO_TIMESTAMP)
            if epoch is None or node.watched.get(name) == epoch:
                node.waiting.discard(name)

    def _owned_by(self, node: LiveNode, name: str) -> Vchannel | None:
        vchannel = self._state.vchannel(name)
        is_owned = vchannel is not None and not vchannel.dropped and vchannel.owner == node.node_id
        return vchannel if is_owned else None

    async def _send_round(self, node: LiveNode, over: Mapping[str, int], new: Sequence[Vchannel]) -> None:
        """Send one round of orders. A dropped vchannel needs none: the node stops following it when it has
        read the drop message."""
        left = {n: e for n, e in over.items() if (v := self._state.vchannel(n)) is not None and not v.dropped}
        if left:
            await node.ports.orders.unwatch_channels(node.epoch, left)
        if new:
            await node.ports.orders.watch_channels(node.epoch, tuple(map(_assignment, new)))


def _nothing() -> None:
    """Do nothing: before the start there is no subscription to cancel."""


def _epoch(vchannel: Vchannel | None) -> int | None:
    return None if vchannel is None else vchannel.epoch


def _assignment(vchannel: Vchannel) -> ChannelAssignment:
    return ChannelAssignment(
        vchannel.vchannel, vchannel.collection_id, vchannel.schema, vchannel.checkpoint, vchannel.epoch
    )
