"""Rounds over very many segments: other tasks run between their parts."""

from __future__ import annotations

import asyncio
from collections.abc import Sized

LONG_STEP_SEGMENTS = 1000
"""From this many segments on, other tasks run between the parts of a reconciliation."""


async def let_others_run(segments: Sized) -> None:
    """Yield to other tasks between two parts of a reconciliation that look at all of these segments.

    The parts work on statuses and a target that have been read before, and on the replica's record, which
    nothing else changes: what happens in between is for the next reconciliation.
    """
    if len(segments) >= LONG_STEP_SEGMENTS:
        await asyncio.sleep(0)
