"""The vchannels that a data node owns, each with its progress.

Assignments and releases carry epochs and may be duplicated or delayed. Only what is newer than everything
known about a vchannel is applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from elanus.api.datacoord import ChannelAssignment
from elanus.core.channels import pchannel_of
from elanus.datanode.progress import ChannelProgress


class OwnedChannels:
    """Belongs to one event loop. Iterating yields the progress of each vchannel."""

    def __init__(self) -> None:
        self._channels: dict[str, ChannelProgress] = {}
        self._released: dict[str, int] = {}
        """For vchannels that others own now: the epoch under which this node owned them."""
        self.moved = asyncio.Event()
        """Set when a tick or a checkpoint has moved; the reporter clears it."""

    def __iter__(self) -> Iterator[ChannelProgress]:
        return iter(self._channels.values())

    def __getitem__(self, vchannel: str) -> ChannelProgress:
        return self._channels[vchannel]

    def get(self, vchannel: str) -> ChannelProgress | None:
        return self._channels.get(vchannel)

    def owns(self, vchannel: str, epoch: int) -> bool:
        """Whether the vchannel is owned under exactly this epoch."""
        channel = self._channels.get(vchannel)
        return channel is not None and channel.epoch == epoch

    def is_live(self, vchannel: str) -> bool:
        """Whether the vchannel is owned and its collection has not been dropped."""
        channel = self._channels.get(vchannel)
        return channel is not None and not channel.ended

    def on(self, pchannel: str) -> Sequence[ChannelProgress]:
        """The owned vchannels of a pchannel."""
        return [c for c in self._channels.values() if pchannel_of(c.vchannel) == pchannel]

    def assign(self, assignments: Sequence[ChannelAssignment]) -> Sequence[str]:
        """Apply the new assignments. Returns the pchannels to read from their checkpoints on."""
        new = [a for a in assignments if a.epoch > self._newest_epoch(a.vchannel)]
        self._channels |= {a.vchannel: ChannelProgress(a) for a in new}
        return tuple(dict.fromkeys(pchannel_of(a.vchannel) for a in new))

    def release(self, vchannel: str, owned_under: int) -> bool:
        """Another node owns the vchannel now. Returns whether this node owned it, under that epoch."""
        self._released[vchannel] = max(owned_under, self._released.get(vchannel, 0))
        is_owned = self.owns(vchannel, owned_under)
        if is_owned:
            del self._channels[vchannel]
        return is_owned

    def remove(self, vchannel: str) -> None:
        """Forget a vchannel whose collection was dropped."""
        self._channels.pop(vchannel, None)

    def rewind(self, pchannel: str) -> bool:
        """Forget what has been read beyond the checkpoints. Returns whether there is anything to follow."""
        channels = self.on(pchannel)
        for channel in channels:
            self._channels[channel.vchannel] = ChannelProgress(channel.assignment)
        return bool(channels)

    def clear(self) -> None:
        self._channels.clear()
        self._released.clear()

    def _newest_epoch(self, vchannel: str) -> int:
        channel = self._channels.get(vchannel)
        return max(self._released.get(vchannel, 0), channel.epoch if channel is not None else 0)
