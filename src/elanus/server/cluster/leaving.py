"""How a query node stops: others take over what it serves first, so reads do not fail meanwhile.

Nothing depends on this. If no other node can take over, or not in time, or no query coordinator answers, as
when a whole cluster is stopped, the node just stops: as if it was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from elanus.core.errors import ElanusError
from elanus.core.ids import NodeID

_LOOK_S = 0.25
_ANSWER_S = 3.0
_log = structlog.get_logger("server")


async def hand_over(leave: Callable[[NodeID], Awaitable[bool]], node_id: NodeID, timeout_s: float) -> None:
    """Return when the node serves nothing any more, or need not wait. ``leave``: as in
    `elanus.api.querycoord.QueryCoordApi`."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_s
    try:
        while loop.time() < until_s:
            async with asyncio.timeout(min(_ANSWER_S, until_s - loop.time())):
                if not await leave(node_id):
                    return
            await asyncio.sleep(_LOOK_S)
    except (ElanusError, TimeoutError) as error:
        _log.info("query node not handed over", node=node_id, error=str(error) or "no answer in time")
    else:
        _log.warning("query node not handed over in time", node=node_id, seconds=timeout_s)
