"""The proxy's task queues (seed 3, 6.6.1): definitions one by one, writes and reads side by side.

A task is stamped when it has entered its queue, and the order of a queue is the order of its timestamps. A
write counts as unfinished from the moment it enters: until its stamp is there, at the lowest that it can be.
Then a task goes through ``pre_execute``, ``execute`` and ``post_execute``;
an error ends it early and is what its caller gets.

A queue that is closed takes no task any more, and can be waited for until it is empty: a proxy that stops
must leave no write behind that nobody reports.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from elanus.core.errors import NotReady, TaskQueueFull
from elanus.core.ids import TaskID
from elanus.core.ticks import UnfinishedWrites
from elanus.core.timestamps import Timestamp, after
from elanus.proxy.stamps import Stamps


class Task(Protocol):
    """What a queue needs of a task. ``begin`` is called once, before anything else."""

    name: str

    def begin(self, task_id: TaskID, ts: Timestamp) -> None: ...
    async def pre_execute(self) -> None: ...
    async def execute(self) -> None: ...
    async def post_execute(self) -> None: ...


class WriteTask(Task, Protocol):
    """A task of the DmQueue: it may write to these pchannels."""

    @property
    def pchannels(self) -> tuple[str, ...]: ...


async def _phases(task: Task) -> None:
    await task.pre_execute()
    await task.execute()
    await task.post_execute()


class TaskQueue:
    """What the queues share: stamps, ids, and the limit."""

    def __init__(self, stamps: Stamps, tasks_max: int) -> None:
        self._stamps = stamps
        self._tasks_max = tasks_max
        self._last_id = 0
        self._unfinished: dict[TaskID, asyncio.Task[None] | None] = {}
        self._closed = False
        self._empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._unfinished)

    async def close(self, patience_s: float) -> None:
        """Take no task any more; returns when all have ended, those cancelled that take longer than asked."""
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

    def _enter(self, task: Task) -> TaskID:
        if self._closed:
            raise NotReady("the proxy is stopping; retry when it is back")
        if len(self._unfinished) >= self._tasks_max:
            raise TaskQueueFull(
                f"task queue is full: {self._tasks_max} {task.name} tasks are unfinished; retry"
            )
        self._last_id += 1
        task_id = TaskID(self._last_id)
        self._unfinished[task_id] = asyncio.current_task()
        return task_id

    def _leave(self, task_id: TaskID) -> None:
        del self._unfinished[task_id]
        self._empty.set()


class DdQueue(TaskQueue):
    """Definitions: strictly one at a time, in the order they came."""

    def __init__(self, stamps: Stamps, tasks_max: int) -> None:
        super().__init__(stamps, tasks_max)
        self._turn = asyncio.Lock()  # fair: waiters are served in order

    async def run(self, task: Task) -> None:
        task_id = self._enter(task)
        try:
            task.begin(task_id, await self._stamps.fresh())
            async with self._turn:
                await _phases(task)
        finally:
            self._leave(task_id)


class DmQueue(TaskQueue):
    """Writes: side by side. Knows the unfinished timestamps of every pchannel, for the time ticker."""

    def __init__(self, stamps: Stamps, tasks_max: int) -> None:
        super().__init__(stamps, tasks_max)
        self._writes = UnfinishedWrites()
        self._turns = _Turns()

    def oldest(self) -> Mapping[str, Timestamp]:
        """Per pchannel, the oldest write that has not finished."""
        return self._writes.oldest()

    async def run(self, task: WriteTask) -> None:
        task_id = self._enter(task)
        pchannels = tuple(dict.fromkeys(task.pchannels))  # two shards may share one
        unfinished = after(self._stamps.floor())
        self._writes.add(unfinished, pchannels)
        self._turns.enter(task_id, pchannels)
        try:
            ts = await self._stamps.fresh()
            self._writes.add(ts, pchannels)
            self._writes.remove(unfinished, pchannels)
            unfinished = ts
            task.begin(task_id, ts)
            await _phases(task)
        finally:
            self._turns.leave(task_id)
            self._writes.remove(unfinished, pchannels)
            self._leave(task_id)

    async def turn(self, task_id: TaskID) -> None:
        """Wait until every earlier task on the same pchannels has handed its entries over, or failed."""
        await self._turns.wait(task_id)

    def handed_over(self, task_id: TaskID) -> None:
        """The task's entries are in the log's hands, in this order: the next task may follow."""
        self._turns.leave(task_id)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a task stands in line. ``first`` is set when it has come to the front of one of its lines."""

    pchannels: tuple[str, ...]
    first: asyncio.Event = field(default_factory=asyncio.Event)


class _Turns:
    """Per pchannel a line of tasks: they hand their entries to the log in the order of their timestamps."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[TaskID, None]] = {}
        self._places: dict[TaskID, _Place] = {}

    def enter(self, task_id: TaskID, pchannels: tuple[str, ...]) -> None:
        self._places[task_id] = _Place(pchannels)
        for pchannel in pchannels:
            self._lines.setdefault(pchannel, {})[task_id] = None

    async def wait(self, task_id: TaskID) -> None:
        """Until the task is the first of each of its lines."""
        place = self._places[task_id]
        while any(next(iter(self._lines[pchannel])) != task_id for pchannel in place.pchannels):
            place.first.clear()
            await place.first.wait()

    def leave(self, task_id: TaskID) -> None:
        """Out of all lines, wherever it stands. Leaving twice does nothing."""
        place = self._places.pop(task_id, None)
        for pchannel in place.pchannels if place else ():
            line = self._lines[pchannel]
            del line[task_id]
            if line:
                self._places[next(iter(line))].first.set()
            else:
                del self._lines[pchannel]


class DqQueue:
    """Reads: side by side, each in its caller's own thread; the queue only counts and limits them."""

    def __init__(self, tasks_max: int) -> None:
        self._tasks_max = tasks_max
        self._free = threading.BoundedSemaphore(tasks_max)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Raises `TaskQueueFull`."""
        if not self._free.acquire(blocking=False):
            raise TaskQueueFull(f"task queue is full: {self._tasks_max} reads are unfinished; retry")
        try:
            yield
        finally:
            self._free.release()
