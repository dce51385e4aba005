"""Log trimming: the log may forget entries that are in binlogs and that no query node has yet to read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import structlog

from elanus.api.rootcoord import RootCoordApi
from elanus.core.catalog import Collection
from elanus.core.channels import pchannel_of
from elanus.datacoord.state import DataState
from elanus.log.port import REWOUND_REMEDY, Log, Position, rewound_text

_log = structlog.get_logger("datacoord")
_COLLECTIONS_A_STEP = 256
"""How many collections are looked at before others may run: well below a millisecond."""


async def trim_log(state: DataState, log: Log, rootcoord: RootCoordApi, held: Mapping[str, int]) -> None:
    """Trim each pchannel to the lowest checkpoint of its vchannels, or to its end when it has none.

    ``held``: the lowest position of a pchannel that query nodes need.

    A pchannel without vchannels is trimmed only when rootcoord does not use it either. Its end is read first:
    a collection created after that starts behind it. So does a collection whose creation has not ended: the
    ticks, and with them all checkpoints, wait for it. A collection whose creation has ended, but whose
    `watch_channels` call has not arrived here, is known to rootcoord, and its start is kept in the log.

    A log that ends before the position was put back to an older copy, which is left as it is.

    Others run while this waits. So checkpoints are read twice: before rootcoord is asked, because they may
    pass the start of a collection whose creation ends after its answer; and in the same step that trims,
    because vchannels that have arrived since may be lower.
    """
    before = state.positions.all()
    starts = await _starts(state, await rootcoord.list_collections(""))
    ends = {pchannel: log.end(pchannel) for pchannel in log.pchannels() if pchannel not in before}
    in_use = await rootcoord.ticks() if ends else {}
    for pchannel, end in ends.items():
        if pchannel not in in_use and state.positions.of(pchannel) is None:
            await log.trim(pchannel, end)
    for pchannel, position in before.items():
        needed = (state.positions.of(pchannel), starts.get(pchannel), held.get(pchannel))
        lowest = min([position, *(p for p in needed if p is not None)])
        if log.missing_from(pchannel, Position(lowest)) is None:
            await log.trim(pchannel, Position(lowest))


def report_rewound(state: DataState, log: Log) -> None:
    """Report the pchannels whose log has not given a checkpoint. For the start: the ends are current then."""
    for pchannel, position in state.positions.highest().items():
        missing = log.missing_from(pchannel, Position(position))
        if missing is not None:
            text = rewound_text(pchannel, position, missing)
            _log.error("log ends before a checkpoint", error=text, remedy=REWOUND_REMEDY)


async def _starts(state: DataState, collections: Iterable[Collection]) -> dict[str, int]:
    """Return where the first collection of each pchannel starts whose vchannels have not arrived here."""
    found: dict[str, int] = {}
    for looked_at, collection in enumerate(collections, start=1):
        for name, start in collection.starts.items():
            if state.vchannel(name) is None:
                pchannel = pchannel_of(name)
                found[pchannel] = min(found.get(pchannel, start.position), start.position)
        if looked_at % _COLLECTIONS_A_STEP == 0:
            await asyncio.sleep(0)
    return found
