"""Flushing: writing ranges as ordered, committing them, and moving the checkpoints of idle vchannels."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from elanus.api.datacoord import DataCoordApi, RangeCommit
from elanus.core.attempts import NO_ATTEMPT
from elanus.core.errors import CommitRefused
from elanus.core.ids import SegmentID
from elanus.core.timestamps import physical_ms
from elanus.datanode.orders import Order, Orders
from elanus.datanode.ownership import OwnedChannels
from elanus.datanode.policy import HELD_MAX_BYTES, DataNodePolicy
from elanus.datanode.progress import ChannelProgress, Range
from elanus.datanode.range_jobs import RangeJobs, RangeWork
from elanus.pipeline.ranges import RangeOutcome


class Flusher:
    """The flushes of one registration, which has the ``epoch``. Its loops raise `ElanusError` and `Fault`."""

    def __init__(
        self,
        epoch: int,
        datacoord: DataCoordApi,
        owned: OwnedChannels,
        orders: Orders,
        ranges: RangeJobs,
        policy: DataNodePolicy,
    ) -> None:
        self._epoch = epoch
        self._datacoord = datacoord
        self._owned = owned
        self._orders = orders
        self._ranges = ranges
        self._policy = policy
        self._flushing = asyncio.Lock()

    async def carry_out_orders(self) -> None:
        """Flush what is ordered, until cancelled."""
        while True:
            rests_s = [self._ranges.rest_s(vchannel) for vchannel in self._orders]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(rests_s, default=None)):
                    await self._orders.arrived.wait()
            self._orders.arrived.clear()
            due = self._orders.take(lambda vchannel: not self._ranges.rest_s(vchannel))
            if due:
                await self._flush(due)

    async def move_checkpoints(self) -> None:
        """Let checkpoints follow the tick, so that the log can be trimmed behind them, until cancelled.

        Those of idle vchannels need no job; the others move when their oldest write has waited long enough.
        """
        while True:
            await asyncio.sleep(self._policy.holding_checkpoint_ms / 2000)
            behind = [
                c.vchannel for c in self._owned if self._is_behind(c) and not self._ranges.rest_s(c.vchannel)
            ]
            if behind:
                await self._flush({vchannel: Order(causes={"age"}) for vchannel in behind})

    async def _flush(self, orders: dict[str, Order]) -> None:
        """Write one range of each vchannel; the rest of a range, or one that failed, is ordered again."""
        async with self._flushing:
            attempts = await self._open_attempts([v for v in orders if self._owned.is_live(v)])
            channels = {v: self._owned[v] for v in attempts if self._owned.is_live(v)}
            ranges = {v: c.next_range(self._policy.range_size_max_bytes) for v, c in channels.items()}
            epochs = {v: channel.epoch for v, channel in channels.items()}
            works = [
                RangeWork(
                    channels[v],
                    range_,
                    attempts[v],
                    frozenset(orders[v].causes),
                    frozenset(orders[v].waiting),
                )
                for v, range_ in ranges.items()
                if range_.has_rows
            ]
            written = await self._ranges.write(works)
            for vchannel, range_ in ranges.items():
                order, outcome = orders[vchannel], written.get(vchannel)
                if range_.has_rows and outcome is None:
                    if self._is_still_ours(vchannel, epochs[vchannel]):
                        self._orders.add(vchannel, order)  # tried again after its rest
                    continue
                # A segment is complete only when everything up to its seal is in binlogs.
                flushed = order.segment_ids if range_.is_whole else set()
                attempt = attempts.pop(vchannel)
                await self._commit(vchannel, epochs[vchannel], range_, outcome, flushed, attempt)
                if not range_.is_whole and self._owned.is_live(vchannel):
                    self._orders.add(vchannel, order)
            if unused := tuple(number for number in attempts.values() if number != NO_ATTEMPT):
                await self._datacoord.close_attempts(unused)

    async def _open_attempts(self, vchannels: Sequence[str]) -> dict[str, int]:
        """An attempt number for each vchannel's range; `NO_ATTEMPT` if none has anything to write."""
        if not any(self._owned[v].has_pending() for v in vchannels):
            return dict.fromkeys(vchannels, NO_ATTEMPT)
        first = await self._datacoord.open_attempts(self._epoch, len(vchannels))
        return {v: first + n for n, v in enumerate(vchannels)}

    async def _commit(
        self,
        vchannel: str,
        epoch: int,
        range_: Range,
        outcome: RangeOutcome | None,
        flushed: set[SegmentID],
        attempt: int,
    ) -> None:
        commit = RangeCommit(
            epoch=epoch,
            vchannel=vchannel,
            expected=range_.start,
            checkpoint=range_.end,
            segments=outcome.segments if outcome else (),
            delta=outcome.delta if outcome else None,
            flushed=tuple(sorted(flushed)),
            attempt=attempt,
            quarantined=outcome.quarantined if outcome else (),
        )
        try:
            await self._datacoord.commit_range(commit)
        except CommitRefused:
            if self._is_still_ours(vchannel, epoch):
                raise
            return  # its collection was dropped meanwhile, or another node owns it now
        if self._owned.owns(vchannel, epoch):
            self._owned.committed(vchannel, range_.end)

    def _is_still_ours(self, vchannel: str, epoch: int) -> bool:
        return self._owned.is_live(vchannel) and self._owned.owns(vchannel, epoch)

    def _is_behind(self, channel: ChannelProgress) -> bool:
        if channel.has_pending():
            return channel.waiting_ms() >= self._policy.sync_age_ms
        holds = channel.held_bytes >= HELD_MAX_BYTES
        may_ms = self._policy.holding_checkpoint_ms if holds else self._policy.idle_checkpoint_ms
        return physical_ms(channel.seek.ts) - physical_ms(channel.checkpoint.ts) >= may_ms
