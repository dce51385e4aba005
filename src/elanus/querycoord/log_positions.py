"""Reports to datacoord from where on the query nodes need the log, so that it is not trimmed before them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

import structlog

from elanus.api.datacoord import DataCoordApi
from elanus.api.recovery import LogHold, VchannelRecovery
from elanus.core.channels import pchannel_of
from elanus.core.errors import ElanusError
from elanus.core.ids import NodeID
from elanus.querycoord.fleet import Pulses

_REPORT_S = 5.0
_log = structlog.get_logger("querycoord")


class LogPositions:
    """``alive``: returns the nodes that read. ``recovering``: returns the vchannels that nodes are about to
    read from their checkpoints on."""

    def __init__(
        self,
        data: DataCoordApi,
        alive: Callable[[], Collection[NodeID]],
        recovering: Callable[[], Iterable[VchannelRecovery]],
    ) -> None:
        self._data = data
        self._alive = alive
        self._recovering = recovering
        self._positions: dict[NodeID, Mapping[str, int]] = {}

    def note(self, pulses: Pulses) -> None:
        """Take the positions in these pulses. A node that does not answer keeps its last ones."""
        self._positions |= {node_id: pulse.positions for node_id, pulse in pulses.items()}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_S)
            alive = self._alive()
            self._positions = {n: positions for n, positions in self._positions.items() if n in alive}
            held = {**self._positions, NodeID(0): self._awaited()}
            holds = [LogHold(n, p, position) for n, of in held.items() for p, position in of.items()]
            try:
                await self._data.hold_log(tuple(holds))
            except ElanusError as error:
                _log.info("log positions not reported", error=error.message)

    def _awaited(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for vchannel in self._recovering():
            pchannel, position = pchannel_of(vchannel.vchannel), vchannel.checkpoint.position
            found[pchannel] = min(found.get(pchannel, position), position)
        return found
