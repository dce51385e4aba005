"""How much time is left of the call that is being served, for the calls made to answer it.

A call that arrives over the network has a deadline. Its caller is gone afterwards, so a call
made to answer it must not last longer. That applies to the task that answers, and to the roles of the same
process that it calls and waits for (`elanus.rpc.local` passes the deadline on). It does not apply to work
that a call leaves behind: a task inherits the context it was created in, but the deadline of a request does
not apply to a round that takes hours. So a deadline belongs to named tasks, not to a context.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet


@dataclass(frozen=True, slots=True)
class _Bound:
    until_s: float
    """The deadline on the event loop's clock."""
    tasks: WeakSet[asyncio.Future[Any]]


_bound: ContextVar[_Bound | None] = ContextVar("deadline", default=None)


def bind(remaining_s: float | None) -> None:
    """The current task answers a call that ends in so many seconds; None: the call has no deadline."""
    task = asyncio.current_task()
    if remaining_s is None or task is None:
        _bound.set(None)
    else:
        _bound.set(_Bound(asyncio.get_running_loop().time() + remaining_s, WeakSet((task,))))


def hand_on(work: asyncio.Future[Any]) -> None:
    """``work`` was created by the current task, which waits for it: it gets the same deadline."""
    bound = _bound.get()
    if bound is not None and asyncio.current_task() in bound.tasks:
        bound.tasks.add(work)


def within(timeout_s: float | None) -> float | None:
    """Return the time a call may take: ``timeout_s`` (None: any), and not more than is left of the current
    one."""
    bound = _bound.get()
    if bound is None or asyncio.current_task() not in bound.tasks:
        return timeout_s
    left_s = max(0.0, bound.until_s - asyncio.get_running_loop().time())
    return left_s if timeout_s is None else min(timeout_s, left_s)


def left(waiting: asyncio.Timeout) -> float | None:
    """Return the time left of a timeout that has not passed; None when it has no end."""
    end_s = waiting.when()
    return None if end_s is None else max(0.0, end_s - asyncio.get_running_loop().time())
