"""The data node role.

It follows the pchannels of its vchannels by their headers alone (no payload is read, no Spark involved).
It reports each tick to datacoord with the rows it has seen. On datacoord's order it has a Spark job write the
range from a vchannel's checkpoint to its current tick, or compact segments. A job's output counts once
datacoord has committed it. When anything goes wrong, in particular when a range is refused, the node gives
up its vchannels and registers again; datacoord then assigns each vchannel with its checkpoint.

This module holds the orders that datacoord sends and the node's life. `ownership` knows the vchannels,
`following` reads the log, `reporting` reports, `flushing` writes ranges and commits them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from elanus.api.datacoord import ChannelAssignment, DataCoordApi
from elanus.api.datanode import CompactionOrder, CompactionWork, FlushReason
from elanus.core.errors import CommitRefused, ElanusError, NodeReplaced, NotReady
from elanus.core.faults import Fault
from elanus.core.ids import NodeID, SegmentID
from elanus.core.timestamps import Timestamp
from elanus.datanode.compactions import CompactionRunner, Compactions
from elanus.datanode.flushing import Flusher
from elanus.datanode.following import LogReaders
from elanus.datanode.orders import Order, Orders
from elanus.datanode.ownership import OwnedChannels
from elanus.datanode.policy import RETRY_PAUSE_S, DataNodePolicy
from elanus.datanode.range_jobs import FlushRunner, RangeJobs
from elanus.datanode.reporting import Reporter
from elanus.log.shared_reader import LogSource

_log = structlog.get_logger("datanode")


class DataNode:
    """Implements `elanus.api.datanode.DataNodeApi`. ``node_id`` is that of its session, which contains the
    address at which datacoord reaches it. ``wrote`` is called when the node has read writes from the log."""

    def __init__(
        self,
        node_id: NodeID,
        log: LogSource,
        datacoord: DataCoordApi,
        flushes: FlushRunner,
        compactions: CompactionRunner,
        policy: DataNodePolicy,
        wrote: Callable[[], None] = lambda: None,
    ) -> None:
        self.node_id = node_id
        self._ranges = RangeJobs(flushes, lambda vchannel: self.owned.is_live(vchannel))
        self.owned = OwnedChannels(self._ranges.forget)
        self.orders = Orders()
        self.readers = LogReaders(log, datacoord, self.owned, self.orders, wrote)
        self._datacoord = datacoord
        self._compaction_runner = compactions
        self._compactions: Compactions | None = None
        self._policy = policy
        self._epoch = 0
        """The newest epoch that an order or a registration has named."""

    # orders from datacoord

    async def watch_channels(self, epoch: int, channels: tuple[ChannelAssignment, ...]) -> None:
        self._enter(epoch)
        self._own(channels)

    async def unwatch_channels(self, epoch: int, channels: Mapping[str, int]) -> None:
        """Another node owns them now. A job that still writes for them will be refused."""
        self._enter(epoch)
        for vchannel, owned_under in channels.items():
            if self.owned.release(vchannel, owned_under):
                self.orders.discard(vchannel)

    async def flush_segments(
        self, epoch: int, vchannel: str, segment_ids: tuple[SegmentID, ...], reason: FlushReason
    ) -> None:
        self._enter(epoch)
        self.orders.add(vchannel, Order(set(segment_ids), {reason.cause}, set(reason.waiting)))

    async def report_soon(self, epoch: int, vchannel: str, at_least: Timestamp) -> None:
        self._enter(epoch)
        self.owned.ask(vchannel, at_least)

    async def compact(self, epoch: int, order: CompactionOrder) -> int:
        compactions = self._compactions_of(epoch)
        compactions.take(order)
        return compactions.work.room

    async def compactions(self, epoch: int) -> CompactionWork:
        return self._compactions_of(epoch).work

    async def cancel_compactions(self, epoch: int, plan_ids: tuple[int, ...]) -> None:
        self._compactions_of(epoch).cancel(plan_ids)

    def _compactions_of(self, epoch: int) -> Compactions:
        self._enter(epoch)
        if self._compactions is None or self._compactions.epoch != epoch:
            raise NotReady("the data node is registering; order again when it has")
        return self._compactions

    def _enter(self, epoch: int) -> None:
        """Accept orders of this epoch, and none of earlier ones; the state of earlier epochs is forgotten.

        An order may arrive before the response to the registration that it follows.
        """
        if epoch < self._epoch:
            raise CommitRefused(f"an order of epoch {epoch}: epoch {self._epoch} has begun")
        if epoch > self._epoch:
            self._epoch = epoch
            self._forget()

    def _own(self, assignments: tuple[ChannelAssignment, ...]) -> None:
        self.readers.follow(self.owned.assign(assignments))

    def _forget(self) -> None:
        self.readers.stop_all()
        self.owned.clear()
        self.orders.clear()
        self._ranges.forget_all()

    # lifecycle

    async def run(self) -> None:
        """Serve until cancelled or replaced; register again after any failure that need not last."""
        while True:
            try:
                await self._serve()
            except NodeReplaced as error:
                _log.error("data node replaced; it stops", error=error.message)
                return
            except (ElanusError, Fault) as error:
                if isinstance(error, Fault) and error.lasting:
                    raise
                _log.warning("registration lost; registering again", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _serve(self) -> None:
        # Forget before registering: orders to the new registration may arrive before its response does.
        # Readers may already run, for vchannels ordered since the last registration ended.
        self._forget()
        failure = self.readers.failure()
        loops: list[asyncio.Future[None]] = []
        try:
            registration = await self._datacoord.register_datanode(self.node_id)
            epoch = registration.epoch
            self._enter(epoch)
            self._compactions = Compactions(epoch, self._datacoord, self._compaction_runner)
            self._own(registration.channels)
            reporter = Reporter(epoch, self._datacoord, self.owned, self._policy)
            flusher = Flusher(epoch, self._datacoord, self.owned, self.orders, self._ranges, self._policy)
            works = (reporter.run(), flusher.carry_out_orders(), flusher.move_checkpoints())
            loops += [asyncio.ensure_future(work) for work in works]
            await asyncio.wait([*loops, failure], return_when=asyncio.FIRST_COMPLETED)
            for done in (*loops, failure):
                if done.done():
                    done.result()
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, *self.readers.stop_all(), return_exceptions=True)
            if self._compactions is not None:
                compactions, self._compactions = self._compactions, None
                await compactions.stop()
            failure.cancel()
