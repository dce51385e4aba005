"""Cancellation-safe updates: the store and the in-memory copy change together or not at all.

A call may be cancelled at any await: its client is gone, its deadline has passed, its role shuts down. A
transaction that was already sent is applied all the same. A coordinator that did not learn the result would
continue with an outdated copy, and every later change of that record would be refused.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def uncancellable(change: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Run ``change`` to its end once it has begun; a caller that is cancelled meanwhile ends after it."""

    @functools.wraps(change)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        work = asyncio.ensure_future(change(*args, **kwargs))
        work.add_done_callback(_retrieved)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise

    return run


def _retrieved(work: asyncio.Future[T]) -> None:
    """Retrieve an error: a caller that is cancelled, once or twice, will not."""
    if not work.cancelled():
        work.exception()
