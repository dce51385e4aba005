"""How a loaded collection takes in what its followers read: rows, deletes, and dropped partitions.

A follower has added the rows of packs to its growing segments. Here the other effects of the packs are
applied, and all of it is shown to reads. Deletes are applied in threads, because many of them take long. No
read sees them before they have been applied to every segment: only then does the vchannel's tick move past
them.
"""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.ids import PartitionID
from elanus.querynode.followed_vchannel import FollowedVchannel
from elanus.querynode.follower import Follower, PackEffect
from elanus.querynode.growing import GrowingBlock
from elanus.querynode.loaded_collection import LoadedCollection


class PackAbsorber:
    """Implements `elanus.querynode.follower.Absorber` for the followers of a collection."""

    def __init__(self, collection: LoadedCollection) -> None:
        self._collection = collection

    async def absorb(self, follower: Follower, effect: PackEffect) -> None:
        """Apply the effect of packs that a follower has taken in, and publish it: its tick moves after this.

        No follower takes over from another meanwhile (`FollowedVchannel.settle`).
        """
        channel = self._collection.channels[follower.vchannel]
        key_name = self._collection.schema.primary_field.name
        deletes = await self._collection.applier.sort(effect.deleting, key_name)
        if not self._follows(channel, follower):
            return
        late = channel.writes.of_later_rows(follower.tick)
        visits = follower.growing.concerned([*deletes, *late])
        if channel.follower is follower:
            channel.deletes.keep(effect.tick, deletes)
            visits += self._collection.sealed_visits(channel.vchannel, deletes)
        await self._collection.applier.apply(visits)
        if self._follows(channel, follower):
            self._finish(channel, follower, effect)

    def _follows(self, channel: FollowedVchannel, follower: Follower) -> bool:
        return self._collection.closed is None and follower in channel.followers()

    def _finish(self, channel: FollowedVchannel, follower: Follower, effect: PackEffect) -> None:
        """The effect's deletes have been applied: do the rest of it."""
        if effect.dropped_partitions:
            self._collection.release_segments(follower.restrict(follower.coverage))
        if channel.follower is follower:
            self._drop_partitions(channel.vchannel, effect.dropped_partitions)
            if effect.drops_collection:
                self._collection.on_drop(self._collection.collection_id)
                return
        if effect.dropped_partitions:
            self._collection.publish()
        else:
            self._collection.publish_rows(channel)

    def queued(self, follower: Follower) -> None:
        """A follower has taken packs that it applies later: they are held in memory meanwhile."""
        channel = self._collection.channels[follower.vchannel]
        if self._follows(channel, follower):
            self._collection.weigh(channel)

    def exchanged(self, follower: Follower, gone: Sequence[GrowingBlock]) -> None:
        """A larger block has taken the place of these blocks; none: their segment had been released."""
        channel = self._collection.channels[follower.vchannel]
        if not self._follows(channel, follower):
            return
        if gone:
            self._collection.release_blocks(gone)
            self._collection.publish_rows(channel)
        else:
            self._collection.weigh(channel)

    def absorbed(self, follower: Follower) -> None:
        """A follower's tick has moved past an effect: wake who waits for that."""
        channel = self._collection.channels[follower.vchannel]
        if not self._follows(channel, follower):
            return
        if channel.successor is not None or not channel.joined:
            self._collection.settle(channel)
            self._collection.publish()
        else:
            self._collection.weigh(channel)
        self._collection.clock.rewatch_soon()

    def ticked(self, follower: Follower) -> bool:
        """A follower's tick may have moved without an effect.

        Returns whether to call this at the next tick: until the vchannel has caught up and no follower waits
        to take over.
        """
        channel = self._collection.channels[follower.vchannel]
        if not self._follows(channel, follower):
            return False
        self._collection.settle(channel)
        self._collection.publish()
        return channel.failure is None and not (channel.joined and channel.successor is None)

    def failed(self, follower: Follower) -> None:
        """Nothing more comes from a follower: its reading has ended in an error."""
        channel = self._collection.channels[follower.vchannel]
        if self._follows(channel, follower):
            self._collection.settle(channel)
            if channel.failure is not None:
                channel.gone()
                self._collection.log_troubles.failed(follower)
                if text := self._collection.log_troubles.texts.get(follower.vchannel):
                    self._collection.clock.stop(text)
            self._collection.publish()

    def _drop_partitions(self, vchannel: str, dropped: frozenset[PartitionID]) -> None:
        if dropped:
            self._collection.drop_sealed(lambda s: s.vchannel == vchannel and s.partition_id in dropped)
