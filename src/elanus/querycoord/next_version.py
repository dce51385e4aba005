"""The next version of a replica: decided from what is wanted, what is served, and what can be read.

`elanus.querycoord.replica` carries it out: it has the nodes load what comes online, and
`elanus.querycoord.switching` announces the version.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from elanus.api.query_channel import MissingSegment, QueryChannelInfo
from elanus.core.ids import NodeID, SegmentID
from elanus.querycoord.fleet import Statuses
from elanus.querycoord.handoff import Handoff, decide, has_rows, hold_back
from elanus.querycoord.long_rounds import let_others_run
from elanus.querycoord.planned_layout import Layout, plan_layout
from elanus.querycoord.served import Served
from elanus.querycoord.target import Target
from elanus.querycoord.unreadable import Unreadable


@dataclass(frozen=True, slots=True)
class NextVersion:
    """The next version, and what it takes.

    ``online``: the segments that a node has to load first, each with the node. ``unnamed``: those that a
    planned version has moved, which was put in force without a record of it; each with its node.
    ``stood_in_for``: segments that cannot be read, but whose rows something else serves. ``missing``: those
    whose rows nobody serves.
    """

    layout: Layout
    handoff: Handoff
    online: Mapping[SegmentID, NodeID]
    unnamed: Mapping[SegmentID, NodeID]
    stood_in_for: frozenset[SegmentID]
    missing: Mapping[SegmentID, MissingSegment]

    @property
    def named(self) -> dict[SegmentID, NodeID]:
        """The segments that the version names where the one in force does not, each with its node."""
        return {**self.online, **self.unnamed}


async def plan_next(
    info: QueryChannelInfo,
    target: Target,
    before: Served,
    now: Served,
    statuses: Statuses,
    places: Mapping[SegmentID, NodeID],
    unreadable: Mapping[SegmentID, Unreadable],
) -> NextVersion:
    """Decide the next version.

    ``info``: the version in force. ``before``: what was served before the target was read and still is;
    ``now``: what is served, according to ``statuses``. ``places``: the node planned for a segment. Other
    tasks run meanwhile if there are very many segments. Raises `InsufficientMemory`.
    """
    handoff = decide(target.segments, before, target.recovery.heirs, target.unbuilt, now.service_ts)
    handoff = hold_back(handoff, unreadable, before, target.recovery.heirs)
    await let_others_run(target.segments)
    layout = await plan_layout(target, handoff, statuses, places, now.nodes, info.vchannels)
    await let_others_run(target.segments)
    missing = _missing(info, unreadable, handoff, before, layout)
    return NextVersion(
        layout,
        handoff,
        _coming_online(layout, info.sealed, now, target),
        {s: at for s in layout.kept if (at := layout.segments[s]) != info.sealed.get(s)},
        frozenset(unreadable) - missing.keys(),
        missing,
    )


def _coming_online(
    layout: Layout, named: Mapping[SegmentID, NodeID], now: Served, target: Target
) -> dict[SegmentID, NodeID]:
    """Return the segments that a node has to load, and the node: those that it does not serve as the target
    wants.

    ``named``: where the version in force has each segment.
    """
    return {
        segment_id: node_id
        for segment_id, node_id in layout.segments.items()
        if segment_id not in layout.kept
        if named.get(segment_id) != node_id or not target.is_served(now.sealed.get(segment_id))
    }


def _missing(
    info: QueryChannelInfo,
    unreadable: Mapping[SegmentID, Unreadable],
    handoff: Handoff,
    before: Served,
    layout: Layout,
) -> dict[SegmentID, MissingSegment]:
    """Return the segments whose rows nobody serves under the layout."""
    stay = {v for v, at in layout.vchannels.items() if info.vchannels.get(v) == at}
    growing: Collection[SegmentID] = {
        s for s, v in before.growing.items() if v in stay and s not in handoff.retired
    }
    return {
        s: MissingSegment(found.manifest.partition_id, found.reason)
        for s, found in unreadable.items()
        if not has_rows(found.manifest, handoff, growing)
    }
