"""Checkpoints that move without a job: up to them, the log has no writes of their vchannels.

A node with thousands of idle vchannels moves their checkpoints all the time, so that the log can be trimmed.
They move together: one sync of each pchannel's log, and one change of the metadata.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from elanus.api.datacoord import CheckpointMove
from elanus.core.channels import pchannel_of
from elanus.core.errors import CommitRefused
from elanus.datacoord.context import DataContext
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.vchannel_table import Vchannel
from elanus.log.port import Log


class Checkpoints:
    """Implements `elanus.api.datacoord.CheckpointCalls`."""

    def __init__(self, context: DataContext, datanodes: DataNodes, log: Log) -> None:
        self._state = context.state
        self._lock = context.lock
        self._datanodes = datanodes
        self._log = log

    async def move_checkpoints(self, moves: tuple[CheckpointMove, ...]) -> dict[str, str]:
        # A checkpoint must never be beyond what the log has durably stored.
        pchannels = dict.fromkeys(pchannel_of(move.vchannel) for move in moves)
        await asyncio.gather(*map(self._log.sync, pchannels))
        refused: dict[str, str] = {}
        moved: list[Vchannel] = []
        async with self._lock:
            for move in moves:
                try:
                    vchannel = self._checked(move)
                except CommitRefused as error:
                    refused[move.vchannel] = error.message
                    continue
                if vchannel.checkpoint != move.checkpoint:
                    moved.append(replace(vchannel, checkpoint=move.checkpoint))
            await self._state.put(vchannels=moved)
        return refused

    def _checked(self, move: CheckpointMove) -> Vchannel:
        """Return the vchannel. A move that was made before is accepted again."""
        self._datanodes.check_owner(move.vchannel, move.epoch)
        vchannel = self._state.vchannel(move.vchannel)
        if vchannel is None or vchannel.dropped:
            raise CommitRefused(f"vchannel {move.vchannel} is dropped")
        if vchannel.checkpoint not in (move.expected, move.checkpoint):
            raise CommitRefused(
                f"the checkpoint of {move.vchannel} is at {vchannel.checkpoint.ts}, "
                f"the range began at {move.expected.ts}"
            )
        if move.checkpoint.ts < vchannel.checkpoint.ts:
            raise CommitRefused(f"the range of {move.vchannel} ends before it begins")
        return vchannel
