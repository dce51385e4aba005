"""The state that a version needs before it is served: its segments, and vchannels that have caught up.

Querycoord announces a version when the nodes have reported all of this. A node that has given something up
since refuses the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from elanus.api.querynode import SealedSegmentsChange
from elanus.core.errors import NotReady, SegmentNotFound
from elanus.querynode.coverage import Coverage
from elanus.querynode.followed_vchannel import FollowedVchannel
from elanus.querynode.held_segments import HeldSegments


def check_segments(
    change: SealedSegmentsChange, held: HeldSegments, channels: Mapping[str, FollowedVchannel]
) -> None:
    """Raise `SegmentNotFound` if the version names segments that are not loaded, `NotReady` if one of them
    lacks deletes that the version does not bring."""
    staged, serving = held.staged, held.serving
    missing = [s for s in change.online if s not in staged and s not in serving]
    if missing:
        raise SegmentNotFound(f"version {change.version} names segments that are not ready here: {missing}")
    for segment_id in change.online:
        lacking = held.lacking(segment_id)
        if lacking and not lacking <= _brought(change, channels):
            raise NotReady(
                f"segment {segment_id} was loaded before the deletes of a write were served, and version "
                f"{change.version} does not bring them: load the segment again"
            )


def _brought(change: SealedSegmentsChange, channels: Mapping[str, FollowedVchannel]) -> frozenset[str]:
    """Return the paths of the delta logs whose deletes take effect with the version."""
    return frozenset(chain.from_iterable(c.writes.waiting(change.deletes) for c in channels.values()))


def check_vchannels(
    change: SealedSegmentsChange,
    leads: frozenset[str],
    held: HeldSegments,
    channels: Mapping[str, FollowedVchannel],
    wanted: Coverage,
) -> None:
    """Raise `NotReady` if the version needs a vchannel that has not caught up.

    ``leads``: the vchannels that are led under it. ``wanted``: the rows that the load asks for.
    """
    for vchannel in change.leads or ():
        channel = channels.get(vchannel)
        if channel is None or not channel.joined or not (channel.rows and channel.holds(wanted)):
            raise NotReady(f"vchannel {vchannel} is to be led, but its rows are not here: watch it before")
    behind = {v for v, channel in channels.items() if v not in leads and not channel.joined}
    for segment_id in change.online if behind else ():
        segment = held.newest(segment_id)
        if segment is not None and segment.vchannel in behind:
            raise NotReady(f"segment {segment_id} needs vchannel {segment.vchannel}, which has not caught up")
