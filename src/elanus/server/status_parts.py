"""The parts of a status, made from what the roles answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from elanus.api.gc import A_READER, GcReport, GcStatus, PinnedSegment
from elanus.api.querycoord import LoadStatus, ResourceGroupStatus
from elanus.core.catalog import Collection
from elanus.core.channels import pchannel_of
from elanus.core.ids import CollectionID, DatabaseID, NodeID
from elanus.core.recall import Measured
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import Timestamp, lag_ms
from elanus.server.job_status import iso
from elanus.server.status import (
    ChannelStatus,
    CollectionStatus,
    GarbageStatus,
    HeldStatus,
    RecallStatus,
    ResourceGroup,
)


def channel_statuses(
    ticks: Mapping[str, Timestamp],
    owners: Mapping[str, NodeID],
    quarantined: Mapping[str, int],
    holders: Mapping[str, NodeID],
    refused: Mapping[str, str],
    now_ms: int,
    log_bytes: Callable[[str], int],
) -> list[ChannelStatus]:
    """Return the state of each pchannel that has a tick.

    ``owners`` and ``quarantined``: by vchannel. ``holders``: by pchannel, the proxy that holds its tick back,
    ``refused``: why it takes no entry.
    ``log_bytes``: returns the size of a pchannel's log.
    """
    nodes: dict[str, list[NodeID]] = {}
    for vchannel, node_id in owners.items():
        nodes.setdefault(pchannel_of(vchannel), []).append(node_id)
    return [
        ChannelStatus(
            pchannel,
            tick,
            float(lag_ms(now_ms, tick)),
            log_bytes(pchannel),
            len(nodes.get(pchannel, ())),
            max(nodes.get(pchannel, ()), default=0),
            sum(count for vchannel, count in quarantined.items() if pchannel_of(vchannel) == pchannel),
            holders.get(pchannel, 0),
            refused.get(pchannel, ""),
        )
        for pchannel, tick in ticks.items()
    ]


def collection_statuses(
    collections: Sequence[Collection],
    databases: Mapping[DatabaseID, str],
    loads: Mapping[CollectionID, LoadStatus],
    segments: Sequence[SegmentInfo],
) -> list[CollectionStatus]:
    states: dict[CollectionID, Counter[str]] = {}
    rows: Counter[CollectionID] = Counter()
    for segment in segments:
        states.setdefault(segment.collection_id, Counter())[segment.state.name.capitalize()] += 1
        if segment.state is not SegmentState.DROPPED:
            rows[segment.collection_id] += segment.rows
    return [
        CollectionStatus(
            databases.get(c.database_id, ""),
            c.name,
            _percent(loaded) if loaded else None,
            rows[c.collection_id],
            dict(states.get(c.collection_id, {})),
            [one.reason for one in loaded.unreadable] if loaded else [],
            loaded.unreadable_logs if loaded else (),
            c.collection_id,
        )
        for c in collections
        for loaded in (loads.get(c.collection_id),)
    ]


def recall_statuses(
    measured: Sequence[Measured],
    target: float,
    collections: Sequence[Collection],
    databases: Mapping[DatabaseID, str],
) -> list[RecallStatus]:
    """Return what was measured of the collections that still exist."""
    named = {c.collection_id: f"{databases.get(c.database_id, '')}.{c.name}" for c in collections}
    return [
        RecallStatus(
            named[one.collection_id],
            one.field,
            one.index,
            one.band,
            one.samples,
            one.recall,
            one.low,
            one.high,
            target,
            one.cause,
        )
        for one in measured
        if one.collection_id in named
    ]


def garbage_status(status: GcStatus | None) -> GarbageStatus:
    if status is None:
        return GarbageStatus("unknown")
    last = status.last
    return GarbageStatus(
        status.state.value,
        status.waiting_bytes,
        status.reclaimed_bytes,
        last.error if last else "",
        _held(last) if last else (),
    )


def _held(report: GcReport) -> list[HeldStatus]:
    """Return the pins of readers, and the dropped segments whose time is over but which are still read."""
    now_ms = report.started_ms
    pins = [
        HeldStatus(
            held.holder, held.collection_id, 0, 0, iso(held.since_ms / 1000), (now_ms - held.since_ms) / 1000
        )
        for held in report.held
        if held.holder == A_READER and held.since_ms
    ]
    overdue: dict[tuple[str, int], list[PinnedSegment]] = {}
    for segment in report.pinned:
        if segment.read_by and segment.until_ms <= now_ms:
            overdue.setdefault((segment.read_by, segment.collection_id), []).append(segment)
    for (reader, collection_id), segments in overdue.items():
        since_ms = min(segment.until_ms for segment in segments)
        size_bytes, held_s = sum(segment.bytes for segment in segments), (now_ms - since_ms) / 1000
        since = iso(since_ms / 1000)
        pins.append(HeldStatus(reader, collection_id, len(segments), size_bytes, since, held_s))
    return pins


def group_status(group: ResourceGroupStatus) -> ResourceGroup:
    missing = max(0, group.config.requests - len(group.nodes))
    return ResourceGroup(group.name, group.nodes, missing, sum(group.loaded.values()))


def _percent(load: LoadStatus) -> int:
    return min(load.percentages.values(), default=0)
