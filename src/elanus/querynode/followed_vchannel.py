"""One vchannel of a loaded collection: its followers, and its deletes since the oldest checkpoint in use.

One follower is served: its rows are read, and its deletes reach the sealed segments. To take in partitions
that were not wanted before, the vchannel is followed again from a checkpoint: a second follower catches up,
and takes over when both have reached the same tick, so nothing is seen twice or left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from elanus.api.query_channel import MissingSegment
from elanus.api.querynode import UnrecoveredSegment
from elanus.core.errors import Unavailable
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.log.tick_line import Watcher
from elanus.querynode.coverage import Coverage
from elanus.querynode.deletes import DeleteBuffer
from elanus.querynode.follower import Follower
from elanus.querynode.growing import GrowingSegment
from elanus.querynode.write_deletes import WriteDeletes


class FollowedVchannel:
    """A vchannel with its followers. For the loop thread.

    ``follower``: the one that is served. ``successor``: one that will be. ``rows``: whether growing rows are
    wanted, or deletes only. ``joined``: the vchannel has caught up with what the collection serves, and from
    then on counts towards the collection's service time.
    """

    def __init__(self, vchannel: str) -> None:
        self.vchannel = vchannel
        self.rows = False
        self.joined = False
        self.deletes = DeleteBuffer(NO_TIMESTAMP)
        self.writes = WriteDeletes()
        self.follower: Follower | None = None
        self.successor: Follower | None = None
        self._settled = asyncio.Event()
        self._caught_up = asyncio.Event()

    @property
    def tick(self) -> Timestamp:
        return NO_TIMESTAMP if self.follower is None else self.follower.tick

    @property
    def failure(self) -> str | None:
        return None if self.follower is None else self.follower.failure

    def unrecovered(self) -> tuple[UnrecoveredSegment, ...]:
        """Return the segments whose rows are not here, because their binlogs could not be read."""
        return () if self.follower is None else self.follower.unrecovered()

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher`` after the next tick. May be called by any thread."""
        follower = self.follower
        if follower is not None:
            follower.watch(watcher)

    def followers(self) -> list[Follower]:
        return [f for f in (self.follower, self.successor) if f is not None]

    def holds(self, wanted: Coverage) -> bool:
        """Whether the vchannel is followed and everything wanted from it has been taken in."""
        if self.follower is None:
            return False
        return not self.rows or self.follower.coverage.includes(wanted)

    def join(self, served: Timestamp) -> None:
        """Join the service time if the vchannel has reached ``served``."""
        if not self.joined and self.follower is not None and self.tick >= served:
            self.joined = True
            self._caught_up.set()

    def gone(self) -> None:
        """The vchannel will not be followed any more: wake everyone who waits for it."""
        self._settled.set()
        self._caught_up.set()

    async def caught_up(self) -> None:
        """Wait until the vchannel has joined. Raises `Unavailable` when it will not."""
        await self._caught_up.wait()
        self.check_alive()
        if self.follower is None:
            raise Unavailable(f"vchannel {self.vchannel} is not followed any more: it was released")

    def check_alive(self) -> None:
        """Raise `Unavailable` if following the vchannel has ended in an error."""
        if self.failure is not None:
            raise Unavailable(
                f"vchannel {self.vchannel} is not followed any more ({self.failure}): release the collection "
                "and load it again"
            )

    def propose(self, follower: Follower) -> None:
        """Register a follower that prepares to start. Segments released meanwhile are released for it too."""
        if self.follower is not None:
            follower.excluded |= self.follower.excluded
        self.successor = follower
        self._settled = asyncio.Event()

    def settle(self) -> Follower | None:
        """Let the successor take over if it can; return the follower that is no longer needed.

        Both must have applied the same packs, and be applying none: only one of them reaches sealed segments.
        """
        successor, predecessor = self.successor, self.follower
        if successor is None or not successor.started:
            return None
        if predecessor is None:
            self.deletes = DeleteBuffer(successor.tick)
        elif successor.failure is not None or predecessor.failure is not None:
            self.withdraw(successor)
            return successor
        elif successor.is_busy or predecessor.is_busy or successor.tick != predecessor.tick:
            return None
        self.follower = successor
        self.withdraw(successor)
        return predecessor

    def withdraw(self, follower: Follower) -> None:
        """The follower is no longer a successor."""
        if self.successor is follower:
            self.successor = None
            self._settled.set()

    async def taken_over(self, follower: Follower) -> None:
        """Wait until the follower is served. Raises `Unavailable` when it will not be."""
        await self._settled.wait()
        if self.follower is not follower:
            self.check_alive()
            reason = follower.failure or "it was released"
            raise Unavailable(f"vchannel {self.vchannel} cannot be followed again: {reason}")

    def narrow(self, partition_ids: Iterable[PartitionID]) -> list[GrowingSegment]:
        """Take in only these partitions from now on; return the growing segments of others."""
        named = tuple(partition_ids)
        return [segment for f in self.followers() for segment in f.restrict(f.coverage.narrowed(named))]

    def stop_leading(self) -> list[GrowingSegment]:
        """Follow it only for its deletes from now on; return its growing segments."""
        self.rows = False
        return self.narrow(())

    def release(self, segment_ids: set[SegmentID]) -> list[GrowingSegment]:
        """Release growing segments permanently; return those that were held."""
        return [segment for f in self.followers() for segment in f.release(segment_ids)]


def gaps_of(channels: Iterable[FollowedVchannel]) -> dict[SegmentID, MissingSegment]:
    """Return the segments whose rows are not here, as what a version lacks."""
    found = (segment for channel in channels for segment in channel.unrecovered())
    return {s.segment_id: MissingSegment(s.partition_id, s.reason) for s in found}
