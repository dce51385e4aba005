"""Waiting for work, or for the word to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def first_of(event: asyncio.Event, work: Awaitable[Any]) -> bool:
    """Whether the event happened before the work was done, or failed. What is left of the work goes on."""
    happening, working = asyncio.ensure_future(event.wait()), asyncio.ensure_future(work)
    try:
        await asyncio.wait((happening, working), return_when=asyncio.FIRST_COMPLETED)
        return happening.done()
    finally:
        happening.cancel()
