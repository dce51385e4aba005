"""Flushes that clients request: all growing segments are sealed at once, and flushed soon."""

from __future__ import annotations

from elanus.api.datacoord import FlushOutcome
from elanus.api.early_ticks import request_early_tick
from elanus.api.fencing import while_active
from elanus.core.errors import CollectionNotFound
from elanus.core.ids import CollectionID, SegmentID
from elanus.core.segments import SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.context import DataContext
from elanus.datacoord.flushing import Flushing


class RequestedFlushes:
    """Implements `elanus.api.datacoord.FlushCalls`."""

    def __init__(self, context: DataContext, flushing: Flushing) -> None:
        self._lease = context.lease
        self._state = context.state
        self._rootcoord = context.rootcoord
        self._lock = context.lock
        self._spawn = context.spawn
        self._flushing = flushing

    async def flush(self, collection_id: CollectionID) -> FlushOutcome:
        """Seal the collection's growing segments and flush them soon. The lease is checked: a replaced
        coordinator does not know the segments that its successor has opened, and would report that there is
        nothing to seal."""
        async with while_active(self._lease), self._lock:
            if not any(not v.dropping for v in self._state.vchannels_of(collection_id)):
                raise CollectionNotFound(f"collection not found[collection={collection_id}]")
            flush_ts = await self._rootcoord.alloc_timestamp(1)
            await self._flushing.seal_all(collection_id, flush_ts)
            segments = self._state.segments_of(collection_id)
        vchannels = [v.vchannel for v in self._state.vchannels_of(collection_id)]
        self._spawn(request_early_tick(self._rootcoord, vchannels, flush_ts))
        return FlushOutcome(
            sealed=tuple(
                s.segment_id for s in segments if s.state in (SegmentState.SEALED, SegmentState.FLUSHING)
            ),
            flushed=tuple(s.segment_id for s in segments if s.state is SegmentState.FLUSHED),
            flush_ts=flush_ts,
        )

    async def flush_finished(
        self, collection_id: CollectionID, segment_ids: tuple[SegmentID, ...], flush_ts: Timestamp
    ) -> bool:
        done = (SegmentState.FLUSHED, SegmentState.DROPPED)
        async with while_active(self._lease):
            for segment_id in segment_ids:
                info = self._state.find_segment(segment_id)
                if info is not None and info.state not in done:
                    return False
            if flush_ts == NO_TIMESTAMP:
                return True
            state = self._state
            unflushed = state.unflushed_of(collection_id) if collection_id else state.unflushed()
            return not any(s.created <= flush_ts for s in unflushed)
