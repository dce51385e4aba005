"""Datacoord's side of its data node: who it is, under which epoch, what it is told and what it has seen.

A registration makes the newcomer owner of all vchannels under a new epoch. An order that does not arrive, or
arrives at a node that was replaced, is given again; what the replaced one still commits is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from elanus.core.errors import CommitRefused, ElanusError, NodeReplaced
from elanus.core.ids import NodeID, SegmentID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.attempts import Attempts
from elanus.datacoord.flushing import Flushing
from elanus.datacoord.state import DataState, Vchannel
from elanus.rpc.datacoord import ChannelAssignment, DataNodeRegistration, DataNodeTick
from elanus.rpc.datanode import DataNodeApi
from elanus.rpc.rootcoord import RootCoordApi

_RETRY_PAUSE_S = 0.5
_log = structlog.get_logger("datacoord")


class DataNodes:
    """``dial`` makes a client of the data node at an address; ``registered`` hears of every registration."""

    def __init__(
        self,
        state: DataState,
        flushing: Flushing,
        attempts: Attempts,
        rootcoord: RootCoordApi,
        dial: Callable[[str], DataNodeApi],
        registered: Callable[[str], None],
    ) -> None:
        self._state = state
        self._flushing = flushing
        self._attempts = attempts
        self._rootcoord = rootcoord
        self._dial = dial
        self._registered = registered
        self._node_id = NodeID(0)
        self._ticks: dict[str, Timestamp] = {}
        """Up to where the data node has seen each vchannel, by its own word."""
        self.epoch = 0
        self.node: DataNodeApi | None = None

    async def register(self, node_id: NodeID, address: str) -> DataNodeRegistration:
        """A new owner of all vchannels: whoever owned them before can commit no more. Under the lock."""
        if node_id < self._node_id:
            raise NodeReplaced(f"data node {node_id} has been replaced by {self._node_id}: it must end")
        self._node_id = node_id
        self.epoch = await self._rootcoord.alloc_ids(1)
        self.node = self._dial(address)
        self._attempts.close_all()
        self._ticks.clear()
        self._registered(address)
        await self._flushing.give_up()
        return DataNodeRegistration(self.epoch, tuple(map(_assignment, self._state.vchannels())))

    def check(self, epoch: int) -> None:
        """Raises `CommitRefused` for an epoch that is not in force."""
        if epoch != self.epoch:
            raise CommitRefused(f"data node epoch {epoch} has been replaced by {self.epoch}: register again")

    # what it has seen

    def take(self, ticks: Sequence[DataNodeTick]) -> dict[str, DataNodeTick]:
        """Those that count from the checkpoint in force: a commit may have passed the others."""
        self._ticks |= {t.vchannel: t.ts for t in ticks}
        return {t.vchannel: t for t in ticks if self._is_current(t)}

    def _is_current(self, tick: DataNodeTick) -> bool:
        vchannel = self._state.vchannel(tick.vchannel)
        return vchannel is not None and tick.checkpoint_ts == vchannel.checkpoint.ts

    def has_seen(self, vchannel: str, at_least: Timestamp) -> bool:
        return self._ticks.get(vchannel, NO_TIMESTAMP) >= at_least

    # what it is told

    async def tell_to_watch(self, vchannels: list[Vchannel]) -> None:
        """Until the data node has been told, or has been replaced by one that learns it when it registers."""
        node, epoch = self.node, self.epoch
        while node is not None and self.node is node:
            try:
                await node.watch_channels(epoch, tuple(map(_assignment, vchannels)))
            except ElanusError as error:
                _log.warning("data node not reached", error=error.message)
                await asyncio.sleep(_RETRY_PAUSE_S)
            else:
                return

    async def order(self, epoch: int, orders: Mapping[str, tuple[SegmentID, ...]]) -> None:
        """Have the data node of the epoch flush segments of vchannels; none: only move the checkpoint on."""
        node = self.node
        for vchannel, segment_ids in orders.items():
            if node is None or node is not self.node or epoch != self.epoch:
                return
            try:
                reason = self._flushing.reason(vchannel, segment_ids)
                await node.flush_segments(epoch, vchannel, segment_ids, reason)
            except ElanusError as error:
                _log.warning("data node not reached", error=error.message)
                continue
            if node is self.node:
                self._flushing.delivered(vchannel, segment_ids)


def _assignment(vchannel: Vchannel) -> ChannelAssignment:
    return ChannelAssignment(vchannel.vchannel, vchannel.collection_id, vchannel.schema, vchannel.checkpoint)
