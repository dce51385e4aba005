"""What datacoord asks of a data node.

Every order carries the epoch of the registration it is meant for. A node that has heard of a later one
refuses it (`CommitRefused`): the order comes from a coordinator that was replaced, or was meant for an
earlier life of the process at this address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elanus.core.ids import SegmentID
from elanus.rpc.datacoord import ChannelAssignment


@dataclass(frozen=True, slots=True)
class FlushReason:
    """Why a range is to be written, and who waits for it: for the job ledger."""

    cause: str
    waiting: tuple[str, ...] = ()


class DataNodeApi(Protocol):
    async def watch_channels(self, epoch: int, channels: tuple[ChannelAssignment, ...]) -> None:
        """Own these vchannels as well, from their checkpoints on."""
        ...

    async def flush_segments(
        self, epoch: int, vchannel: str, segment_ids: tuple[SegmentID, ...], reason: FlushReason
    ) -> None:
        """Bring the vchannel up to its current tick into binlogs and commit these segments as flushed.

        Returns when the order is noted; datacoord hears of the result through `commit_range`. Without
        segments only the checkpoint moves on.
        """
        ...
