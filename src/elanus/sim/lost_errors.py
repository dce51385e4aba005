"""Errors that nobody looks at: a task failed, and no code will ever retrieve its exception.

asyncio reports such an error when it frees the task, at a moment that depends on memory. A run looks at the
tasks of a life when the life ends, and at all others when the run ends. An error counts as lost if it is
still unread at the end of the run, with two exceptions:

- The task failed after its life had ended. The code that waits for it may be stopped at a gate.
- The task is one of several that `asyncio.gather` waits for, and others of them had not ended. Their results
  are read once all of them have ended, which never happens in a life that is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from elanus.core.invariants import InvariantBroken
from elanus.sim.incarnation import Life, current_life

_KEPT = 4000

Task = asyncio.Task[Any]


class Tasks:
    """All tasks of a run, each with the life that made it."""

    def __init__(self) -> None:
        self._made: list[tuple[Task, Life | None]] = []
        self._made_max = _KEPT
        self._lives: set[Life] = set()
        self._unread: list[tuple[Task, Life | None]] = []
        """Tasks that failed before their life ended."""

    def made(self, task: Task) -> None:
        """Add a task that is made now, by the work that goes on now."""
        life = current_life()
        if life is not None and life not in self._lives:
            self._lives.add(life)
            life.ended.add_done_callback(lambda _: self._ended(life))
        if len(self._made) >= self._made_max:
            self._made = [(t, of) for t, of in self._made if not t.done() or _is_unread(t)]
            self._made_max = 2 * len(self._made) + _KEPT
        self._made.append((task, life))

    def unfinished(self) -> list[Task]:
        """Return the tasks that have not ended, those of lives that are over included."""
        return [task for task, _ in self._made if not task.done()]

    def lost(self) -> InvariantBroken | None:
        """Return an error that is lost. For the end of a run."""
        going_on = [(task, life) for task, life in self._made if life is None or not life.is_over]
        for task, life in (*self._unread, *self._failed(going_on)):
            if _is_unread(task):
                name = "" if life is None else f"{life.name}: "
                work = getattr(task.get_coro(), "__qualname__", "")
                error = task.exception()
                return InvariantBroken("LIVE2", f"{name}{work}: {type(error).__name__}: {error}")
        return None

    def _ended(self, life: Life) -> None:
        self._unread += self._failed((task, of) for task, of in self._made if of is life)

    def _failed(self, made: Iterable[tuple[Task, Life | None]]) -> list[tuple[Task, Life | None]]:
        """Return those of the tasks whose error nobody has read, or is to read once other tasks end."""
        failed = [(task, life) for task, life in made if task.done() and _is_unread(task)]
        if not failed:
            return []
        awaited = {future for task in self.unfinished() for future in _awaited_by(task)}
        return [(task, life) for task, life in failed if task not in awaited]


def _is_unread(task: Task) -> bool:
    """Whether a task that ended failed, and nobody has retrieved its exception."""
    return not task.cancelled() and bool(getattr(task, "_log_traceback", False))


def _awaited_by(task: Task) -> Iterable[object]:
    """Return the future that a task waits for, and if that gathers the results of others, these as well."""
    future = getattr(task, "_fut_waiter", None)
    return (future, *getattr(future, "_children", ()))
