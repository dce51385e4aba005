"""Loops over many records on an event loop, in parts between which other tasks run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
AT_ONCE = 500


async def in_turns(items: Iterable[T], at_once: int = AT_ONCE) -> AsyncIterator[T]:
    """Yield the items. After each ``at_once`` of them other tasks run: the items must not change then."""
    left = iter(items)
    while part := tuple(islice(left, at_once)):
        for item in part:
            yield item
        if len(part) == at_once:
            await asyncio.sleep(0)
