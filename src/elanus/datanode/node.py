"""The data node role.

It follows the pchannels of its vchannels by their headers alone (no payload is read, no Spark involved),
tells datacoord each tick with the rows it has seen, and on datacoord's order has a Spark job write the
range from a vchannel's checkpoint to its current tick, or compact segments. What a job wrote counts when
datacoord has committed it. When anything is not as it should be, a refused range above all, the node gives
up what it holds and registers again; datacoord then says where each vchannel stands.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from elanus.core.attempts import NO_ATTEMPT
from elanus.core.catalog import Checkpoint
from elanus.core.channels import pchannel_of
from elanus.core.errors import CommitRefused, ElanusError, NodeReplaced, NotReady
from elanus.core.ids import NodeID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.packs import Pack, PackAssembler
from elanus.core.timestamps import physical_ms
from elanus.datanode.compactions import CompactionRunner, Compactions
from elanus.datanode.progress import ChannelProgress, Range
from elanus.datanode.range_jobs import FlushRunner, RangeJobs, RangeWork
from elanus.log.port import CorruptLog, LogEntry, LogReader, Position, TrimmedLog
from elanus.pipeline.port import JobCancelled, JobFailed
from elanus.pipeline.ranges import RangeOutcome
from elanus.rpc.datacoord import ChannelAssignment, DataCoordApi, RangeCommit
from elanus.rpc.datanode import CompactionOrder, FlushReason

_RETRY_PAUSE_S = 0.5
_DROP_TRIES_MAX = 10
_DAMAGED_PAUSE_S = 10.0
HELD_MAX_BYTES = 64 * 1024
"""So much log an idle vchannel may hold for long: the embedded log closes no file for less."""
_log = structlog.get_logger("datanode")


class LogSource(Protocol):
    """The reading half of a log."""

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader: ...


@dataclass(frozen=True, slots=True)
class DataNodePolicy:
    """``report_ms``: the least time between two reports; ``idle_report_ms``: how often about idle
    vchannels; ``idle_checkpoint_ms``: how far an idle vchannel's checkpoint may fall behind its tick, and
    ``holding_checkpoint_ms``: where it keeps `HELD_MAX_BYTES` of log from being trimmed;
    ``sync_age_ms``: how long a write may lie in the log alone; ``range_size_max_bytes``: about how much
    of a vchannel's log one job writes, so that a backlog is drained in pieces."""

    report_ms: int
    idle_report_ms: int
    idle_checkpoint_ms: int
    holding_checkpoint_ms: int
    sync_age_ms: int
    range_size_max_bytes: int


@dataclass(slots=True)
class _Order:
    """What has been ordered of a vchannel and not begun: segments to complete, why, and for whom."""

    segment_ids: set[SegmentID] = field(default_factory=set)
    causes: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)

    def add(self, other: _Order) -> None:
        self.segment_ids |= other.segment_ids
        self.causes |= other.causes
        self.waiting |= other.waiting


class DataNode:
    """Implements `elanus.rpc.datanode.DataNodeApi`. ``node_id`` is that of its session, which says where
    datacoord reaches it."""

    def __init__(
        self,
        node_id: NodeID,
        log: LogSource,
        datacoord: DataCoordApi,
        flushes: FlushRunner,
        compactions: CompactionRunner,
        policy: DataNodePolicy,
    ) -> None:
        self.node_id = node_id
        self._log = log
        self._datacoord = datacoord
        self._ranges = RangeJobs(flushes)
        self._compaction_runner = compactions
        self._compactions: Compactions | None = None
        self._policy = policy
        self._epoch = 0
        self._epoch_heard = 0
        self._channels: dict[str, ChannelProgress] = {}
        self._left: dict[str, int] = {}
        """Of vchannels that others own now, the epoch under which this node did."""
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._orders: dict[str, _Order] = {}
        self._ordered = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._news = asyncio.Event()
        self._failed: asyncio.Future[None] | None = None

    # orders of datacoord

    async def watch_channels(self, epoch: int, channels: tuple[ChannelAssignment, ...]) -> None:
        self._heed(epoch)
        self._own(channels)

    async def unwatch_channels(self, epoch: int, channels: Mapping[str, int]) -> None:
        self._heed(epoch)
        for vchannel, owned_under in channels.items():
            self._left[vchannel] = max(owned_under, self._left.get(vchannel, 0))
            if self._owns(vchannel, owned_under):
                self._leave(vchannel)

    async def flush_segments(
        self, epoch: int, vchannel: str, segment_ids: tuple[SegmentID, ...], reason: FlushReason
    ) -> None:
        self._heed(epoch)
        self._note(vchannel, _Order(set(segment_ids), {reason.cause}, set(reason.waiting)))

    def _note(self, vchannel: str, order: _Order) -> None:
        self._orders.setdefault(vchannel, _Order()).add(order)
        self._ordered.set()

    def _heed(self, epoch: int) -> None:
        """Take orders of this epoch, and of none before it; what those left is forgotten.

        An order may arrive before the answer to the registration that it follows.
        """
        if epoch < self._epoch_heard:
            raise CommitRefused(f"an order of epoch {epoch}: epoch {self._epoch_heard} has begun")
        if epoch > self._epoch_heard:
            self._epoch_heard = epoch
            self._forget()

    def _forget(self) -> None:
        for reader in self._readers.values():
            reader.cancel()
        self._readers.clear()
        self._channels.clear()
        self._left.clear()
        self._orders.clear()
        self._ranges.forget_all()

    async def compact(self, epoch: int, order: CompactionOrder) -> None:
        self._compactions_of(epoch).take(order)

    async def cancel_compactions(self, epoch: int, plan_ids: tuple[int, ...]) -> None:
        self._compactions_of(epoch).cancel(plan_ids)

    def _compactions_of(self, epoch: int) -> Compactions:
        self._heed(epoch)
        if self._compactions is None or self._compactions.epoch != epoch:
            raise NotReady("the data node is registering; order again when it has")
        return self._compactions

    # the role's life

    async def run(self) -> None:
        """Serve until cancelled, or replaced; register again whenever something went wrong."""
        while True:
            try:
                await self._serve()
            except NodeReplaced as error:
                _log.error("this node ends", error=error.message)
                return
            except (ElanusError, CorruptLog, TrimmedLog, JobFailed, JobCancelled, OSError) as error:
                _log.warning("registering again", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(_RETRY_PAUSE_S)

    async def _serve(self) -> None:
        # Forget before registering: what datacoord tells the new owner may arrive before its answer does.
        # Readers may run already, of vchannels it told of since the last registration ended.
        self._forget()
        self._failed = asyncio.get_running_loop().create_future()
        loops: list[asyncio.Future[None]] = []
        try:
            registration = await self._datacoord.register_datanode(self.node_id)
            self._heed(registration.epoch)
            self._epoch = registration.epoch
            self._compactions = Compactions(self._epoch, self._datacoord, self._compaction_runner)
            self._own(registration.channels)
            loops += [asyncio.ensure_future(work) for work in (self._report(), self._work(), self._move_on())]
            await asyncio.wait([*loops, self._failed], return_when=asyncio.FIRST_COMPLETED)
            for done in (*loops, self._failed):
                if done.done():
                    done.result()
        finally:
            tasks = [*loops, *self._readers.values()]
            self._readers.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._compactions is not None:
                compactions, self._compactions = self._compactions, None
                await compactions.stop()
            self._failed.cancel()

    # following

    def _own(self, assignments: tuple[ChannelAssignment, ...]) -> None:
        """What is told may arrive twice, and late: only what is newer than all that is known counts."""
        new = [a for a in assignments if a.epoch > self._newest_epoch(a.vchannel)]
        self._channels |= {a.vchannel: ChannelProgress(a) for a in new}
        for pchannel in dict.fromkeys(pchannel_of(a.vchannel) for a in new):
            self._follow_anew(pchannel)

    def _newest_epoch(self, vchannel: str) -> int:
        channel = self._channels.get(vchannel)
        return max(self._left.get(vchannel, 0), channel.epoch if channel is not None else 0)

    def _owns(self, vchannel: str, epoch: int) -> bool:
        channel = self._channels.get(vchannel)
        return channel is not None and channel.epoch == epoch

    def _leave(self, vchannel: str) -> None:
        """Another follows it from now on. What a job writes of it will be refused."""
        del self._channels[vchannel]
        self._orders.pop(vchannel, None)
        self._ranges.forget(vchannel)
        pchannel = pchannel_of(vchannel)
        if pchannel in self._readers and all(pchannel_of(other) != pchannel for other in self._channels):
            self._readers.pop(pchannel).cancel()

    def _follow_anew(self, pchannel: str) -> None:
        """Read the pchannel from the oldest checkpoint of its vchannels on."""
        running = self._readers.pop(pchannel, None)
        if running is not None:
            running.cancel()
        self._rewind(pchannel)
        task = asyncio.create_task(self._follow(pchannel), name=f"follow {pchannel}")
        self._readers[pchannel] = task
        task.add_done_callback(self._reader_ended)

    def _reader_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._failed is None or self._failed.done():
            return
        error = task.exception()
        if error is not None:
            self._failed.set_exception(error)

    def _rewind(self, pchannel: str) -> bool:
        """Forget what has been read beyond the checkpoints. Whether there is anything to follow."""
        channels = [c for c in self._channels.values() if pchannel_of(c.vchannel) == pchannel]
        for channel in channels:
            self._channels[channel.vchannel] = ChannelProgress(channel.assignment)
        return bool(channels)

    async def _follow(self, pchannel: str) -> None:
        """Damage stops the vchannels of this pchannel alone, and is looked at again."""
        while self._rewind(pchannel):
            try:
                await self._read(pchannel)
            except CorruptLog as error:
                _log.error("log damaged", pchannel=pchannel, error=str(error), next_try_s=_DAMAGED_PAUSE_S)
                await asyncio.sleep(_DAMAGED_PAUSE_S)

    async def _read(self, pchannel: str) -> None:
        checkpoints = [c.checkpoint for c in self._channels.values() if pchannel_of(c.vchannel) == pchannel]
        first = min(checkpoints, key=lambda c: c.position)
        start = Checkpoint(min(c.ts for c in checkpoints), first.position, first.tick, first.epoch)
        packs: PackAssembler[LogEntry] = PackAssembler(start)
        reader = self._log.open_reader(pchannel, Position(start.position), headers_only=True)
        try:
            while True:
                for entry in await reader.read():
                    pack = packs.feed(entry.header, entry.position, entry.next, entry)
                    if pack is not None:
                        await self._take(pchannel, pack)
        finally:
            reader.close()

    async def _take(self, pchannel: str, pack: Pack[LogEntry]) -> None:
        dropped: dict[str, ChannelProgress] = {}  # a drop may be announced twice
        for entry in pack.entries:
            channel = self._channels.get(entry.header.vchannel)
            if channel is None:
                continue
            channel.take(entry.header, entry.payload_bytes)
            if entry.header.kind is MsgKind.DROP_COLLECTION:
                dropped[channel.vchannel] = channel
        pack_bytes = sum(entry.payload_bytes for entry in pack.entries)
        for channel in self._channels.values():
            if pchannel_of(channel.vchannel) == pchannel:
                channel.reach(pack.seek, pack.next_position, pack_bytes)
        self._news.set()
        for vchannel, channel in dropped.items():
            channel.ended = True
            await self._end(vchannel, channel.epoch)
            # Only now: a reader that is given up in between is followed by one that reads the drop again.
            self._channels.pop(vchannel, None)
            self._orders.pop(vchannel, None)

    async def _end(self, vchannel: str, epoch: int) -> None:
        """Commit the drop. Raises what the last of ten tries raised: the node then registers again."""
        for _ in range(_DROP_TRIES_MAX - 1):
            try:
                await self._datacoord.channel_dropped(epoch, vchannel)
            except CommitRefused:
                raise  # replaced: trying again changes nothing
            except ElanusError as error:
                _log.warning("drop not recorded; trying again", vchannel=vchannel, error=error.message)
                await asyncio.sleep(_RETRY_PAUSE_S)
            else:
                return
        await self._datacoord.channel_dropped(epoch, vchannel)

    # reporting (DataNodeTtMsg)

    async def _report(self) -> None:
        """Without news too: a coordinator that was replaced meanwhile then says that it knows us not."""
        reported: dict[str, tuple[int, float]] = {}
        loop = asyncio.get_running_loop()
        spoke_ms = loop.time() * 1000
        while True:
            news = await self._hear_news()
            now_ms = loop.time() * 1000
            channels = self._channels.values() if news else ()
            due = [c for c in channels if self._is_due(c, reported.get(c.vchannel), now_ms)]
            if due or now_ms - spoke_ms >= self._policy.idle_report_ms:
                spoke_ms = now_ms
                await self._datacoord.report_ticks(self._epoch, tuple(c.tick() for c in due))
                reported |= {c.vchannel: (c.seek.ts, now_ms) for c in due}
            await asyncio.sleep(self._policy.report_ms / 1000)

    async def _hear_news(self) -> bool:
        """Whether there were any before it was time for a word without."""
        try:
            async with asyncio.timeout(self._policy.idle_report_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def _is_due(self, channel: ChannelProgress, last: tuple[int, float] | None, now_ms: float) -> bool:
        if channel.ended:
            return False
        if last is None:
            return True
        tick, reported_ms = last
        if channel.seek.ts == tick:
            return False
        return channel.has_pending() or now_ms - reported_ms >= self._policy.idle_report_ms

    # flushing

    async def _work(self) -> None:
        while True:
            rests_s = [self._ranges.rest_s(vchannel) for vchannel in self._orders]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(rests_s, default=None)):
                    await self._ordered.wait()
            self._ordered.clear()
            due = {v: order for v, order in self._orders.items() if not self._ranges.rest_s(v)}
            for vchannel in due:
                del self._orders[vchannel]
            if due:
                await self._flush(due)

    async def _flush(self, orders: dict[str, _Order]) -> None:
        """Write one range of each vchannel; what a range leaves, and one that failed, is ordered again."""
        async with self._flushing:
            attempts = await self._open_attempts([v for v in orders if self._goes_on(v)])
            size_max_bytes = self._policy.range_size_max_bytes
            channels = {v: self._channels[v] for v in attempts if self._goes_on(v)}
            ranges = {v: channel.next_range(size_max_bytes) for v, channel in channels.items()}
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
                    if self._goes_on(vchannel) and self._owns(vchannel, epochs[vchannel]):
                        self._note(vchannel, order)  # for when it has rested
                    continue
                # A segment is complete when everything up to its seal is in binlogs, and not before.
                flushed = order.segment_ids if range_.is_whole else set()
                attempt = attempts.pop(vchannel)
                await self._commit(vchannel, epochs[vchannel], range_, outcome, flushed, attempt)
                if not range_.is_whole and self._goes_on(vchannel):
                    self._note(vchannel, order)
            if unused := tuple(number for number in attempts.values() if number != NO_ATTEMPT):
                await self._datacoord.close_attempts(unused)

    async def _open_attempts(self, vchannels: Sequence[str]) -> dict[str, int]:
        """A number for the range of each vchannel; none where there is nothing to write."""
        if not any(self._channels[v].has_pending() for v in vchannels):
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
        )
        try:
            await self._datacoord.commit_range(commit)
        except CommitRefused:
            if self._goes_on(vchannel) and self._owns(vchannel, epoch):
                raise
            return  # its collection was dropped meanwhile, or it is another's now
        if self._owns(vchannel, epoch):
            self._channels[vchannel].committed(range_.end)
            self._news.set()

    def _goes_on(self, vchannel: str) -> bool:
        channel = self._channels.get(vchannel)
        return channel is not None and not channel.ended

    async def _move_on(self) -> None:
        """Checkpoints follow the tick, so that the log can be trimmed behind them.

        Those of idle vchannels without a job, the others when their oldest write has waited long enough.
        """
        while True:
            await asyncio.sleep(self._policy.holding_checkpoint_ms / 2000)
            behind = [
                c.vchannel
                for c in self._channels.values()
                if self._is_behind(c) and not self._ranges.rest_s(c.vchannel)
            ]
            due = {vchannel: _Order(causes={"age"}) for vchannel in behind}
            if due:
                await self._flush(due)

    def _is_behind(self, channel: ChannelProgress) -> bool:
        if channel.has_pending():
            return channel.waiting_ms() >= self._policy.sync_age_ms
        holds = channel.held_bytes >= HELD_MAX_BYTES
        may_ms = self._policy.holding_checkpoint_ms if holds else self._policy.idle_checkpoint_ms
        return physical_ms(channel.seek.ts) - physical_ms(channel.checkpoint.ts) >= may_ms
