"""The log under simulation: `elanus.log.memory` behind a disk that is slow, fills up, and loses power.

Appends to a pchannel become visible in the order they were made, each after a while, whether or not somebody
still waits for them. A power loss destroys whatever was not required to be durable and everything in flight.
Every entry that becomes visible is shown to an observer: the truth about the run is the content of the log,
read by separate rules (`elanus.sim.truth`).

A log that takes fences is as strict as that of a cluster (`elanus.log.jetstream.writer`): a fence concerns
the writers that have a message in the pchannel, so one that has none puts an opening there and then confirms
its session, before its first append and after a trim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from elanus.core.errors import DiskFull, NoSession
from elanus.core.ids import NodeID
from elanus.log.memory import MemoryLog
from elanus.log.port import Appender, LogEntry, LogReader, NewEntry, Position
from elanus.sim.chance import Chance
from elanus.sim.incarnation import Life, working_for
from elanus.sim.scenario import FaultKind

_ARRIVES, _STRAGGLES = 0.3, 0.8
_COUNTED_OUT = "the others have counted this node out"
_STRAGGLES_FOR_S = 2.0
_USUAL_S = 0.003
Observer = Callable[[str, LogEntry], None]


class _Tape(MemoryLog):
    """A log whose tail can be cut off."""

    def last(self, pchannel: str) -> LogEntry:
        return self._stream(pchannel).entries[-1]

    def cut(self, pchannel: str, end: Position) -> None:
        """Remove everything from this position on."""
        self._stream(pchannel).cut(end)


class _NotOpen(Exception):
    """No fence would follow a message of the writer: there is none, or it is trimmed."""


@dataclass(frozen=True, slots=True)
class _Last:
    """A writer's last message in a pchannel, which may be an opening or a fence."""

    position: Position
    is_fence: bool = False


@dataclass(slots=True)
class _Append:
    life: Life
    entries: Sequence[NewEntry]
    durable: bool
    done: asyncio.Future[list[Position]]
    straggles: bool = False
    writer: NodeID | None = None


class SimLog:
    """The simulated log, one per run; each life uses it through a `handle`."""

    def __init__(self, chance: Chance, observe: Observer, note: Callable[[str], None]) -> None:
        self._chance = chance
        self._note = note
        self._random = chance.stream("log")
        self._delays = chance.delays("log delays", _USUAL_S)
        self._observe = observe
        self._tape = _Tape()
        self._queues: dict[str, list[_Append]] = {}
        self._writers: dict[str, asyncio.Task[None]] = {}
        self._durable: dict[str, Position] = {}
        self._held: dict[Life, list[tuple[str, _Append]]] = {}
        self._full_until_s: dict[str, float] = {}
        self._delayed_until_s: dict[str, float] = {}
        self._outages = 0
        self.is_fencing = False
        """Whether it can refuse a writer, as that of a cluster; otherwise leases and clocks alone count."""
        self._opening_delays = chance.delays("log openings", _USUAL_S)
        self._last: dict[str, dict[NodeID, _Last]] = {}
        """By pchannel, of the writers that can be fenced."""

    def handle(self, life: Life) -> LogHandle:
        return FencingHandle(self, life) if self.is_fencing else LogHandle(self, life)

    def hold(self, life: Life) -> None:
        """Hold back this life's appends from now on, until `let_go` (for scripts that control the timing)."""
        self._held[life] = []

    def let_go(self, role: str) -> None:
        """Deliver the role's held appends in order, whether or not their writer is still alive."""
        for life in [life for life in self._held if life.role == role]:
            for pchannel, append in self._held.pop(life):
                append.straggles = True
                self._enqueue(pchannel, append, self._outages)

    def fill(self, pchannel: str, seconds: float) -> None:
        """Refuse all appends to this pchannel, ticks included, for this many seconds."""
        self._full_until_s[pchannel] = asyncio.get_running_loop().time() + seconds

    def is_full(self, pchannel: str) -> bool:
        return self._full_until_s.get(pchannel, 0.0) > asyncio.get_running_loop().time()

    def full_pchannels(self) -> list[str]:
        return [pchannel for pchannel in self._full_until_s if self.is_full(pchannel)]

    def delay(self, role: str, seconds: float) -> None:
        """Have the role read nothing new for this many seconds."""
        self._delayed_until_s[role] = asyncio.get_running_loop().time() + seconds

    def delay_of_s(self, role: str) -> float:
        """Return for how long the role still reads nothing new."""
        if role not in self._delayed_until_s:
            return 0.0
        return self._delayed_until_s[role] - asyncio.get_running_loop().time()

    def heal(self) -> None:
        """From now on, no pchannel is full and every role reads at once."""
        self._full_until_s.clear()
        self._delayed_until_s.clear()

    def durable_end(self, pchannel: str) -> Position:
        return self._durable.get(pchannel, Position(0))

    def lose_power(self) -> dict[str, Position]:
        """Lose everything that is not durable. Returns where each pchannel ends now."""
        for writer in self._writers.values():
            writer.cancel()
        self._writers.clear()
        self._outages += 1
        self._queues.clear()
        self._held.clear()
        for pchannel in self._tape.pchannels():
            self._tape.cut(pchannel, self.durable_end(pchannel))
        return {pchannel: self._tape.end(pchannel) for pchannel in self._tape.pchannels()}

    async def fence(self, pchannel: str, is_gone: Callable[[NodeID], bool]) -> None:
        await asyncio.sleep(self._delay_s())
        last = self._last.setdefault(pchannel, {})
        fences = {w: _Last(self._tape.end(pchannel), True) for w in last if is_gone(w)}
        last.update({w: fence for w, fence in fences.items() if not last[w].is_fence})

    def is_open(self, pchannel: str, writer: NodeID) -> bool:
        """Whether the writer has a message in the pchannel, or a fence is there in its place."""
        return writer in self._last.get(pchannel, {})

    async def open(self, pchannel: str, writer: NodeID) -> None:
        """Put an opening, which a fence can follow. Raises `NoSession` for a fence, and `DiskFull`."""
        await asyncio.sleep(self._opening_delays.next_s())
        if self.is_full(pchannel):
            raise DiskFull(f"no room left while writing pchannel {pchannel}; free disk space, then retry")
        last = self._last.setdefault(pchannel, {})
        if writer in last and last[writer].is_fence:
            raise NoSession(_COUNTED_OUT)
        last[writer] = _Last(self._tape.end(pchannel))

    async def trim(self, pchannel: str, before: Position) -> None:
        await self._tape.trim(pchannel, before)
        last = self._last.get(pchannel, {})
        self._last[pchannel] = {w: message for w, message in last.items() if message.position >= before}

    async def append(
        self,
        life: Life,
        pchannel: str,
        entries: Sequence[NewEntry],
        durable: bool,
        writer: NodeID | None = None,
    ) -> Sequence[Position]:
        if self.is_full(pchannel):
            raise DiskFull(f"no room left while writing pchannel {pchannel}; free disk space, then retry")
        if durable and self._chance.meets(FaultKind.LOG_FULL):
            raise DiskFull("no room left while writing the log; free disk space, then retry")
        done: asyncio.Future[list[Position]] = asyncio.get_running_loop().create_future()
        append = _Append(life, entries, durable, done, writer=writer)
        if life in self._held:
            self._held[life].append((pchannel, append))
        else:
            self._enqueue(pchannel, append, self._outages)
        if durable and self._chance.meets(FaultKind.CRASH_APPENDING):
            self._note(f"CRASH of {life.name} while it appends")
            life.kill()
        return await asyncio.shield(append.done)

    async def _write(self, pchannel: str) -> None:
        queue = self._queues[pchannel]
        while queue:
            await asyncio.sleep(self._delay_s())
            append = queue.pop(0)
            if append.life.is_stopped and not append.straggles and self._leaves_late(pchannel, append):
                continue
            refusal = self._refusal(pchannel, append.writer)
            if refusal is not None:
                if not append.done.done():
                    append.done.set_exception(refusal)
                    append.done.exception()  # there may be nobody who waits for it
                continue
            positions: list[Position] = []
            for entry in append.entries:  # one by one: the observer looks at the last entry
                positions += await self._tape.append(pchannel, [entry])
                self._observe(pchannel, self._tape.last(pchannel))
            if append.durable:
                self._durable[pchannel] = self._tape.end(pchannel)
            if append.writer is not None and positions:
                self._last[pchannel][append.writer] = _Last(positions[-1])
            if not append.done.done():
                append.done.set_result(positions)
        del self._writers[pchannel]

    def _refusal(self, pchannel: str, writer: NodeID | None) -> Exception | None:
        if writer is None:
            return None
        last = self._last.get(pchannel, {}).get(writer)
        if last is None:
            return _NotOpen()
        return NoSession(_COUNTED_OUT) if last.is_fence else None

    def _delay_s(self) -> float:
        slow = self._chance.meets(FaultKind.LOG_SLOW)
        return self._delays.next_s() + (slow.amount if slow else 0.0)

    def _leaves_late(self, pchannel: str, append: _Append) -> bool:
        """Decide what happens to an append whose writer is dead: it is lost, arrives, or arrives late.

        Returns whether the append is not to be written now.
        """
        fate = self._random.random()
        if fate < _ARRIVES:
            return False
        if fate < _STRAGGLES:
            append.straggles = True
            delay_s = self._random.uniform(0.2, _STRAGGLES_FOR_S)
            asyncio.get_running_loop().call_later(delay_s, self._enqueue, pchannel, append, self._outages)
        return True

    def _enqueue(self, pchannel: str, append: _Append, outages: int) -> None:
        if outages != self._outages:
            return  # power was lost in between
        self._queues.setdefault(pchannel, []).append(append)
        if pchannel not in self._writers:
            with working_for(None):  # the writer outlives the life whose append begins it
                self._writers[pchannel] = asyncio.ensure_future(self._write(pchannel))

    async def sync(self, pchannel: str) -> Position:
        await asyncio.sleep(self._delay_s())
        self._durable[pchannel] = await self._tape.sync(pchannel)
        return self._durable[pchannel]

    @property
    def tape(self) -> MemoryLog:
        return self._tape


class LogHandle:
    """`elanus.log.port.Log` for one life."""

    def __init__(self, log: SimLog, life: Life) -> None:
        self._log = log
        self._life = life

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        if self._life.is_held:
            await self._life.gate()
        positions = await self._log.append(self._life, pchannel, entries, durable)
        if self._life.is_held:
            await self._life.gate()
        return positions

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader:
        reader = self._log.tape.open_reader(pchannel, start, headers_only=headers_only)
        return _Reader(reader, self._log, self._life)

    def read_range(self, pchannel: str, start: Position, stop: Position) -> Iterator[LogEntry]:
        return self._log.tape.read_range(pchannel, start, stop)

    def end(self, pchannel: str) -> Position:
        return self._log.tape.end(pchannel)

    def missing_from(self, pchannel: str, position: Position) -> Position | None:
        return self._log.tape.missing_from(pchannel, position)

    async def sync(self, pchannel: str) -> Position:
        if self._life.is_held:
            await self._life.gate()
        end = await self._log.sync(pchannel)
        if self._life.is_held:
            await self._life.gate()
        return end

    async def trim(self, pchannel: str, before: Position) -> None:
        if self._life.is_held:
            await self._life.gate()
        await self._log.trim(pchannel, before)

    def pchannels(self) -> Sequence[str]:
        return self._log.tape.pchannels()

    def size_bytes(self, pchannel: str = "") -> int:
        return self._log.tape.size_bytes(pchannel)

    async def close(self) -> None:
        """Do nothing: the log outlives the roles that use it."""


class FencingHandle(LogHandle):
    """`elanus.log.port.FencingLog` for one life."""

    def appender(self, writer: NodeID, confirm: Callable[[], Awaitable[None]]) -> Appender:
        return _FencedAppender(self._log, self._life, writer, confirm)

    async def fence(self, pchannel: str, is_gone: Callable[[NodeID], bool]) -> None:
        if self._life.is_held:
            await self._life.gate()
        await self._log.fence(pchannel, is_gone)


class _FencedAppender:
    """The appends of one writer, one after the other on each pchannel."""

    def __init__(
        self, log: SimLog, life: Life, writer: NodeID, confirm: Callable[[], Awaitable[None]]
    ) -> None:
        self._log = log
        self._life = life
        self._writer = writer
        self._confirm = confirm
        self._turns: dict[str, asyncio.Lock] = {}
        self._confirmed: set[str] = set()

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        async with self._turns.setdefault(pchannel, asyncio.Lock()):
            while True:
                if self._life.is_held:
                    await self._life.gate()
                try:
                    await self._open(pchannel)
                    positions = await self._log.append(self._life, pchannel, entries, durable, self._writer)
                except _NotOpen:
                    continue  # trimmed meanwhile
                if self._life.is_held:
                    await self._life.gate()
                return positions

    async def _open(self, pchannel: str) -> None:
        if not self._log.is_open(pchannel, self._writer):
            self._confirmed.discard(pchannel)
            await self._log.open(pchannel, self._writer)
        if pchannel not in self._confirmed:
            await self._confirm()
            self._confirmed.add(pchannel)


class _Reader:
    def __init__(self, reader: LogReader, log: SimLog, life: Life) -> None:
        self._reader = reader
        self._log = log
        self._life = life

    async def read(self, bytes_max: int = 32 * 1024 * 1024) -> Sequence[LogEntry]:
        entries = await self._reader.read(bytes_max)
        while (delay_s := self._log.delay_of_s(self._life.role)) > 0:
            await asyncio.sleep(delay_s)
        if self._life.is_held:
            await self._life.gate()
        return entries

    def close(self) -> None:
        self._reader.close()
