"""From growing to flushing: which segments are sealed, and which may be flushed now.

Every method is called under the role's lock and leaves the states persisted. The data node's range and its
commit, which follow the order, are in `elanus.datacoord.commits`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

import structlog

from elanus.api.datacoord import DataNodeTick
from elanus.api.datanode import FlushReason
from elanus.api.proxy import ProxyApi
from elanus.api.rootcoord import RootCoordApi
from elanus.core.channels import pchannel_of
from elanus.core.errors import ElanusError
from elanus.core.ids import CollectionID, SegmentID
from elanus.core.nodes import Nodes
from elanus.core.sealing import SealPolicy, may_flush, seal_cause
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.flush_causes import CALLED, FlushCauses
from elanus.datacoord.forced_flushes import ForcedFlushes
from elanus.datacoord.segment_allocator import SegmentAllocator
from elanus.datacoord.state import DataState

_RETURN_WAIT_S = 1.0
_NOTES_MIN = 64
_log = structlog.get_logger("datacoord")

Orders = dict[str, tuple[SegmentID, ...]]
"""The segments to flush, per vchannel; an empty tuple only advances the vchannel's checkpoint."""


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """``sync_bytes``: how much of a vchannel may be in the log alone before a range is ordered."""

    seal: SealPolicy
    sync_bytes: int


class Flushing:
    def __init__(
        self,
        state: DataState,
        allocator: SegmentAllocator,
        rootcoord: RootCoordApi,
        proxies: Nodes[ProxyApi],
        policy: FlushPolicy,
    ) -> None:
        self._state = state
        self._allocator = allocator
        self._rootcoord = rootcoord
        self._proxies = proxies
        self._policy = policy
        self._ordered: dict[SegmentID, int] = {}
        """The epoch under which the vchannel's owner has accepted the order. An earlier owner's acceptance
        does not count, whenever its answer arrives."""
        self._causes = FlushCauses()
        self._notes_max = _NOTES_MIN
        """How many notes about segments are kept before those that ended are looked for."""
        self.forced = ForcedFlushes(state)

    async def seal_all(self, collection_id: CollectionID, flush_ts: Timestamp) -> None:
        """Seal the collection's growing segments, and have all writes up to ``flush_ts`` in binlogs soon.

        The seal is timestamped after every proxy has returned its allocations, or can write no more, so no
        later write can carry the id of one of these segments. If a proxy does not answer, the seal is set to
        the allocations' expiry.
        """
        unflushed = self._state.unflushed_of(collection_id)
        growing = [s for s in unflushed if s.state is SegmentState.GROWING]
        self._causes.called(s.segment_id for s in unflushed)
        sealed_at = await self._seal(collection_id, growing) if growing else flush_ts
        # Up to the seal: a range that ends earlier would be an extra job before the one that completes
        # segments.
        vchannels = [v.vchannel for v in self._state.vchannels_of(collection_id)]
        self.forced.want(vchannels, max(flush_ts, sealed_at), CALLED)

    async def _seal(self, collection_id: CollectionID, growing: list[SegmentInfo]) -> Timestamp:
        used_until = await self._return_allocations(collection_id)
        sealed_at = await self._rootcoord.alloc_timestamp(1)
        if used_until is not None:
            sealed_at = max(sealed_at, used_until)
            self._allocator.returned(collection_id)
        else:
            sealed_at = max(sealed_at, *(s.last_expire for s in growing))
        for segment in growing:
            self._causes.sealed(segment.segment_id, CALLED)
        await self._state.put([_sealed(s, sealed_at) for s in growing])
        return sealed_at

    async def _return_allocations(self, collection_id: CollectionID) -> Timestamp | None:
        """Return a timestamp that no write with the allocations exceeds, or 0, as the proxies do; None if not
        every one has returned its allocations. Waits no longer than they would take to expire.

        A proxy without a session is not asked. It may not know yet that its session has ended (revoked by
        hand, or the machine was suspended with its clock) and still write to the segments, so the log must
        take none of its entries any more before the seal is stamped.
        """
        pchannels = {pchannel_of(v.vchannel) for v in self._state.vchannels_of(collection_id)}
        try:
            async with asyncio.timeout(_RETURN_WAIT_S):
                await self._proxies.refresh()
                returns = (p.return_allocations(collection_id) for p in self._proxies.values())
                used_until = max(await asyncio.gather(*returns), default=NO_TIMESTAMP)
                await self._rootcoord.fence_gone(tuple(sorted(pchannels)))
        except (ElanusError, TimeoutError) as error:
            _log.warning("allocations not returned; waiting for their expiry", error=str(error))
            return None
        return used_until

    async def seal_by_policy(self, ticks: Mapping[str, DataNodeTick]) -> None:
        """Seal full, old and idle segments of the vchannels that have reported."""
        sealed = []
        for info, tick in self._reported(ticks):
            self._allocator.expire(info.segment_id, tick.ts)
            rows = info.rows + self._allocator.seen_rows(info)
            cause = seal_cause(info, rows, self._policy.seal, tick.ts)
            if cause is not None:
                self._causes.sealed(info.segment_id, cause)
                _log.info("segment sealed", segment=info.segment_id, cause=cause, rows=rows)
                now = await self._rootcoord.alloc_timestamp(1)
                sealed.append(_sealed(info, max(now, info.last_expire)))
        await self._state.put(sealed)

    async def seal_for(self, cause: str, segment_ids: Iterable[SegmentID]) -> None:
        """Seal those of the segments that are still growing. Allocations in them stay valid until they
        expire, and the seal is behind that."""
        found = [self._state.find_segment(segment_id) for segment_id in segment_ids]
        growing = [info for info in found if info is not None and info.state is SegmentState.GROWING]
        if not growing:
            return
        now = await self._rootcoord.alloc_timestamp(1)
        for info in growing:
            self._causes.sealed(info.segment_id, cause)
        await self._state.put([_sealed(info, max(now, info.last_expire)) for info in growing])
        _log.info("segments sealed", cause=cause, segments=[info.segment_id for info in growing])

    def empty(self, ticks: Mapping[str, DataNodeTick]) -> list[SegmentInfo]:
        """Return the sealed segments that have no rows and will get none: there is nothing to flush."""
        return [s for s in self._ready(ticks) if s.rows == 0 and self._allocator.seen_rows(s) == 0]

    async def orders(self, ticks: Mapping[str, DataNodeTick]) -> Orders:
        """Return what to order now. Segments that may be flushed become Flushing. An order is returned again
        until `delivered` confirms that it has arrived."""
        orders: Orders = {name: () for name, tick in ticks.items() if tick.bytes >= self._policy.sync_bytes}
        orders |= dict.fromkeys(self.forced.due(ticks), ())
        ready = [replace(s, state=SegmentState.FLUSHING) for s in self._ready(ticks)]
        await self._state.put(ready)
        for info, _ in self._reported(ticks):
            if self._waits_for_order(info):
                orders[info.vchannel] = (*orders.get(info.vchannel, ()), info.segment_id)
        self._forget_ended()
        return orders

    def _forget_ended(self) -> None:
        """Forget the segments that no order will mention again, when they may be half of those known: so a
        look at all of them costs each order little."""
        if len(self._causes) + len(self._ordered) > self._notes_max:
            left = {s.segment_id for s in self._state.unflushed()}
            self._causes.keep_only(left)
            self._ordered = {s: epoch for s, epoch in self._ordered.items() if s in left}
            self._notes_max = max(_NOTES_MIN, 2 * (len(self._causes) + len(self._ordered)))

    def reason(self, vchannel: str, segment_ids: tuple[SegmentID, ...]) -> FlushReason:
        """Return why these segments, or the vchannel's other entries in the log, are to be flushed, and for
        whom."""
        cause = self.forced.cause(vchannel)
        return FlushReason(cause) if cause and not segment_ids else self._causes.of(segment_ids)

    def _waits_for_order(self, info: SegmentInfo) -> bool:
        vchannel = self._state.vchannel(info.vchannel)
        epoch = None if vchannel is None else vchannel.epoch
        return info.state is SegmentState.FLUSHING and self._ordered.get(info.segment_id) != epoch

    def delivered(self, vchannel: str, epoch: int, segment_ids: tuple[SegmentID, ...]) -> None:
        """Note that the data node has accepted the order, as the vchannel's owner under this epoch."""
        self._ordered |= dict.fromkeys(segment_ids, epoch)
        self.forced.delivered(vchannel)

    def given_up(self, vchannels: Set[str]) -> list[SegmentInfo]:
        """Return the flushing segments of vchannels that change owners, as sealed again, to be ordered from
        the new owner."""
        self.forced.give_up(vchannels)
        flushing = [
            s
            for vchannel in sorted(vchannels)
            for s in self._state.unflushed_on(vchannel)
            if s.state is SegmentState.FLUSHING
        ]
        return [replace(s, state=SegmentState.SEALED) for s in flushing]

    def _ready(self, ticks: Mapping[str, DataNodeTick]) -> list[SegmentInfo]:
        return [s for s, tick in self._reported(ticks) if may_flush(s, tick.ts)]

    def _reported(self, ticks: Mapping[str, DataNodeTick]) -> list[tuple[SegmentInfo, DataNodeTick]]:
        """Return the unflushed segments of the vchannels that have reported."""
        return [(s, tick) for name, tick in ticks.items() for s in self._state.unflushed_on(name)]


def _sealed(info: SegmentInfo, sealed_at: Timestamp) -> SegmentInfo:
    return replace(info, state=SegmentState.SEALED, sealed_at=sealed_at)
