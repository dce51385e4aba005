"""What datacoord asks of a data node."""

from __future__ import annotations

from typing import Protocol

from elanus.core.ids import SegmentID
from elanus.rpc.datacoord import ChannelAssignment


class DataNodeApi(Protocol):
    async def watch_channels(self, channels: tuple[ChannelAssignment, ...]) -> None:
        """Own these vchannels as well, from their checkpoints on."""
        ...

    async def flush_segments(self, vchannel: str, segment_ids: tuple[SegmentID, ...]) -> None:
        """Bring the vchannel up to its current tick into binlogs and commit these segments as flushed.

        Returns when the order is noted; datacoord hears of the result through `commit_range`.
        """
        ...

    async def sync_channel(self, vchannel: str) -> None:
        """As `flush_segments` without completing any segment: moves the checkpoint on."""
        ...
