"""The vchannels that a data node owns, each with its progress.

Assignments and releases carry epochs and may be duplicated or delayed. Only what is newer than everything
known about a vchannel is applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from elanus.api.datacoord import ChannelAssignment
from elanus.core.catalog import Checkpoint
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datanode.progress import ChannelProgress


class OwnedChannels:
    """Belongs to one event loop. Iterating yields the progress of each vchannel.

    ``left`` is called with each vchannel that is owned no more.
    """

    def __init__(self, left: Callable[[str], None] = lambda _: None) -> None:
        self._left = left
        self._channels: dict[str, ChannelProgress] = {}
        self._released: dict[str, int] = {}
        """For vchannels that others own now: the epoch under which this node owned them."""
        self.moved = asyncio.Event()
        """Set when a tick or a checkpoint has moved; the reporter clears it."""
        self.pending: dict[str, ChannelProgress] = {}
        """The vchannels with writes beyond their checkpoints."""
        self.asked: dict[str, Timestamp] = {}
        """The ticks that datacoord wants to see as soon as they have been read."""
        self.new: dict[str, None] = {}
        """The vchannels that have not been reported since they were assigned."""

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

    def assign(self, assignments: Sequence[ChannelAssignment]) -> Sequence[ChannelProgress]:
        """Apply the new assignments. Returns the vchannels to follow from their checkpoints on."""
        new = [a for a in assignments if a.epoch > self._newest_epoch(a.vchannel)]
        for assignment in new:
            self.remove(assignment.vchannel)
            self._channels[assignment.vchannel] = ChannelProgress(assignment)
            self.new[assignment.vchannel] = None
        return [self._channels[a.vchannel] for a in new]

    def ask(self, vchannel: str, at_least: Timestamp) -> None:
        """Have the vchannel reported when it has been read so far; without effect if it is not owned."""
        if vchannel in self._channels:
            self.asked[vchannel] = max(at_least, self.asked.get(vchannel, NO_TIMESTAMP))
            self.moved.set()

    def reported(self, vchannel: str, tick: Timestamp) -> None:
        """Datacoord has seen this tick of the vchannel."""
        self.new.pop(vchannel, None)
        if self.asked.get(vchannel, NO_TIMESTAMP) <= tick:
            self.asked.pop(vchannel, None)

    def taken(self, channel: ChannelProgress) -> None:
        """The vchannel has taken a pack."""
        if channel.has_pending() and self._channels.get(channel.vchannel) is channel:
            self.pending[channel.vchannel] = channel

    def committed(self, vchannel: str, checkpoint: Checkpoint) -> None:
        """Everything of the vchannel up to the checkpoint is in binlogs now."""
        channel = self._channels[vchannel]
        channel.committed(checkpoint)
        if not channel.has_pending():
            self.pending.pop(vchannel, None)
        self.moved.set()

    def release(self, vchannel: str, owned_under: int) -> bool:
        """Another node owns the vchannel now. Returns whether this node owned it, under that epoch."""
        self._released[vchannel] = max(owned_under, self._released.get(vchannel, 0))
        is_owned = self.owns(vchannel, owned_under)
        if is_owned:
            self.remove(vchannel)
        return is_owned

    def remove(self, vchannel: str) -> None:
        """Forget a vchannel and follow it no more."""
        channel = self._channels.pop(vchannel, None)
        self.new.pop(vchannel, None)
        self.pending.pop(vchannel, None)
        self.asked.pop(vchannel, None)
        if channel is not None:
            channel.leave()
            self._left(vchannel)

    def clear(self) -> None:
        """Forget all vchannels. Their readers are stopped elsewhere."""
        self._channels.clear()
        self.pending.clear()
        self.asked.clear()
        self.new.clear()
        self._released.clear()

    def _newest_epoch(self, vchannel: str) -> int:
        channel = self._channels.get(vchannel)
        return max(self._released.get(vchannel, 0), channel.epoch if channel is not None else 0)
