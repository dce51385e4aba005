"""The requested consistency of a read: three request fields to `elanus.core.consistency.ReadConsistency`.

Clients since 2.3 name a level, or request the collection's own. Older ones leave the level at its default
(0, Strong) and use the guarantee timestamp: 1 is Eventually, 2 is Bounded, anything else is a timestamp.
"""

from __future__ import annotations

from elanus.core.consistency import (
    WIRE_BOUNDED,
    WIRE_EVENTUALLY,
    WIRE_STRONG,
    ConsistencyLevel,
    ReadConsistency,
)
from elanus.proxy.wire.requests import consistency_level

_LEVEL_OF_OLD_CLIENTS = {
    WIRE_EVENTUALLY: ConsistencyLevel.EVENTUALLY,
    WIRE_BOUNDED: ConsistencyLevel.BOUNDED,
}


def read_consistency(
    use_default: bool,
    level: int,
    guarantee_ts: int,
    *,
    pinned: bool = False,
    travel_ts: int = 0,
    client: str = "",
) -> ReadConsistency:
    """``pinned``: a page of an iterator; ``travel_ts``: the requested past timestamp, or 0;
    ``client``: see `elanus.proxy.access.caller.Caller`.

    Raises `InvalidParameter` for a level that does not exist.
    """
    if use_default:
        said = None
    elif level == ConsistencyLevel.STRONG and guarantee_ts != WIRE_STRONG:
        said = _LEVEL_OF_OLD_CLIENTS.get(guarantee_ts, ConsistencyLevel.CUSTOMIZED)
    else:
        said = consistency_level(level)
    return ReadConsistency(said, guarantee_ts, pinned, travel_ts, client)
