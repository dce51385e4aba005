"""The segments that a replica serves: its record, which says where everything should be, and its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from elanus.api.query_channel import QueryChannelInfo
from elanus.api.querynode import QueryNodeStatus, SegmentServing
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.querycoord.fleet import Pulses, Statuses
from elanus.querycoord.replica_records import ReplicaRecord


@dataclass(frozen=True, slots=True)
class Served:
    """The segments that a replica serves, read before its target is read.

    ``named``: the sealed segments of the version in force, to be asked about each of them: no sequence.
    ``sealed``: those of them that nodes serve; ``nodes``: the node of each, and of others.
    ``growing``: growing segments, each with its vchannel. ``ticks``: the time tick up to which the leading
    node has followed each vchannel; none for a vchannel that nobody follows yet, or whose node serves no
    version.
    """

    named: Set[SegmentID]
    sealed: dict[SegmentID, SegmentServing]
    growing: Mapping[SegmentID, str]
    ticks: Mapping[str, Timestamp]
    nodes: Mapping[SegmentID, NodeID] = field(default_factory=dict)

    @property
    def service_ts(self) -> Timestamp:
        """The timestamp up to which the replica answers; `NO_TIMESTAMP` if it does not."""
        return min(self.ticks.values(), default=NO_TIMESTAMP)

    def still(self, now: Served) -> Served:
        """Reduce it to what the nodes still have ``now``.

        A node may have started afresh since; it then follows from a position after all flushed rows.
        """
        return replace(
            self,
            sealed={s: serving for s, serving in self.sealed.items() if s in now.sealed},
            growing={s: vchannel for s, vchannel in self.growing.items() if s in now.growing},
            ticks={v: tick for v, tick in self.ticks.items() if now.ticks.get(v, NO_TIMESTAMP)},
        )


def served_by(record: ReplicaRecord, statuses: Statuses) -> Served:
    """Return what a replica serves now. ``statuses``: those of all nodes that may serve it.

    A planned version may already be in force: a node received it and the reply was lost. Its segments count
    as served like any other.
    """
    info, plan = record.info, record.plan
    planned: dict[SegmentID, SegmentServing] = {}
    placed: dict[SegmentID, SegmentServing] = {}
    growing: dict[SegmentID, str] = {}
    for node_id, status in statuses.items():
        for one in status.segments:
            segment_id = one.segment_id
            if one.collection_id != info.collection_id:
                continue
            if not one.sealed:
                if info.vchannels.get(one.vchannel) == node_id:
                    growing[segment_id] = one.vchannel
                continue
            if plan and plan.get(segment_id) == node_id:
                planned[segment_id] = one
            if info.sealed.get(segment_id) == node_id:
                placed[segment_id] = one
    sealed = {**planned, **placed}
    nodes = {**info.sealed, **{s: plan[s] for s in planned if s not in placed}}
    named = dict.fromkeys((*info.sealed, *sealed)).keys()
    return Served(named, sealed, growing, _ticks(info, statuses), nodes)


def is_served(info: QueryChannelInfo, statuses: Pulses) -> bool:
    """Whether every node the version names is alive, serves that version, and follows its vchannels."""
    collection_id = info.collection_id
    for node_id in named_nodes(info):
        status = statuses.get(node_id)
        if status is None or status.versions.get(collection_id, 0) != info.version:
            return False
        if status.query_channels.get(collection_id, "") != info.channel:
            return False
        if any(vchannel in status.failures for vchannel in info.vchannels):
            return False
    return bool(info.version)


def is_followed(info: QueryChannelInfo, statuses: Pulses) -> bool:
    """Whether every node the version names is alive and serves this version, or one before it on the same
    channel: a node applies a version a little later than it is announced."""
    collection_id = info.collection_id
    found = [statuses.get(node_id) for node_id in named_nodes(info)]
    return bool(info.version) and all(
        status is not None
        and status.versions.get(collection_id, 0) > 0
        and status.query_channels.get(collection_id, "") == info.channel
        for status in found
    )


def named_nodes(info: QueryChannelInfo) -> set[NodeID]:
    """Return the nodes that the version in force names."""
    return {*info.sealed.values(), *info.vchannels.values()}


def _ticks(info: QueryChannelInfo, statuses: Statuses) -> dict[str, Timestamp]:
    """Return the tick up to which each vchannel's leading node has followed it.

    A node that serves no version counts as following nothing. It may have begun to follow in a reconciliation
    that failed, but it answers no reads and serves no inputs that an output could wait for.
    """
    return {
        vchannel: _tick(info.collection_id, statuses[node_id], vchannel)
        for vchannel, node_id in info.vchannels.items()
        if node_id in statuses
    }


def _tick(collection_id: CollectionID, status: QueryNodeStatus, vchannel: str) -> Timestamp:
    is_serving = status.versions.get(collection_id, 0) > 0
    return status.service_times.get(vchannel, NO_TIMESTAMP) if is_serving else NO_TIMESTAMP
