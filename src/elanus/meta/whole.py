"""A change that no cancellation parts: persisted, and then shown in memory, or neither.

A call may be cancelled at any await: its client is gone, its deadline has passed, its role goes down. A
transaction that was on its way is applied all the same; a coordinator that did not hear of it would go on
with an outdated picture, and have every later change of that record refused.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def whole(change: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Runs to its end once begun; a caller that is cancelled meanwhile ends after it."""

    @functools.wraps(change)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        work = asyncio.ensure_future(change(*args, **kwargs))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            if not work.cancelled():
                work.exception()  # the caller is gone: nobody else will ask for it
            raise

    return run
