"""The end of imports: committed tasks are complete once they are served, ended ones are forgotten in time.

Tasks whose time is over before their turn comes fail here. Named writes (`elanus.core.writes`) are
remembered longer than the tasks that made them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from elanus.core.imports import (
    ImportPolicy,
    ImportState,
    ImportTask,
    failed,
    forgotten,
    overdue,
    stepped,
    too_late,
)
from elanus.core.writes import expired_writes
from elanus.datacoord.context import DataContext

_LOOK_S = 0.5
_WRITES_LOOK_MS = 60_000
_log = structlog.get_logger("datacoord")


class ImportEndings:
    """Looks at the tasks. ``is_served``: whether a committed task's segments have everything that reads of
    them wait for."""

    def __init__(
        self, context: DataContext, is_served: Callable[[ImportTask], Awaitable[bool]], policy: ImportPolicy
    ) -> None:
        self._state = context.state
        self._clock = context.clock
        self._lock = context.lock
        self._is_served = is_served
        self._policy = policy
        self._writes_looked_ms = 0

    async def run(self) -> None:
        """Complete committed tasks once they are served, fail late ones, remove old ones, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._complete()
                await self._fail_late()
                now_ms = self._clock.wall_ms()
                old = forgotten(self._state.imports(), now_ms, self._policy.retention_ms)
                async with self._lock:
                    await self._state.forget_imports(old)
                await self._forget_writes(now_ms)
            except Exception as error:  # noqa: BLE001 - the next look may succeed
                _log.info("imports not completed; trying again", error=f"{type(error).__name__}: {error}")

    async def _forget_writes(self, now_ms: int) -> None:
        if now_ms - self._writes_looked_ms < _WRITES_LOOK_MS:
            return
        self._writes_looked_ms = now_ms
        writes, exist = self._state.writes.all(), {v.collection_id for v in self._state.vchannels()}
        async with self._lock:
            kept_ms = self._policy.write_retention_ms
            await self._state.forget_writes(list(expired_writes(writes, now_ms, kept_ms, exist)))

    async def _complete(self) -> None:
        for task in [t for t in self._state.imports() if t.state is ImportState.PERSISTED]:
            if await self._is_served(task):
                done = stepped(task, ImportState.COMPLETED, ended_ms=self._clock.wall_ms())
                async with self._lock:
                    await self._state.put(imports=[done])

    async def _fail_late(self) -> None:
        """Fail the tasks that still wait for their turn, or for their commit; those that run fail by
        themselves."""
        if not self._late():
            return
        async with self._lock:
            now_ms = self._clock.wall_ms()
            late = self._late()  # one of them may have begun or committed meanwhile
            await self._state.put(imports=[failed(task, reason, now_ms) for task, reason in late])

    def _late(self) -> list[tuple[ImportTask, str]]:
        """Return the tasks whose time is over, and those whose collection is gone, each with the reason."""
        tasks, now_ms = self._state.imports(), self._clock.wall_ms()
        late = [(task, too_late(task, self._policy)) for task in overdue(tasks, now_ms, self._policy)]
        named = {task.task_id for task, _ in late}
        return late + [
            (task, f"collection not found[collection={task.collection}]")
            for task in tasks
            if task.state is ImportState.UNCOMMITTED
            and task.task_id not in named
            and not self._state.vchannels_of(task.collection_id)
        ]
