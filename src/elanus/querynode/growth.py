"""The memory of a collection that grows with the log: what each of its vchannels takes.

These are growing rows, packs that have not been applied yet, and deletes kept for segments loaded later.
After a step that changes one vchannel, only that one is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from elanus.querynode.followed_vchannel import FollowedVchannel


class Growth:
    """For the loop thread. ``on_growth``: called after each look, with the change of ``total_bytes``, which
    may be 0."""

    def __init__(self, on_growth: Callable[[int], None]) -> None:
        self.total_bytes = 0
        self._on_growth = on_growth
        self._by_vchannel: dict[str, int] = {}

    def weigh_all(self, channels: Iterable[FollowedVchannel]) -> None:
        """Look at all vchannels of the collection; there are no others."""
        self._by_vchannel = {channel.vchannel: weight_bytes(channel) for channel in channels}
        now_bytes = sum(self._by_vchannel.values())
        self._on_growth(now_bytes - self.total_bytes)
        self.total_bytes = now_bytes

    def weigh(self, channel: FollowedVchannel) -> None:
        """Look at one vchannel: only that one may have changed."""
        now_bytes = weight_bytes(channel)
        change_bytes = now_bytes - self._by_vchannel.get(channel.vchannel, 0)
        self._by_vchannel[channel.vchannel] = now_bytes
        self._on_growth(change_bytes)
        self.total_bytes += change_bytes


def weight_bytes(channel: FollowedVchannel) -> int:
    return channel.deletes.memory_bytes + sum(f.growing_bytes for f in channel.followers())
