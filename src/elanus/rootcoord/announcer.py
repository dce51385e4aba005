"""How a definition is written to the channels: in order with the writes.

A definition takes a timestamp and, in the pchannels it concerns, holds the ticks back below it until its
message is in all of them. So each reader of a channel reads a collection's creation before its first row and
its drop after its last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from elanus.core.catalog import Checkpoint
from elanus.core.channels import pchannel_name, pchannel_of, vchannel_name
from elanus.core.ids import ALL_PARTITIONS, CollectionID, PartitionID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp, before
from elanus.log.port import EntryHeader, Log, NewEntry, Position
from elanus.rootcoord.timesync import TimeSync
from elanus.rootcoord.tso import TimestampOracle


class Announcer:
    """``pchannels_max``: how many physical channels the collections share."""

    def __init__(self, log: Log, oracle: TimestampOracle, sync: TimeSync, pchannels_max: int) -> None:
        self._log = log
        self._oracle = oracle
        self._sync = sync
        self._pchannels_max = pchannels_max

    def place_shards(
        self, collection_id: CollectionID, shards: int, others: Mapping[str, int]
    ) -> tuple[str, ...]:
        """One vchannel per shard, on the pchannels that carry the fewest vchannels first.

        ``others``: how many vchannels each pchannel carries. Pchannels that are refused get none, if there
        are any others.
        """
        names = [pchannel_name(n) for n in range(self._pchannels_max)]  # fewer, perhaps, than are in use
        names = [name for name in names if name not in self._sync.refused()] or names
        load = {pchannel: others.get(pchannel, 0) for pchannel in names}
        order = sorted(load, key=load.__getitem__)
        return tuple(vchannel_name(order[n % len(order)], collection_id, n) for n in range(shards))

    async def use(self, vchannels: Iterable[str]) -> None:
        """Tick the vchannels' pchannels from now on. Raises what `TimeSync.use` raises."""
        await self._sync.use(map(pchannel_of, vchannels), self._oracle.allocate())

    async def resume(self, vchannels: Iterable[str]) -> None:
        """As `use`, for those that exist. A pchannel that takes no entry does not keep the others back."""
        await self._sync.resume(map(pchannel_of, vchannels), self._oracle.allocate())

    def check_taken(self, vchannels: Iterable[str]) -> None:
        """Raise `ChannelRewound`, `Unavailable` or `DiskFull` if one of them takes no entry: before anything
        is changed."""
        self._sync.check_taken(map(pchannel_of, vchannels))

    def unuse(self, vchannels: Iterable[str], others: Mapping[str, int]) -> None:
        """Stop ticking those of the vchannels' pchannels that carry no others. ``others``: as in
        `place_shards`."""
        self._sync.unuse({p for p in map(pchannel_of, vchannels) if not others.get(p)})

    @asynccontextmanager
    async def barrier(self, vchannels: Iterable[str]) -> AsyncIterator[Timestamp]:
        """A timestamp that no tick of their pchannels reaches before the block has ended."""
        ts = self._oracle.allocate()
        self._sync.begin_ddl(ts, map(pchannel_of, vchannels))
        try:
            yield ts
        finally:
            self._sync.end_ddl(ts)

    async def announce(
        self,
        kind: MsgKind,
        ts: Timestamp,
        collection_id: CollectionID,
        vchannels: tuple[str, ...],
        partition_id: PartitionID = ALL_PARTITIONS,
    ) -> dict[str, Checkpoint]:
        """Write the message into every vchannel, durably. Returns its position in each."""

        async def write(vchannel: str) -> Checkpoint:
            pchannel = pchannel_of(vchannel)
            tick = self._sync.tick_of(pchannel)
            header = EntryHeader(kind, ts, vchannel, collection_id, partition_id)
            positions = await self._log.append(pchannel, [NewEntry(header)])
            return Checkpoint(before(ts), Position(positions[0]), tick, self._sync.epoch)

        return dict(zip(vchannels, await asyncio.gather(*map(write, vchannels)), strict=True))
