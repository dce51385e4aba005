"""Tasks of the DdQueue: any definition, wrapped as a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from elanus.core.ids import TaskID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp

T = TypeVar("T")


class DdTask(Generic[T]):
    """Runs one coroutine in its ``execute`` phase and keeps its result."""

    def __init__(self, name: str, work: Callable[[], Awaitable[T]]) -> None:
        self.name = name
        self.task_id = TaskID(0)
        self.ts = NO_TIMESTAMP
        self._work = work
        self._result: list[T] = []

    def begin(self, task_id: TaskID, ts: Timestamp) -> None:
        self.task_id, self.ts = task_id, ts

    async def pre_execute(self) -> None:
        """Checked before it was enqueued."""

    async def execute(self) -> None:
        self._result.append(await self._work())

    async def post_execute(self) -> None:
        """The root coordinator has invalidated what must be."""

    @property
    def result(self) -> T:
        return self._result[0]
