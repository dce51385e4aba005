"""Commits of ranges and moves of checkpoints: datacoord is called until it answers; the progress follows.

Datacoord recognizes a repeated call. It refuses commits and moves for vchannels that were dropped or given to
another node meanwhile, which is no failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from elanus.api.datacoord import CheckpointMove, DataCoordApi, RangeCommit
from elanus.core.catalog import Checkpoint
from elanus.core.errors import CommitRefused, DeadlineExceeded, Unavailable
from elanus.datanode.ownership import OwnedChannels
from elanus.datanode.policy import RETRY_PAUSE_S

T = TypeVar("T")
_log = structlog.get_logger("datanode")


class RangeCommits:
    """Both methods raise `CommitRefused` if datacoord refuses something that this node still owns: then what
    the node knows is out of date."""

    def __init__(self, datacoord: DataCoordApi, owned: OwnedChannels) -> None:
        self._datacoord = datacoord
        self._owned = owned

    async def commit(self, commit: RangeCommit) -> None:
        try:
            await self._answered(lambda: self._datacoord.commit_range(commit))
        except CommitRefused:
            if self.is_still_ours(commit.vchannel, commit.epoch):
                raise
            return
        self._committed(commit.vchannel, commit.epoch, commit.checkpoint)

    async def move(self, moves: Sequence[CheckpointMove]) -> None:
        """Move checkpoints over ranges without writes, all in one call."""
        if not moves:
            return
        refused = await self._answered(lambda: self._datacoord.move_checkpoints(tuple(moves)))
        for move in moves:
            if move.vchannel not in refused:
                self._committed(move.vchannel, move.epoch, move.checkpoint)
            elif self.is_still_ours(move.vchannel, move.epoch):
                raise CommitRefused(refused[move.vchannel])

    def is_still_ours(self, vchannel: str, epoch: int) -> bool:
        """Whether this node owns the vchannel under this epoch, and its collection has not been dropped."""
        return self._owned.is_live(vchannel) and self._owned.owns(vchannel, epoch)

    def _committed(self, vchannel: str, epoch: int, checkpoint: Checkpoint) -> None:
        if self._owned.owns(vchannel, epoch):
            self._owned.committed(vchannel, checkpoint)

    async def _answered(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except (Unavailable, DeadlineExceeded) as error:
                _log.info("commit not answered; trying again", error=error.message)
                await asyncio.sleep(RETRY_PAUSE_S)
