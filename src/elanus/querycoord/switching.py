"""The version switch of one replica, and the record by which a later coordinator continues it.

The record (`ReplicaRecord`) is persisted before and after each change. A new version is announced to every
node that it names. The switch is complete when all of them serve it; only then do they drop what it no longer
needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from elanus.api.query_channel import QueryChannelInfo, SealedSegmentsChangeInfo
from elanus.api.querynode import QueryNodeApi, QueryNodeStatus
from elanus.core.errors import NotReady
from elanus.core.ids import NodeID, SegmentID
from elanus.core.timestamps import Timestamp, plus_ms
from elanus.querycoord.fleet import Fleet, Statuses
from elanus.querycoord.next_version import NextVersion
from elanus.querycoord.planned_layout import Layout
from elanus.querycoord.replica_records import ReplicaRecord
from elanus.querycoord.state import LoadState
from elanus.querycoord.target import Target
from elanus.querycoord.visible_from import Settled, decide_moments, delete_moments, lead_ms, with_writes

_SWITCH_WAIT_S = 30.0
_SWITCH_LOOK_S = 0.02
_log = structlog.get_logger("querycoord")


class VersionSwitch:
    """Switches one replica from version to version. ``record``: the replica's persisted state. ``stamp``:
    allocates a timestamp."""

    def __init__(
        self,
        record: ReplicaRecord,
        fleet: Fleet,
        state: LoadState,
        stamp: Callable[[], Awaitable[Timestamp]],
    ) -> None:
        self.record = record
        self._fleet = fleet
        self._state = state
        self._stamp = stamp
        self._collection_id = record.info.collection_id

    @property
    def info(self) -> QueryChannelInfo:
        return self.record.info

    async def persist(self, record: ReplicaRecord) -> None:
        if record != self.record:
            await self._state.put_replica(record)
            self.record = record

    async def announce(
        self,
        planned: NextVersion,
        target: Target,
        statuses: Statuses,
        moments: Settled,
    ) -> QueryChannelInfo:
        """Announce a new version to every node that it names, if anything changes; return the replica then.

        The coordinator does not know of growing segments that a node has taken in but serves in no version
        yet, or has still to read from the log. The change therefore lists every segment whose rows compaction
        has moved into a segment that goes online.
        """
        layout, online = planned.layout, planned.named
        opened = await self._fleet.open_channel(self.info)
        for node_id in sorted(layout.nodes()):
            await self._fleet.join(opened, statuses[node_id])
        info = self.info if opened.channel == self.info.channel else opened
        offline = self._offline(planned, statuses)
        is_behind = not all(self._serves(statuses[node_id]) for node_id in layout.nodes())
        if not (online or offline or is_behind or _differs(info, planned, target)):
            return info
        seen = [status.versions.get(self._collection_id, 0) for status in statuses.values()]
        version = self._fleet.version_after(max(info.version, *seen, 0))
        heirs = target.recovery.heirs
        replaced = sorted(s for s in heirs.dropped() if not online.keys().isdisjoint(heirs.of(s)))
        visible_from, deletes = await self._moments(online, target, moments)
        change = SealedSegmentsChangeInfo(
            self._collection_id,
            version,
            online,
            offline,
            dict(layout.vchannels),
            tuple(replaced),
            visible_from,
            planned.missing,
            deletes,
        )
        info = await self._fleet.announce(info, change, statuses)
        _log.info("version announced", collection=self._collection_id, version=version)
        return info

    def _offline(self, planned: NextVersion, statuses: Statuses) -> dict[SegmentID, NodeID]:
        """Return the segments that the version takes away, each from its node.

        Growing segments that retire go offline on the node that leads their vchannel. A node that has not
        reached the version in force still has the segments which that version took away from it, and drops
        them when it gets there. A new version that listed such a segment again would remove it from its
        current node.
        """
        info, placed = self.info, planned.layout.segments
        moved = {s: n for s, n in info.sealed.items() if placed.get(s) != n}
        growing = ((s, v) for s, v in planned.handoff.retired.items() if s not in info.sealed)
        retired = {s: info.vchannels[v] for s, v in growing}
        return {**moved, **retired, **self._strangers(planned.layout, statuses)}

    async def _moments(
        self, online: Mapping[SegmentID, NodeID], target: Target, before: Settled
    ) -> tuple[Mapping[SegmentID, Timestamp], Mapping[str, Timestamp]]:
        """Return the timestamp from which reads see each of the segments that a version brings online, and
        the deletes in each delta log of a write."""
        pending = {log.file.ts_max for log in target.unserved}
        moments = decide_moments(online, target.segments, target.recovery.heirs, before, pending)
        deletes = delete_moments(target.unserved, {**before.named, **moments.known}, target.segments, before)
        known = {path: moment for path, moment in deletes.items() if moment is not None}
        visible_from, record = dict(moments.known), self.record
        if moments.open or len(known) < len(deletes):
            new = [log for log in target.unserved if deletes[log.file.path] is None]
            moment = plus_ms(await self._stamp(), lead_ms(new))
            visible_from |= dict.fromkeys(moments.open, moment)
            known = {path: known.get(path, moment) for path in deletes}
        if moments.open:
            record = replace(record, stamps=visible_from)
        await self.persist(replace(record, writes=with_writes(before.writes, target.unserved, known)))
        return visible_from, known

    def _strangers(self, layout: Layout, statuses: Statuses) -> dict[SegmentID, NodeID]:
        """Return sealed segments that a node serves from versions of which no record is left.

        A collection that was released and loaded again has a new record, and the node may have missed the
        release. Meanwhile compaction may have moved the rows of these segments elsewhere.
        """
        named = self.info.sealed
        return {
            s.segment_id: node_id
            for node_id, status in statuses.items()
            for s in status.segments
            if s.segment_id not in named and s.sealed and s.collection_id == self._collection_id
            if layout.segments.get(s.segment_id) != node_id
        }

    async def complete(self, layout: Layout, target: Target, statuses: Statuses) -> bool:
        """Wait until all nodes serve the version, then set its partitions and drop what is no longer needed.

        A node that the version does not name releases the collection only after it has read its channel up to
        the version: until then it answers earlier reads. Returns whether all such nodes have released it.
        """
        await self._wait_served([n for n in sorted(layout.nodes()) if not self._serves(statuses[n])])
        for node_id, needed in sorted(layout.vchannels_by_node(target).items()):
            node = self._fleet.node(node_id)
            await node.set_partitions(self._collection_id, target.partition_ids)
            for vchannel in target.recovery.vchannels:
                name = vchannel.vchannel
                if name in needed:
                    await node.forget_deletes(self._collection_id, name, vchannel.checkpoint.ts)
                elif name in statuses[node_id].service_times:
                    await node.unwatch_vchannel(self._collection_id, name)
        others = [n for n in statuses.keys() - layout.nodes() if self._collection_id in statuses[n].versions]
        return all([await self._released(self._fleet.node(node_id)) for node_id in sorted(others)])

    async def _released(self, node: QueryNodeApi) -> bool:
        """Release the collection on the node, unless it has yet to read up to the version in force.

        Returns whether it was released.
        """
        status = await node.status(self._collection_id)
        follows = status.query_channels.get(self._collection_id) == self.info.channel
        if follows and not self._serves(status):
            return False
        await node.release_collection(self._collection_id)
        return True

    def _serves(self, status: QueryNodeStatus) -> bool:
        """Whether a node serves the version in force."""
        return status.versions.get(self._collection_id, 0) >= self.info.version

    async def _wait_served(self, nodes: Sequence[NodeID]) -> None:
        """Wait until these nodes serve the version.

        Raises `NotReady`: immediately if a node cannot serve the version, since the next reconciliation makes
        one that it can serve.
        """
        deadline_s = asyncio.get_running_loop().time() + _SWITCH_WAIT_S
        for node_id in nodes:
            while not self._serves(status := await self._fleet.node(node_id).status(self._collection_id)):
                if status.refused.get(self._collection_id, 0) >= self.info.version:
                    raise NotReady(
                        f"query node {node_id} cannot serve version {self.info.version} of collection "
                        f"{self._collection_id}"
                    )
                if asyncio.get_running_loop().time() > deadline_s:
                    raise NotReady(
                        f"query node {node_id} does not serve version {self.info.version} of collection "
                        f"{self._collection_id} yet"
                    )
                await asyncio.sleep(_SWITCH_LOOK_S)


def _differs(info: QueryChannelInfo, planned: NextVersion, target: Target) -> bool:
    """Whether the planned version says something that the one in force, if any, does not, apart from where
    segments are."""
    same_leaders = dict(info.vchannels) == dict(planned.layout.vchannels)
    same_gaps = dict(info.missing) == dict(planned.missing)
    same_deletes = all(log.file.path in info.deletes for log in target.unserved)
    return not (info.version and same_leaders and same_gaps and same_deletes)
