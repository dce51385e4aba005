"""Following one vchannel: from a checkpoint in its log to growing segments and deletes, pack by pack.

A follower begins with the binlogs of segments that are not finished, then follows the log from the
checkpoint. The process reads each pchannel once (`elanus.log.dispatcher`), and the follower takes the packs
that hold messages of its vchannel. Their rows go to growing segments; everything else (deletes, dropped
partitions) is a `PackEffect`. Packs are taken in one after the other: the next one's rows are added only when
the effect of the one before has been applied, because adding rows replaces blocks that deletes are applied
to. While any pack is not, the follower's tick stays before it, however far the pchannel has been read.

It belongs to the loop thread. Rows are not copied out of the log's memory unless keeping them would keep
alive a buffer much larger than the rows themselves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from elanus.api.querynode import UnrecoveredSegment, WatchVchannel
from elanus.core.errors import ElanusError
from elanus.core.faults import LogFault
from elanus.core.ids import FieldID, PartitionID, SegmentID
from elanus.core.messages import WRITES, DeleteMessage, MsgKind, UpsertMessage
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp
from elanus.index import IndexSpec
from elanus.log.dispatcher import Dispatcher
from elanus.log.port import LogClosed, LogEntry
from elanus.log.shared_reader import EntryPack, Subscription
from elanus.log.tick_line import Watcher
from elanus.querynode.arrivals import Arrivals, Arrived, Intake
from elanus.querynode.coverage import Coverage
from elanus.querynode.growing import GrowingBlock, GrowingSegment
from elanus.querynode.growing_segments import GrowingSegments
from elanus.querynode.interim import Interim
from elanus.querynode.recovery import Recovered
from elanus.rpc.tracing import untraced

_WITH_ROWS = frozenset({MsgKind.INSERT, MsgKind.UPSERT})
_log = structlog.get_logger("querynode")


@dataclass(frozen=True, slots=True)
class PackEffect:
    """The effect of packs beyond adding rows.

    ``tick``: the end of the last pack; ``position``: what is before it in the log is not needed after this.
    ``deleting``: the messages that delete, in order.
    """

    tick: Timestamp
    position: int
    deleting: tuple[DeleteMessage | UpsertMessage, ...]
    dropped_partitions: frozenset[PartitionID]
    drops_collection: bool


@dataclass(frozen=True, slots=True)
class _Turn:
    """Work on the growing blocks. ``done``: whether it was done in its turn."""

    work: Callable[[], Awaitable[None]]
    done: asyncio.Future[bool]

    async def take(self) -> None:
        try:
            await self.work()
        except Exception as error:  # noqa: BLE001 - raised where the work was asked for
            self.end(error)
        except BaseException:
            self.end(taken=False)
            raise
        else:
            self.end()

    def end(self, error: Exception | None = None, *, taken: bool = True) -> None:
        if self.done.done():
            return  # the caller has given up
        if error is None:
            self.done.set_result(taken)
        else:
            self.done.set_exception(error)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The part of packs that a follower takes. ``last``: the last pack."""

    arrivals: Arrivals
    last: EntryPack
    dropped: frozenset[PartitionID]
    drops_collection: bool


class Absorber(Protocol):
    """The collection of a follower, as the follower sees it: called on the loop thread."""

    async def absorb(self, follower: Follower, effect: PackEffect) -> None:
        """Apply an effect and show it to reads. The follower's tick moves past it afterwards."""
        ...

    def queued(self, follower: Follower) -> None:
        """The follower has taken packs that it applies later."""
        ...

    def exchanged(self, follower: Follower, gone: Sequence[GrowingBlock]) -> None:
        """A larger block has taken the place of these."""
        ...

    def absorbed(self, follower: Follower) -> None:
        """The tick has moved past an effect."""
        ...

    def ticked(self, follower: Follower) -> bool:
        """Called at each tick as long as it returns True, beginning with the first."""
        ...

    def failed(self, follower: Follower) -> None:
        """Nothing more follows."""
        ...


class Follower:
    """Follows one vchannel: an `elanus.log.shared_reader.PackListener`.

    ``schema``: of what is held of the rows; ``written_schema``: of the log's, None: the same.
    """

    def __init__(
        self,
        request: WatchVchannel,
        schema: CollectionSchema,
        specs: Mapping[FieldID, IndexSpec],
        coverage: Coverage,
        absorber: Absorber,
        intake: Intake,
        interim: Callable[[Callable[[], None]], Interim],
        written_schema: CollectionSchema | None = None,
    ) -> None:
        self.vchannel = request.vchannel
        self.coverage = coverage
        self.growing = GrowingSegments()
        self.excluded = set(request.excluded)
        self.failure: str | None = None
        self.log_fault: LogFault | None = None
        """The failure, if the log could not be read."""
        self._damaged: dict[SegmentID, UnrecoveredSegment] = {}
        self._collection_id = request.collection_id
        self._checkpoint = request.checkpoint
        self._schema = schema
        self._written_schema = written_schema or schema
        self._specs = specs
        self._absorber = absorber
        self._intake = intake
        self._interim = interim(self._continue)
        self._subscription: Subscription | None = None
        self._packs: deque[Sequence[EntryPack]] = deque()
        """Taken and not yet applied; the first ones are being applied."""
        self._packs_bytes = 0
        self._turns: deque[_Turn] = deque()
        self._is_retired = False
        self._held: tuple[Timestamp, int] | None = None
        """The tick and position before the first of them."""
        self._task: asyncio.Task[None] | None = None

    @property
    def started(self) -> bool:
        return self._subscription is not None

    @property
    def is_busy(self) -> bool:
        """Whether packs have been taken whose effects are not applied yet."""
        return self._held is not None

    @property
    def start_position(self) -> int:
        """Where in the log it began."""
        return self._checkpoint.position

    @property
    def has_moved(self) -> bool:
        """Whether it has read anything from the log."""
        return self.tick > self._checkpoint.ts

    @property
    def tick(self) -> Timestamp:
        """Everything up to this timestamp has been taken in and applied. May be read by any thread."""
        # In this order: a pack is held before the line moves past it.
        read = self._checkpoint.ts if self._subscription is None else self._subscription.ts
        held = self._held
        return read if held is None else min(read, held[0])

    @property
    def position(self) -> int:
        """The log before it is not needed any more."""
        if self._held is not None:
            return self._held[1]
        seek = self._checkpoint if self._subscription is None else self._subscription.seek
        return seek.position

    @property
    def needs_log(self) -> bool:
        """Whether it reads the log, or is about to."""
        has_ended = self._subscription is not None and self._subscription.reader is None
        return self.failure is None and not has_ended

    @property
    def is_at_its_reader(self) -> bool:
        """Whether ``position`` is that of its reader's tick line, until packs are taken."""
        return self._held is None and self._subscription is not None and self._subscription.is_at_line

    @property
    def late_messages(self) -> int:
        return 0 if self._subscription is None else self._subscription.late_messages

    @property
    def growing_bytes(self) -> int:
        """Bytes of the growing rows, of those that are being copied, and of packs not applied yet."""
        return self.growing.batch_bytes + self._interim.making_bytes + self._packs_bytes

    def start(self, dispatcher: Dispatcher, recovered: Recovered) -> None:
        """Begin to follow; ``recovered``: the segments of the request's binlogs."""
        self._damaged = {s.segment_id: s for s in recovered.damaged}
        self.growing = GrowingSegments(
            s for s in recovered.segments if self._wants(s.segment_id, s.partition_id)
        )
        self._subscription = dispatcher.follow(self.vchannel, self._checkpoint, self)
        self._subscription.watch(self._ticked)
        self._interim.consider(self.growing.values())

    def unrecovered(self) -> tuple[UnrecoveredSegment, ...]:
        """Return the segments whose binlogs could not be read. None of their rows are taken in."""
        return tuple(
            s
            for s in self._damaged.values()
            if s.segment_id not in self.excluded and self.coverage.takes(s.partition_id)
        )

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher`` after the next tick of the vchannel. May be called by any thread."""
        if self._subscription is not None:
            self._subscription.watch(watcher)

    def searched(self) -> None:
        """The collection is searched again: make what only searches need."""
        self._interim.consider(self.growing.values())

    async def between_packs(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do some work on the growing blocks while no others take their places. Raises what it raises."""
        if not self._replaces_blocks:
            await work()
            return
        turn = _Turn(work, asyncio.get_running_loop().create_future())
        self._turns.append(turn)
        self._continue()
        if not await turn.done:
            await work()

    @property
    def _replaces_blocks(self) -> bool:
        return self.failure is None and not self._is_retired

    def _end_turns(self) -> None:
        """Blocks are no longer replaced, so work on them need not wait."""
        while self._turns:
            self._turns.popleft().end(taken=False)

    def retire(self) -> None:
        """Take in nothing any more; may be called from within `absorb`."""
        self._is_retired = True
        self._end_turns()
        if self._subscription is not None:
            self._subscription.close()
        self._interim.retire()
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """As `retire`, and wait until nothing runs any more."""
        self.retire()
        await self._interim.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def take(self, packs: Sequence[EntryPack]) -> None:
        if self._held is None:
            self._held = self.tick, self.position
        self._packs.append(packs)
        self._packs_bytes += _payload_bytes(packs)
        self._absorber.queued(self)
        self._continue()

    def _continue(self) -> None:
        if self._task is None or self._task.done():
            self._task = untraced(self._apply(), f"apply {self.vchannel}")

    def failed(self, error: Exception) -> None:
        if isinstance(error, LogClosed):
            return  # the process is ending
        unexpected = None if isinstance(error, (LogFault, ElanusError)) else error
        _log.error(
            "vchannel not followed: reading failed",
            vchannel=self.vchannel,
            error=str(error),
            exc_info=unexpected,
        )
        self.failure = f"{type(error).__name__}: {error}"
        self.log_fault = error if isinstance(error, LogFault) else None
        self._end_turns()
        self._absorber.failed(self)

    async def _apply(self) -> None:
        try:
            while self._packs or self._interim.is_ready or self._turns:
                if self._turns:
                    await self._turns.popleft().take()
                    continue
                if self._interim.is_ready:
                    self._absorber.exchanged(self, await self._interim.exchange(self.growing))
                    continue
                effect = await self._take_in(self._packs[0])
                await self._absorber.absorb(self, effect)
                self._packs_bytes -= _payload_bytes(self._packs.popleft())
                self._held = (effect.tick, effect.position) if self._packs else None
                self._absorber.absorbed(self)
        except Exception as error:  # noqa: BLE001 - nobody awaits this task: the error ends the following
            self._give_up(error)

    def _ticked(self) -> bool:
        try:
            return self._absorber.ticked(self)
        except Exception as error:  # noqa: BLE001 - it concerns this vchannel, not the others of the reader
            self._give_up(error)
            return False

    def _give_up(self, error: Exception) -> None:
        if self._subscription is not None:
            self._subscription.close()
        self.failed(error)

    def release(self, segment_ids: set[SegmentID]) -> list[GrowingSegment]:
        """Permanently release segments that are served in another form; return those that were held."""
        self.excluded |= segment_ids
        return self.growing.remove(segment_ids)

    def restrict(self, coverage: Coverage) -> list[GrowingSegment]:
        """Reduce what is taken in from now on; return the segments that this removes."""
        self.coverage = coverage
        gone = [s.segment_id for s in self.growing.values() if not coverage.takes(s.partition_id)]
        return self.growing.remove(gone)

    def _wants(self, segment_id: SegmentID, partition_id: PartitionID) -> bool:
        if segment_id in self.excluded or segment_id in self._damaged:
            return False
        return self.coverage.takes(partition_id)

    async def _take_in(self, packs: Sequence[EntryPack]) -> PackEffect:
        """Add the rows of packs to their growing segments; return what else the packs do.

        Rows may come before the deletes of earlier packs: a delete only concerns rows older than itself.
        """
        chosen = self._choose(packs)
        return self._adopt(chosen, await self._intake.prepare(chosen.arrivals))

    def _choose(self, packs: Sequence[EntryPack]) -> _Chosen:
        """Choose by their headers what to take from packs. Changes nothing."""
        coverage = self.coverage
        entries: list[LogEntry] = []
        segments: dict[SegmentID, GrowingSegment] = {}
        dropped: set[PartitionID] = set()
        drops_collection = False
        for pack in packs:
            dropped_here: set[PartitionID] = set()
            for entry in pack.entries:
                header = entry.header
                if header.kind in _WITH_ROWS:
                    segment_id = header.segment_id
                    if segment_id not in self.excluded and coverage.takes(header.partition_id):
                        if segment_id not in segments:
                            segments[segment_id] = self._segment(segment_id, header.partition_id)
                    elif header.kind is MsgKind.INSERT:
                        continue
                if header.kind in WRITES:
                    entries.append(entry)
                drops_collection |= header.kind is MsgKind.DROP_COLLECTION
                if header.kind is MsgKind.DROP_PARTITION:
                    dropped_here.add(header.partition_id)
            coverage = coverage.without(dropped_here)
            dropped |= dropped_here
        arrivals = Arrivals(entries, segments, self._collection_id, self._written_schema)
        return _Chosen(arrivals, packs[-1], frozenset(dropped), drops_collection)

    def _adopt(self, chosen: _Chosen, arrived: Arrived) -> PackEffect:
        """Give the segments their new blocks, unless they were released while these were prepared."""
        for segment_id, blocks in arrived.grown.items():
            segment = chosen.arrivals.segments[segment_id]
            if self._wants(segment_id, segment.partition_id):
                self.growing.put(segment, blocks)
        self._interim.consider(self.growing[s] for s in arrived.grown if s in self.growing)
        self.coverage = self.coverage.without(chosen.dropped)
        last = chosen.last
        return PackEffect(
            last.end_ts, last.seek.position, arrived.deleting, chosen.dropped, chosen.drops_collection
        )

    def _segment(self, segment_id: SegmentID, partition_id: PartitionID) -> GrowingSegment:
        segment = self.growing.get(segment_id)
        return segment or GrowingSegment(segment_id, partition_id, self._schema, self._specs)


def _payload_bytes(packs: Sequence[EntryPack]) -> int:
    return sum(entry.payload_bytes for pack in packs for entry in pack.entries)
