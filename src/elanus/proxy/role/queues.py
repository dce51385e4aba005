"""The proxy's queues: definitions one at a time, writes and reads concurrently.

A write is registered as unfinished on entry, under the lowest timestamp it could still receive, and is so on
each pchannel until its entries are stored there, whatever becomes of those for other pchannels. Then it is
stamped, and the order of its queue is the order of the timestamps: a write prepares its entries at its own
pace, awaits its `Turn`, and hands them to the log before any later write on the same pchannels does.

A closed queue takes no more work and can be awaited until it is empty, so that a stopping proxy leaves no
unreported write behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from elanus.core.errors import NotReady, TaskQueueFull
from elanus.core.ids import TaskID
from elanus.core.ticks import UnfinishedWrites, WrittenLately
from elanus.core.timestamps import Timestamp, after
from elanus.proxy.role.stamps import Stamps

T = TypeVar("T")

_LINGER_MS = 2000
"""Longer than readers usually take to read what was written, and longer than a report may be late."""


class TaskQueue:
    """The part that `DdQueue` and `DmQueue` share: ids, the limit, and closing."""

    def __init__(self, tasks_max: int) -> None:
        self._tasks_max = tasks_max
        self._last_id = 0
        self._unfinished: dict[TaskID, asyncio.Task[None] | None] = {}
        self._closed = False
        self._empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._unfinished)

    async def close(self, patience_s: float) -> None:
        """Take no more tasks and wait for the unfinished ones; after ``patience_s`` they are cancelled."""
        self._closed = True
        try:
            async with asyncio.timeout(patience_s):
                await self._until_empty()
        except TimeoutError:
            for running in self._unfinished.values():
                if running is not None:
                    running.cancel()
            await self._until_empty()

    async def _until_empty(self) -> None:
        while self._unfinished:
            self._empty.clear()
            await self._empty.wait()

    def _enter(self, name: str) -> TaskID:
        if self._closed:
            raise NotReady("the proxy is stopping; retry when it is back")
        if len(self._unfinished) >= self._tasks_max:
            raise TaskQueueFull(f"task queue is full: {self._tasks_max} {name} tasks are unfinished; retry")
        self._last_id += 1
        task_id = TaskID(self._last_id)
        self._unfinished[task_id] = asyncio.current_task()
        return task_id

    def _leave(self, task_id: TaskID) -> None:
        del self._unfinished[task_id]
        self._empty.set()


class DdQueue(TaskQueue):
    """Definitions: strictly one at a time, in order of arrival."""

    def __init__(self, tasks_max: int) -> None:
        super().__init__(tasks_max)
        self._turn = asyncio.Lock()  # fair: waiters are served in order

    async def run(self, name: str, define: Callable[[], Awaitable[T]]) -> T:
        """Returns and raises what ``define`` does. Raises `TaskQueueFull`, `NotReady` when closed."""
        task_id = self._enter(name)
        try:
            async with self._turn:
                return await define()
        finally:
            self._leave(task_id)


class Turn:
    """One write's place in the order of its pchannels.

    ``ts``: the write's timestamp, under which ``writes`` has it as unfinished on ``pchannels``.
    """

    def __init__(
        self,
        lines: _Lines,
        writes: UnfinishedWrites,
        task_id: TaskID,
        pchannels: Iterable[str],
        ts: Timestamp,
    ) -> None:
        self.ts = ts
        self._lines = lines
        self._writes = writes
        self._task_id = task_id
        self._unfinished = dict.fromkeys(pchannels)

    async def wait(self) -> None:
        """Wait until every earlier write on the same pchannels has handed its entries over, or failed."""
        await self._lines.wait(self._task_id)

    def done(self) -> None:
        """The entries have been handed to the log in this order: the next write may follow."""
        self._lines.leave(self._task_id)

    def ended(self, pchannel: str) -> None:
        """No entry is on its way to the pchannel any more: its ticks may pass the write.

        Nobody reads a part of the write: a read waits for the ticks of all pchannels of its collection.
        """
        if pchannel in self._unfinished:
            del self._unfinished[pchannel]
            self._writes.remove(self.ts, (pchannel,))

    def ended_but_on(self, pchannels: Collection[str]) -> None:
        """There are entries for these pchannels only."""
        for pchannel in tuple(self._unfinished):
            if pchannel not in pchannels:
                self.ended(pchannel)


class DmQueue(TaskQueue):
    """Writes: concurrent. Knows the unfinished timestamps of every pchannel, for the time ticker."""

    def __init__(self, stamps: Stamps, tasks_max: int) -> None:
        super().__init__(tasks_max)
        self._stamps = stamps
        self._writes = UnfinishedWrites()
        self._written = WrittenLately(_LINGER_MS)
        self._lines = _Lines()

    def oldest(self) -> Mapping[str, Timestamp]:
        """Return the timestamp of the oldest unfinished write of each pchannel."""
        return self._writes.oldest()

    def written(self, now: Timestamp) -> tuple[str, ...]:
        """Return the pchannels with a write shortly before ``now``."""
        return self._written.at(now)

    async def run(
        self, name: str, pchannels: Sequence[str], write: Callable[[Turn], Awaitable[None]]
    ) -> Timestamp:
        """Run a write that may append to ``pchannels``; return its timestamp.

        Raises what ``write`` raises, `TaskQueueFull`, `NotReady` when closed.
        """
        task_id = self._enter(name)
        pchannels = tuple(dict.fromkeys(pchannels))  # two shards may share a pchannel
        floor = after(self._stamps.floor())
        self._writes.add(floor, pchannels)
        self._written.note(pchannels)
        self._lines.enter(task_id, pchannels)
        turn: Turn | None = None
        try:
            ts = await self._stamps.fresh()
            self._writes.add(ts, pchannels)
            self._writes.remove(floor, pchannels)
            turn = Turn(self._lines, self._writes, task_id, pchannels, ts)
            await write(turn)
            return ts
        finally:
            self._lines.leave(task_id)
            if turn is None:
                self._writes.remove(floor, pchannels)
            else:
                turn.ended_but_on(())
            self._written.note(pchannels)
            self._leave(task_id)


@dataclass(frozen=True, slots=True)
class _Place:
    """A write's place in its lines. ``first`` is set when it reaches the front of one of them."""

    pchannels: tuple[str, ...]
    first: asyncio.Event = field(default_factory=asyncio.Event)


class _Lines:
    """One line of writes per pchannel. Writes hand their entries to the log in timestamp order."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[TaskID, None]] = {}
        self._places: dict[TaskID, _Place] = {}

    def enter(self, task_id: TaskID, pchannels: tuple[str, ...]) -> None:
        self._places[task_id] = _Place(pchannels)
        for pchannel in pchannels:
            self._lines.setdefault(pchannel, {})[task_id] = None

    async def wait(self, task_id: TaskID) -> None:
        """Wait until the write is first in each of its lines."""
        place = self._places[task_id]
        while any(next(iter(self._lines[pchannel])) != task_id for pchannel in place.pchannels):
            place.first.clear()
            await place.first.wait()

    def leave(self, task_id: TaskID) -> None:
        """Leave all lines, from any place in them. Leaving twice does nothing."""
        place = self._places.pop(task_id, None)
        for pchannel in place.pchannels if place else ():
            line = self._lines[pchannel]
            del line[task_id]
            if line:
                self._places[next(iter(line))].first.set()
            else:
                del self._lines[pchannel]


class DqQueue:
    """Reads: concurrent, each in its caller's own thread; the queue only counts and limits them."""

    def __init__(self, tasks_max: int) -> None:
        self._tasks_max = tasks_max
        self._free = [None] * tasks_max
        """One item for each read that may begin: to take one is a single step, and takes no lock."""

    def enter(self) -> None:
        """A read begins. Raises `TaskQueueFull`."""
        try:
            self._free.pop()
        except IndexError:
            text = f"task queue is full: {self._tasks_max} reads are unfinished; retry"
            raise TaskQueueFull(text) from None

    def leave(self) -> None:
        """A read that entered has ended."""
        self._free.append(None)
