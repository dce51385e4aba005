"""Marking segments and vchannels as dropped. Garbage collection deletes their files later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from elanus.core.segments import SegmentInfo, SegmentState
from elanus.datacoord.context import DataContext
from elanus.datacoord.vchannel_table import Vchannel
from elanus.meta.turns import in_turns


async def drop_segments(
    context: DataContext, segments: Iterable[SegmentInfo], vchannel: Vchannel | None = None
) -> None:
    """Mark the segments, and the vchannel if given, as dropped. Called under the lock, without which no
    segment changes meanwhile."""
    now = await context.rootcoord.alloc_timestamp(1)
    dropped = [
        replace(s, state=SegmentState.DROPPED, dropped=now)
        async for s in in_turns(segments)
        if s.state is not SegmentState.DROPPED
    ]
    ended = [] if vchannel is None else [replace(vchannel, dropping=True, dropped=now)]
    await context.state.put(dropped, ended)
    for segment in dropped:
        context.allocator.forget(segment.segment_id)
