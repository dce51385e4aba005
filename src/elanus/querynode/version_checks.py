"""The state that a version needs before it is served: its segments, and vchannels that have caught up.

Querycoord announces a version when the nodes have reported all of this. A node that has given something up
since refuses the version.
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.api.querynode import SealedSegmentsChange
from elanus.core.errors import NotReady, SegmentNotFound
from elanus.querynode.coverage import Coverage
from elanus.querynode.followed_vchannel import FollowedVchannel
from elanus.querynode.held_segments import HeldSegments


def check_segments(change: SealedSegmentsChange, held: HeldSegments) -> None:
    """Raise `SegmentNotFound` if the version names segments that are not loaded."""
    staged, serving = held.staged, held.serving
    missing = [s for s in change.online if s not in staged and s not in serving]
    if missing:
        raise SegmentNotFound(f"version {change.version} names segments that are not ready here: {missing}")


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
