"""Requests for a tick now instead of at the next interval: a client is waiting for what follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from elanus.api.rootcoord import RootCoordApi
from elanus.core.channels import pchannel_of
from elanus.core.errors import ElanusError
from elanus.core.timestamps import Timestamp

_WAIT_S = 5.0
_log = structlog.get_logger("ticks")


async def request_early_tick(rootcoord: RootCoordApi, vchannels: Iterable[str], at_least: Timestamp) -> None:
    """Request a tick of ``at_least`` this timestamp. A failure is logged: the next interval brings a tick."""
    try:
        async with asyncio.timeout(_WAIT_S):
            await rootcoord.tick_now(tuple({pchannel_of(v) for v in vchannels}), at_least)
    except (ElanusError, TimeoutError) as error:
        _log.info("early tick not requested", error=str(error))
