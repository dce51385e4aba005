"""Flushing: writing ranges as ordered, committing them, and moving the checkpoints of idle vchannels.

Ranges that are due together are a *batch*: one job, and then their commits. A few batches are under way at a
time, each vchannel in at most one. So a job that hangs delays the vchannels of its own batch only, until its
deadline; then each range is tried alone, and is committed when it is written. Orders that arrive while all
batches are under way wait, and form the next batch together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from elanus.api.datacoord import CheckpointMove, DataCoordApi, RangeCommit
from elanus.core.attempts import NO_ATTEMPT
from elanus.core.batches import batched
from elanus.core.timestamps import physical_ms
from elanus.datanode.orders import Order, Orders
from elanus.datanode.ownership import OwnedChannels
from elanus.datanode.policy import HELD_MAX_BYTES, DataNodePolicy
from elanus.datanode.progress import ChannelProgress, Range
from elanus.datanode.range_commits import RangeCommits
from elanus.datanode.range_jobs import RangeJobs, RangeWork
from elanus.pipeline.ranges import RangeOutcome

BATCHES_MAX = 4
"""Batches under way at a time: more than one hangs only in a broken system, and orders join larger batches
while they wait."""
BATCH_MAX_VCHANNELS = 64
"""The first range of a batch is committed only when the last is written."""
_MOVES_MAX = 100
"""Checkpoints that move in one call: as many as a transaction of the metadata takes."""


@dataclass(frozen=True, slots=True)
class _Flush:
    """A batch's part for one vchannel: an order, and the range by which it is carried out."""

    progress: ChannelProgress
    range_: Range
    attempt: int
    order: Order

    @property
    def vchannel(self) -> str:
        return self.progress.vchannel

    @property
    def epoch(self) -> int:
        """The epoch under which this node owned the vchannel when the range was determined."""
        return self.progress.epoch

    def work(self) -> RangeWork:
        causes, waiting = frozenset(self.order.causes), frozenset(self.order.waiting)
        return RangeWork(self.progress, self.range_, self.attempt, causes, waiting)

    def commit(self, outcome: RangeOutcome | None) -> RangeCommit:
        # A segment is complete only when everything up to its seal is in binlogs.
        flushed = self.order.segment_ids if self.range_.is_whole else ()
        return RangeCommit(
            epoch=self.epoch,
            vchannel=self.vchannel,
            expected=self.range_.start,
            checkpoint=self.range_.end,
            segments=outcome.segments if outcome else (),
            delta=outcome.delta if outcome else None,
            flushed=tuple(sorted(flushed)),
            attempt=self.attempt,
            quarantined=outcome.quarantined if outcome else (),
        )


class Flusher:
    """The flushes of one registration. Its loops raise `ElanusError` and `Fault`. ``epoch``: the
    registration's."""

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
        self._commits = RangeCommits(datacoord, owned)
        self._busy: set[str] = set()
        """The vchannels of which a range is being written or committed."""
        self._batches: set[asyncio.Task[None]] = set()

    async def carry_out_orders(self) -> None:
        """Flush what is ordered, until cancelled."""
        try:
            while True:
                await self._something_to_do()
                while len(self._batches) < BATCHES_MAX and (due := self._take_due()):
                    self._busy |= due.keys()
                    batch = asyncio.create_task(self._flush(due), name=f"flush {', '.join(due)}")
                    self._batches.add(batch)
        finally:
            for batch in self._batches:
                batch.cancel()
            await asyncio.gather(*self._batches, return_exceptions=True)

    async def _something_to_do(self) -> None:
        """Return when an order has arrived, a batch has ended or a rest is over. Raises what a batch
        raised."""
        rests_s = [self._ranges.rest_s(v) for v in self._orders if v not in self._busy]
        is_full = len(self._batches) >= BATCHES_MAX
        arrived = asyncio.ensure_future(self._orders.arrived.wait())
        waiting = self._batches if is_full else {*self._batches, arrived}
        try:
            timeout_s = None if is_full else min(rests_s, default=None)
            done, _ = await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrived.cancel()
        self._orders.arrived.clear()
        ended = self._batches & done
        self._batches -= ended
        await asyncio.gather(*ended)  # several may have failed: it raises one error, and reads the others

    def _take_due(self) -> dict[str, Order]:
        due = (v for v in self._orders if v not in self._busy and not self._ranges.rest_s(v))
        chosen = frozenset(islice(due, BATCH_MAX_VCHANNELS))
        return self._orders.take(chosen.__contains__) if chosen else {}

    async def move_checkpoints(self) -> None:
        """Let checkpoints follow the tick, so that the log can be trimmed behind them, until cancelled.

        Those of idle vchannels need no job and move together; the others move when their oldest write has
        waited long enough.
        """
        while True:
            await asyncio.sleep(self._policy.holding_checkpoint_ms / 2000)
            behind = [c for c in self._owned if self._may_move(c) and self._is_behind(c)]
            for channel in behind:
                if channel.has_pending():
                    self._orders.add(channel.vchannel, Order(causes={"age"}))
            idle = [channel.vchannel for channel in behind if not channel.has_pending()]
            for some in batched(idle, _MOVES_MAX):
                await self._move_idle(some)

    def _may_move(self, channel: ChannelProgress) -> bool:
        return channel.vchannel not in self._busy and not self._ranges.rest_s(channel.vchannel)

    async def _move_idle(self, vchannels: Iterable[str]) -> None:
        """Move the checkpoints of those that are still idle and not in a batch."""
        free = [c for v in vchannels if (c := self._owned.get(v)) is not None and self._may_move(c)]
        ranges = [(c, c.next_range(self._policy.range_size_max_bytes)) for c in free if not c.ended]
        moves = [_move_of(c, range_) for c, range_ in ranges if not range_.has_rows]
        idle = [move.vchannel for move in moves]
        self._busy.update(idle)
        try:
            await self._commits.move(moves)
        finally:
            self._release(idle)

    def _release(self, vchannels: Iterable[str]) -> None:
        """Let orders for these vchannels be carried out again."""
        self._busy.difference_update(vchannels)
        self._orders.arrived.set()

    async def _flush(self, orders: dict[str, Order]) -> None:
        """Write one range of each vchannel; the rest of a range, or one that failed, is ordered again.

        Each vchannel is released when it is done: the others may take much longer.
        """
        under_way = set(orders)

        def done(vchannels: Iterable[str]) -> None:
            vchannels = under_way.intersection(vchannels)
            under_way.difference_update(vchannels)
            self._release(vchannels)

        try:
            await self._write_and_commit(orders, done)
        finally:
            self._release(under_way)

    async def _write_and_commit(
        self, orders: dict[str, Order], done: Callable[[Iterable[str]], None]
    ) -> None:
        attempts = await self._open_attempts([v for v in orders if self._owned.is_live(v)])
        flushes = {v: self._begun(v, orders[v], attempts[v]) for v in attempts if self._owned.is_live(v)}
        done(orders.keys() - flushes.keys())  # no longer ours
        used: set[str] = set()

        async def ended(outcomes: Mapping[str, RangeOutcome | None]) -> None:
            for vchannel, outcome in outcomes.items():
                if await self._end(flushes[vchannel], outcome):
                    used.add(vchannel)
                done([vchannel])

        idle = [flush for flush in flushes.values() if not flush.range_.has_rows]
        await ended({flush.vchannel: None for flush in idle if flush.order.segment_ids})
        moving = [flush for flush in idle if not flush.order.segment_ids]
        await self._commits.move([_move_of(flush.progress, flush.range_) for flush in moving])
        done(flush.vchannel for flush in moving)
        works = [flush.work() for flush in flushes.values() if flush.range_.has_rows]
        await self._ranges.write(works, self._policy.flush_timeout_s, ended)
        unused = tuple(number for v, number in attempts.items() if v not in used and number != NO_ATTEMPT)
        if unused:
            await self._datacoord.close_attempts(unused)

    async def _open_attempts(self, vchannels: Sequence[str]) -> dict[str, int]:
        """Return an attempt number for each vchannel's range; `NO_ATTEMPT` if none has anything to write."""
        if not any(self._owned[v].has_pending() for v in vchannels):
            return dict.fromkeys(vchannels, NO_ATTEMPT)
        first = await self._datacoord.open_attempts(self._epoch, len(vchannels))
        return {v: first + n for n, v in enumerate(vchannels)}

    def _begun(self, vchannel: str, order: Order, attempt: int) -> _Flush:
        progress = self._owned[vchannel]
        range_ = progress.next_range(self._policy.range_size_max_bytes)
        return _Flush(progress, range_, attempt, order)

    async def _end(self, flush: _Flush, outcome: RangeOutcome | None) -> bool:
        """Commit a range, or order it again if it could not be written. Returns whether its attempt was used.

        ``outcome``: None if the range was not written, or has no rows.
        """
        vchannel, range_ = flush.vchannel, flush.range_
        if range_.has_rows and outcome is None:
            if self._commits.is_still_ours(vchannel, flush.epoch):
                self._orders.add(vchannel, flush.order)  # tried again after its rest
            else:
                self._ranges.forget(vchannel)
            return False
        await self._commits.commit(flush.commit(outcome))
        if not range_.is_whole and self._owned.is_live(vchannel):
            self._orders.add(vchannel, flush.order)
        return True

    def _is_behind(self, channel: ChannelProgress) -> bool:
        if channel.has_pending():
            return channel.waiting_ms() >= self._policy.sync_age_ms
        holds = channel.held_bytes >= HELD_MAX_BYTES
        may_ms = self._policy.holding_checkpoint_ms if holds else self._policy.idle_checkpoint_ms
        return physical_ms(channel.seek.ts) - physical_ms(channel.checkpoint.ts) >= may_ms


def _move_of(channel: ChannelProgress, range_: Range) -> CheckpointMove:
    return CheckpointMove(channel.epoch, channel.vchannel, range_.start, range_.end)
