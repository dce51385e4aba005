"""Wait for work, or for a stop request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def first_of(event: asyncio.Event, work: Awaitable[Any]) -> bool:
    """Whether the event happened before the work finished or failed. Work that is left keeps running."""
    happening, working = asyncio.ensure_future(event.wait()), asyncio.ensure_future(work)
    try:
        await asyncio.wait((happening, working), return_when=asyncio.FIRST_COMPLETED)
        return happening.done()
    finally:
        happening.cancel()
