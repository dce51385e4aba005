"""The conditions that hold on a query node between any two steps of its loop.

``VIS2`` a row is served exactly once: a version names one copy of each segment, and no growing segment is
served together with its sealed copy. ``TT3`` a service time is the lowest tick of its vchannels. ``DEL2`` a
delete concerns older rows only. The kept pulse agrees with the collections (`elanus.querynode.kept_pulse`):
by it querycoord finds collections that are not served (``LIVE1``), and how much of the log is needed
(``DUR1``).
"""

from __future__ import annotations

from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP
from elanus.querynode.block import Block
from elanus.querynode.loaded_collection import LoadedCollection


def check_collection(collection: LoadedCollection) -> None:
    """Raise `AssertionError`, naming the broken invariant."""
    snapshot = collection.snapshot
    served = [segment.segment_id for segment in snapshot.segments]
    assert len(served) == len(set(served)), f"VIS2: segments served twice: {sorted(served)}"
    growing = {
        segment_id
        for vchannel in collection.leads
        if (follower := collection.channels[vchannel].follower) is not None
        for segment_id in follower.growing
    }
    assert not growing & collection.serving.keys(), f"VIS2: growing and sealed: {growing}"
    for channel in collection.channels.values():
        for follower in channel.followers():
            on_channel = {s.segment_id for s in collection.serving.values() if s.vchannel == channel.vchannel}
            assert on_channel <= follower.excluded, f"VIS2: rows of {on_channel} may be taken in again"
            assert not follower.growing.keys() & follower.excluded, (
                f"VIS2: released and held: {follower.vchannel}"
            )
    _check_time(collection)
    for segment in snapshot.segments:
        partition_id = segment.partition_id
        served_partition = snapshot.partitions is None or partition_id in snapshot.partitions
        assert served_partition, f"VIS2: segment {segment.segment_id} of partition {partition_id} is served"
        for block in segment.blocks:
            _check_block(block)


def _check_time(collection: LoadedCollection) -> None:
    counting = (c for c in collection.channels.values() if c.joined or c.vchannel in collection.leads)
    ticks = [channel.tick for channel in counting]
    served = collection.snapshot.service_ts
    assert collection.clock.time == served, f"TT3: clock {collection.clock.time}, snapshot {served}"
    assert served in (NO_TIMESTAMP, min(ticks, default=served)), f"TT3: {served} of ticks {ticks}"


def _check_block(block: Block) -> None:
    assert len(block.keys) == block.rows == len(block.row_ts), "VIS2: columns of different lengths"
    if block.deleted_ts is not None:
        # Neither deleted nor ever visible: a row that a clone leaves out.
        never = block.row_ts == MAX_TIMESTAMP
        assert (never | (block.deleted_ts > block.row_ts)).all(), "DEL2: a row deleted before it was written"
