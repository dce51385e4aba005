"""Log trimming: the log may forget entries that are in binlogs and that no query node has yet to read."""

from __future__ import annotations

from collections.abc import Mapping

from elanus.api.rootcoord import RootCoordApi
from elanus.core.channels import pchannel_of
from elanus.datacoord.state import DataState
from elanus.log.port import Log, Position


async def trim_log(state: DataState, log: Log, rootcoord: RootCoordApi, held: Mapping[str, int]) -> None:
    """Trim each pchannel to the lowest checkpoint of its vchannels, or to its end when it has none.

    ``held``: the lowest position of a pchannel that query nodes need.

    A pchannel without vchannels is trimmed only when rootcoord does not use it either. Its end is read first:
    a collection created after that starts behind it. So does a collection whose creation has not ended: the
    ticks, and with them all checkpoints, wait for it. A collection whose creation has ended, but whose
    `watch_channels` call has not arrived here, is known to rootcoord, and its start is kept in the log.
    """
    keep: dict[str, int] = {}
    for vchannel in state.vchannels():
        pchannel, position = pchannel_of(vchannel.vchannel), vchannel.checkpoint.position
        keep[pchannel] = min(keep.get(pchannel, position), position)
    for collection in await rootcoord.list_collections(""):
        for name, start in collection.starts.items():
            pchannel = pchannel_of(name)
            if state.vchannel(name) is None and pchannel in keep:
                keep[pchannel] = min(keep[pchannel], start.position)
    ends = {pchannel: log.end(pchannel) for pchannel in log.pchannels() if pchannel not in keep}
    in_use = await rootcoord.ticks() if ends else {}
    for pchannel, end in ends.items():
        if pchannel not in in_use:
            await log.trim(pchannel, end)
    for pchannel, position in keep.items():
        await log.trim(pchannel, Position(min(position, held.get(pchannel, position))))
