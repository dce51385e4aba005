"""Getting the nodes of a replica ready for its next version: following vchannels, and loading segments.

All of it is in addition to what the nodes serve, and may be repeated. A segment that a node cannot read holds
up no other: it is noted, and tried again later (`elanus.querycoord.unreadable`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from elanus.api.querynode import DamagedFile, UnrecoveredSegment
from elanus.core.errors import NotReady, SegmentUnreadable
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.querycoord.fleet import Fleet
from elanus.querycoord.node_requests import load_request, segment_request, watch_request
from elanus.querycoord.planned_layout import Layout
from elanus.querycoord.target import Target
from elanus.querycoord.unreadable import UnreadableSegments, UnrecoveredSegments

_LOADS_AT_ONCE = 32
"""How many loads are requested of a node at the same time. It reads small segments that wait together."""
_LOADS_PER_TASK = 4
"""Fewer segments than this are loaded one after the other."""


class NodeLoads:
    """The loads of one replica.

    ``rebuild``: has an index built again whose file is damaged. ``check_wanted``: raises if a target has
    partitions that have been released since it was read; also called with whether the whole collection is to
    be served.
    """

    def __init__(
        self,
        collection_id: CollectionID,
        fleet: Fleet,
        rebuild: Callable[[DamagedFile], Awaitable[None]],
        check_wanted: Callable[[Target, bool], None],
    ) -> None:
        self._collection_id = collection_id
        self._fleet = fleet
        self._rebuild = rebuild
        self._check_wanted = check_wanted
        self.unreadable = UnreadableSegments()
        self.unrecovered = UnrecoveredSegments()

    async def follow(self, layout: Layout, target: Target, whole: bool) -> None:
        """Have all nodes follow what they need, and note the growing segments that they cannot recover."""
        now_s = asyncio.get_running_loop().time()
        again = self.unrecovered.due(now_s)
        needed = layout.vchannels_by_node(target)
        found = await asyncio.gather(
            *(self._follow(n, layout, needed[n], target, whole, again) for n in layout.nodes())
        )
        answers = {vchannel: segments for of in found for vchannel, segments in of.items()}
        self.unrecovered.found(self._collection_id, answers, now_s)

    async def _follow(
        self,
        node_id: NodeID,
        layout: Layout,
        needed: Iterable[str],
        target: Target,
        whole: bool,
        again: tuple[SegmentID, ...],
    ) -> dict[str, tuple[UnrecoveredSegment, ...]]:
        """Follow the vchannels that the node leads, and those whose deletes its segments need.

        ``needed``: all of these. ``again``: growing segments to be tried once more. Returns those that could
        not be recovered, by vchannel.
        """
        node = self._fleet.node(node_id)
        self._check_wanted(target, whole)
        await node.load_collection(load_request(target, whole))
        found = {}
        for vchannel in needed:
            leads = layout.vchannels[vchannel] == node_id
            request = watch_request(target, vchannel, leads=leads, again=again)
            segments = await node.watch_vchannel(request)
            if leads:
                found[vchannel] = segments
        return found

    async def load(self, online: Mapping[SegmentID, NodeID], nodes: Iterable[NodeID], target: Target) -> bool:
        """Load these segments, each on its node; of ``nodes``. Returns whether all could be read.

        Raises what the nodes raise.
        """
        by_node: dict[NodeID, list[SegmentID]] = {node_id: [] for node_id in nodes}
        for segment_id, node_id in online.items():
            by_node[node_id].append(segment_id)
        failures = await asyncio.gather(*(self._load(n, ids, target) for n, ids in by_node.items()))
        if any(failures):
            return False
        self.unreadable.readable(online)
        return True

    async def _load(self, node_id: NodeID, segment_ids: list[SegmentID], target: Target) -> bool:
        """Load segments. Returns whether some could not be read, which holds up none of the others.

        Some are loaded at the same time. Those of a vchannel follow each other: the node then reads the
        vchannel's deletes once, even if it cannot keep those of several vchannels.
        """
        failed = False
        waiting = iter(sorted(segment_ids, key=lambda segment_id: target.segments[segment_id].vchannel))

        async def load_waiting() -> None:
            nonlocal failed
            for segment_id in waiting:
                try:
                    if not await self._load_one(node_id, segment_id, target):
                        failed = True
                except BaseException:
                    for _ in waiting:  # nobody begins another one
                        pass
                    raise

        at_once = min(_LOADS_AT_ONCE, 1 + len(segment_ids) // _LOADS_PER_TASK)
        outcomes = await asyncio.gather(*(load_waiting() for _ in range(at_once)), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome
        return failed

    async def _load_one(self, node_id: NodeID, segment_id: SegmentID, target: Target) -> bool:
        """Load a segment. Returns whether it could be read."""
        try:
            damaged = await self._fleet.node(node_id).load_segment(segment_request(target, segment_id))
        except SegmentUnreadable as error:
            now_s = asyncio.get_running_loop().time()
            self.unreadable.failed(target.segments[segment_id], error.message, now_s)
            return False
        for file in damaged:
            await self._rebuild(file)
        return True

    async def check_ready(self, online: Mapping[SegmentID, NodeID]) -> None:
        """Raise `NotReady` if a node has released a segment since it was loaded.

        This happens when the partition is dropped or released. A version that named the segment would keep
        all reads waiting for the next version.
        """
        for node_id in sorted(set(online.values())):
            status = await self._fleet.node(node_id).status(self._collection_id)
            loaded = status.loaded.get(self._collection_id, ())
            ready = {*loaded, *(s.segment_id for s in status.segments if s.sealed)}
            if gone := sorted(s for s, at in online.items() if at == node_id and s not in ready):
                raise NotReady(f"query node {node_id} has released segments {gone} since they were loaded")
