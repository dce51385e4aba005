"""Turn a stream of messages and ticks into packs: what consumers of a pchannel may act on, and when.

Messages of several proxies are in a pchannel in no order of time. A tick at T means that no message at or
below T will follow, so at the tick all messages up to T have been read, and are handed on as one *pack*
(begin, end], in order of time. Messages later than T wait for a later pack.

Every consumer must classify the same messages as *late*, or they would disagree on what exists. The rules:

* A message at or below the tick in force at its position is late: dropped, and counted.
* Ticks never go back: one that is not above the tick in force is ignored.
* An epoch mark larger than the epoch in force begins a new epoch; ticks of a smaller one are ignored.

A pack ends with a `Checkpoint`: the position from which to read in order to get all later packs again.
Messages later than the tick may precede it in the log, so this is the position of the oldest of them,
together with the tick and the epoch in force there. A reader that starts there skips the contents of earlier
packs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from elanus.core.catalog import Checkpoint
from elanus.core.messages import MsgKind
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp

T = TypeVar("T")

ORIGIN = Checkpoint(ts=NO_TIMESTAMP, position=0, tick=NO_TIMESTAMP, epoch=0)
"""The beginning of a pchannel."""


class Stamped(Protocol):
    """The properties of a message that matter here; a log entry's header has them."""

    @property
    def kind(self) -> MsgKind: ...

    @property
    def ts(self) -> Timestamp: ...

    @property
    def vchannel(self) -> str: ...

    @property
    def rows(self) -> int: ...

    @property
    def epoch(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Pack(Generic[T]):
    """All messages with begin_ts < ts ≤ end_ts, in order of ts, those of one ts in the log's order.

    ``next_position`` is the position after the tick that ended it. ``seek`` is where a reader starts in order
    to get the packs after this one.
    """

    begin_ts: Timestamp
    end_ts: Timestamp
    entries: tuple[T, ...]
    next_position: int
    seek: Checkpoint


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[T]):
    """A message later than every tick so far, with the tick and the epoch in force at its position."""

    ts: Timestamp
    position: int
    tick: Timestamp
    epoch: int
    item: T


class PackAssembler(Generic[T]):
    """Takes a pchannel's entries in order and returns a pack at each valid tick.

    ``vchannels``: only their messages go into packs, count as late or hold the seek position back;
    ``None``: all. The first entry is the one at ``start.position``; the first pack begins at ``start.ts``.
    """

    def __init__(self, start: Checkpoint = ORIGIN, vchannels: Iterable[str] | None = None) -> None:
        self._vchannels: Collection[str] | None = None if vchannels is None else frozenset(vchannels)
        self._through = start.ts
        self._tick = start.tick
        self._epoch = start.epoch
        self._waiting: list[_Waiting[T]] = []
        self.late_messages = 0
        self.late_rows = 0

    @property
    def waiting(self) -> Sequence[T]:
        """The items held for packs to come, in the order of the log."""
        return [w.item for w in self._waiting]

    def __len__(self) -> int:
        """How many messages wait for their tick."""
        return len(self._waiting)

    @property
    def in_force(self) -> tuple[Timestamp, int]:
        """The tick and the epoch in force: the same for all assemblers that are at the same position."""
        return self._tick, self._epoch

    def take_over(self, other: PackAssembler[T]) -> None:
        """Hold what ``other`` holds too, a message that both hold once.

        Both are at the same position, with the same tick and epoch in force.
        """
        assert other.in_force == self.in_force, f"assemblers differ: {other.in_force}, {self.in_force}"
        waiting = {w.position: w for w in (*self._waiting, *other._waiting)}
        self._waiting = [waiting[position] for position in sorted(waiting)]

    def feed(self, header: Stamped, position: int, next_position: int, item: T) -> Pack[T] | None:
        """Take the next entry of the pchannel; ``item`` is what a pack will hold for it."""
        if header.kind is MsgKind.TIME_TICK:
            return self._take_tick(header, next_position)
        if header.kind is MsgKind.EPOCH:
            self._epoch = max(self._epoch, header.epoch)
        elif self._vchannels is None or header.vchannel in self._vchannels:
            self._take_message(header, position, item)
        return None

    def _take_message(self, header: Stamped, position: int, item: T) -> None:
        if header.ts <= self._tick:
            self.late_messages += 1
            self.late_rows += header.rows
        elif header.ts > self._through:
            self._waiting.append(_Waiting(header.ts, position, self._tick, self._epoch, item))

    def _take_tick(self, header: Stamped, next_position: int) -> Pack[T] | None:
        if header.epoch < self._epoch or header.ts <= self._tick:
            return None
        self._tick = header.ts
        if header.ts <= self._through:
            return None
        ready = sorted((w for w in self._waiting if w.ts <= header.ts), key=lambda w: w.ts)
        self._waiting = [w for w in self._waiting if w.ts > header.ts]
        begin, self._through = self._through, header.ts
        return Pack(begin, header.ts, tuple(w.item for w in ready), next_position, self._seek(next_position))

    def _seek(self, next_position: int) -> Checkpoint:
        if self._waiting:
            oldest = self._waiting[0]
            return Checkpoint(self._through, oldest.position, oldest.tick, oldest.epoch)
        return Checkpoint(self._through, next_position, self._tick, self._epoch)
