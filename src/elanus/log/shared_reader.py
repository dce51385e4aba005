"""One reader of a pchannel, and the vchannels that are followed through it.

Each entry is read once and assembled into packs once. A pack's messages go to their vchannels; its tick goes
to the reader's tick line, which all of them share. The work at a tick depends on the messages in the pack,
not on the number of vchannels.

Two readers of one pchannel are at the same place when they have read the same entries. They then have the
same tick and epoch in force, and one can take over the vchannels of the other: no message is left out, and
none comes twice.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from elanus.core.catalog import Checkpoint
from elanus.core.messages import MsgKind
from elanus.core.packs import Pack, PackAssembler
from elanus.core.timestamps import Timestamp
from elanus.log.port import LogEntry, LogReader, PatientReader, Position, RewoundLog, rewound_text
from elanus.log.tick_line import TickLine, Watcher

READ_BYTES_MAX = 4 * 1024 * 1024
"""How much of the log is read at once while catching up."""
ENTRIES_AT_ONCE = 1024
"""How many of its entries are processed before other tasks run: some milliseconds."""
EntryPack = Pack[LogEntry]


class LogSource(Protocol):
    """The part of a log that a dispatcher uses: see `elanus.log.port.Log`."""

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader: ...
    def missing_from(self, pchannel: str, position: Position) -> Position | None: ...
    async def sync(self, pchannel: str) -> Position: ...


class PackListener(Protocol):
    """The follower of a vchannel. Called on the dispatcher's loop, in steps that nothing interrupts."""

    def take(self, packs: Sequence[EntryPack]) -> None:
        """Take the next packs that hold messages of the vchannel, at least one.

        The subscription's tick moves after this call, and moves alone when a pack has none of its messages.
        """
        ...

    def failed(self, error: Exception) -> None:
        """Nothing more follows: the log could not be read, or `take` raised this."""
        ...


class Subscription:
    """One vchannel that is followed from a checkpoint on. Its values may be read by any thread.

    ``start``: messages before its position, or up to its timestamp, are not handed on. ``late_messages``:
    those that were ignored because they came after their tick.
    """

    def __init__(self, vchannel: str, start: Checkpoint, listener: PackListener, line: TickLine) -> None:
        self.vchannel = vchannel
        self.start = start
        self.listener = listener
        self.late_messages = 0
        self.reader: SharedReader | None = None
        """The reader that serves it; None once it has ended."""
        self._line = line
        self._unread_bytes = line.read_bytes

    @property
    def ts(self) -> Timestamp:
        """Every message up to this timestamp has been taken."""
        return max(self.start.ts, self._line.ts)

    @property
    def seek(self) -> Checkpoint:
        """Where to start in order to get everything that has not been taken. Its ``ts`` is at most `ts`."""
        return self._line.seek if self._has_passed_start() else self.start

    @property
    def is_at_line(self) -> bool:
        """Whether ``seek`` is that of its reader's line, now and until it ends."""
        return self.reader is not None and self._has_passed_start()

    @property
    def stop(self) -> int:
        """The position after the last tick."""
        return self._line.stop if self._has_passed_start() else self.start.position

    @property
    def read_bytes(self) -> int:
        """The payloads, of all vchannels, that its readers have passed since it began."""
        return self._line.read_bytes - self._unread_bytes

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher`` after the next tick. May be called by any thread."""
        while not self._line.watch(self, watcher):
            pass  # the line has ended since it was found: the subscription has another now

    def close(self) -> None:
        """Follow the vchannel no more; `ts` stays where it is. May be called from within `take`."""
        if self.reader is not None:
            self.reader.remove(self)
            self.reader, self._line = None, self._line.stopped()

    def fail(self, error: Exception) -> None:
        """As `close`, and report why."""
        self.close()
        self.listener.failed(error)

    def wants(self, entry: LogEntry) -> bool:
        return entry.position >= self.start.position and entry.header.ts > self.start.ts

    def move(self, reader: SharedReader) -> None:
        """Belong to this reader from now on, which is as far as the one before."""
        passed = self.read_bytes
        self.reader, self._line = reader, reader.line
        self._unread_bytes = self._line.read_bytes - passed

    def _has_passed_start(self) -> bool:
        return self._line.ts >= self.start.ts and self._line.stop >= self.start.position


class SharedReader:
    """Belongs to one event loop. ``position``: every entry before it has been read.

    ``goal``: returns the reader to catch up with, if there is one ahead. ``ticked``: called after each step
    in which the line has moved. ``weigh``: called with each change of ``waiting_bytes``.
    """

    def __init__(
        self,
        pchannel: str,
        start: Checkpoint,
        goal: Callable[[SharedReader], SharedReader | None],
        ticked: Callable[[], None],
        weigh: Callable[[int], None],
    ) -> None:
        self.pchannel = pchannel
        self.position = start.position
        self.line = TickLine(start)
        self.task: asyncio.Task[None] | None = None
        self._goal = goal
        self._ticked = ticked
        self._weigh = weigh
        self._packs: PackAssembler[LogEntry] = PackAssembler(replace(start, ts=start.tick))
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._ahead: list[Subscription] = []
        """Those whose start has not been reached, the nearest last: an entry is compared with that one."""
        self._count = 0
        self._read_bytes = 0
        self.waiting_bytes = 0
        """Payloads in memory that wait for their tick."""

    def __len__(self) -> int:
        """How many subscriptions it serves."""
        return self._count

    def add(self, subscription: Subscription) -> None:
        """Serve a subscription that begins here or ahead."""
        subscription.reader = self
        self._subscriptions.setdefault(subscription.vchannel, []).append(subscription)
        self._count += 1
        if subscription.start.position > self.position:
            insort(self._ahead, subscription, key=lambda s: -s.start.position)

    def remove(self, subscription: Subscription) -> None:
        """Serve a subscription no more; a reader without any stops."""
        others = self._subscriptions[subscription.vchannel]
        others.remove(subscription)
        if subscription.start.position > self.position and subscription in self._ahead:
            self._ahead.remove(subscription)
        self._count -= 1
        if not others:
            del self._subscriptions[subscription.vchannel]
        if not self._count and self.task is not None:
            self.task.cancel()

    def subscriptions(self) -> Sequence[Subscription]:
        return [s for group in self._subscriptions.values() for s in group]

    async def run(self, log: LogSource, *, headers_only: bool) -> None:
        """Read until another reader takes over, or it is cancelled. Raises what `LogReader.read` raises."""
        start = Position(self.position)
        reader = (
            log.open_reader(self.pchannel, start, headers_only=True)
            if headers_only
            else log.open_reader(self.pchannel, start)
        )
        read = reader.read_to_tick if isinstance(reader, PatientReader) else reader.read
        try:
            continues = True
            while continues:
                entries = await read(READ_BYTES_MAX)
                for begin in range(0, len(entries), ENTRIES_AT_ONCE):
                    continues = self._take(entries[begin : begin + ENTRIES_AT_ONCE])
                    await asyncio.sleep(0)  # yield: a reader that catches up may never have to wait
                    if not continues:
                        break
        finally:
            reader.close()

    def _take(self, entries: Sequence[LogEntry]) -> bool:
        """Hand on what these entries complete. Returns whether this reader continues."""
        goal = self._goal(self)
        packs: list[EntryPack] = []
        for entry in entries:
            if goal is not None and entry.position >= goal.position:
                self._deliver(packs)
                packs = []
                if self._join(goal):
                    return False
                goal = None
            pack = self._feed(entry)
            if pack is not None:
                packs.append(pack)
        self._deliver(packs)
        return goal is None or self.position < goal.position or not self._join(goal)

    def _feed(self, entry: LogEntry) -> EntryPack | None:
        header = entry.header
        while self._ahead and self._ahead[-1].start.position <= entry.position:
            self._reach(self._ahead.pop(), entry)
        self.position = entry.next
        self._read_bytes += entry.payload_bytes
        if header.kind in (MsgKind.TIME_TICK, MsgKind.EPOCH):
            pack = self._packs.feed(header, entry.position, entry.next, entry)
            if pack is not None:
                self._hold(-_held_bytes(pack.entries))
            return pack
        subscribed = [
            s for s in self._subscriptions.get(header.vchannel, ()) if entry.position >= s.start.position
        ]
        if subscribed:
            late, waiting = self._packs.late_messages, len(self._packs)
            self._packs.feed(header, entry.position, entry.next, entry)
            if len(self._packs) > waiting:
                self._hold(_held_bytes([entry]))
            for subscription in subscribed:
                subscription.late_messages += self._packs.late_messages - late
        return None

    def _reach(self, subscription: Subscription, entry: LogEntry) -> None:
        """Fail it if the log skips its start: it was put back to an older copy, and went on."""
        start = subscription.start.position
        if self.position < start < entry.position:
            subscription.fail(RewoundLog(rewound_text(self.pchannel, start, self.position)))

    def _hold(self, change_bytes: int) -> None:
        self.waiting_bytes += change_bytes
        self._weigh(change_bytes)

    def _deliver(self, packs: Sequence[EntryPack]) -> None:
        if not packs:
            return
        parts: dict[str, list[tuple[EntryPack, list[LogEntry]]]] = {}
        for pack in packs:
            for vchannel, entries in _by_vchannel(pack.entries).items():
                parts.setdefault(vchannel, []).append((pack, entries))
        for vchannel, part in parts.items():
            for subscription in tuple(self._subscriptions.get(vchannel, ())):
                self._hand_on(subscription, part)
        self.line.advance(packs[-1].seek, packs[-1].next_position, self._read_bytes)
        self._ticked()

    def _hand_on(self, subscription: Subscription, part: Sequence[tuple[EntryPack, list[LogEntry]]]) -> None:
        wanted = [(pack, tuple(filter(subscription.wants, entries))) for pack, entries in part]
        own = [replace(pack, entries=entries) for pack, entries in wanted if entries]
        if not own or subscription.reader is not self:
            return
        try:
            subscription.listener.take(own)
        except Exception as error:  # noqa: BLE001 - it concerns this vchannel only
            subscription.fail(error)

    def _join(self, other: SharedReader) -> bool:
        """Serve this reader's subscriptions and the other's from one of the two; True: from the other.

        Nothing happens, and the result is False, if they do not agree on the tick in force: one of them
        began at a checkpoint that names another, which the next tick corrects.
        """
        if self._packs.in_force != other._packs.in_force:
            return False
        ends = self._count <= other._count
        if ends:
            other._take_over(self)
        else:
            self._take_over(other)
        return ends

    def _take_over(self, other: SharedReader) -> None:
        self._packs.take_over(other._packs)
        self._hold(_held_bytes(self._packs.waiting) - self.waiting_bytes)
        self.line.hold_back(other.line)
        for subscription in other.subscriptions():
            other.hand_over(subscription, self)
        other.move_watchers()

    def hand_over(self, subscription: Subscription, other: SharedReader) -> None:
        """Have the other reader serve the subscription; `move_watchers` follows."""
        self.remove(subscription)
        subscription.move(other)
        other.add(subscription)

    def move_watchers(self) -> None:
        """End the line. Those who watch it watch the lines of their subscriptions from now on."""
        for owner, watcher in self.line.end():
            assert isinstance(owner, Subscription)
            owner.watch(watcher)


def _held_bytes(entries: Iterable[LogEntry]) -> int:
    return sum(entry.payload_bytes for entry in entries if entry.payload is not None)


def _by_vchannel(entries: Iterable[LogEntry]) -> dict[str, list[LogEntry]]:
    found: dict[str, list[LogEntry]] = {}
    for entry in entries:
        found.setdefault(entry.header.vchannel, []).append(entry)
    return found
