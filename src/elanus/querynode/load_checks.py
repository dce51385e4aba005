"""The state that a sealed segment needs before it is loaded: a vchannel that brings its deletes.

Checked when a load is requested, when it begins to read, and when the segment is to be kept: meanwhile the
vchannel may have been given up, or the partition released.
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.api.querynode import LoadSegment
from elanus.core.errors import NotReady, PartitionNotLoaded
from elanus.core.ids import PartitionID
from elanus.querynode.coverage import Coverage
from elanus.querynode.deletes import DeleteBuffer
from elanus.querynode.followed_vchannel import FollowedVchannel
from elanus.querynode.follower import Follower
from elanus.querynode.sealed import SealedSegment


def loadable(
    request: LoadSegment, channels: Mapping[str, FollowedVchannel], wanted: Coverage
) -> FollowedVchannel:
    """Return the vchannel whose deletes the segment needs. Raises as `QueryNodeApi.load_segment` does."""
    manifest = request.manifest
    channel = channels.get(manifest.vchannel)
    if channel is None or channel.follower is None:
        raise NotReady(f"segment {manifest.segment_id} needs vchannel {manifest.vchannel}: watch it before")
    if request.checkpoint.ts < channel.deletes.floor:
        raise NotReady(
            f"segment {manifest.segment_id} is to be loaded as of {request.checkpoint.ts}, but deletes "
            f"of {manifest.vchannel} are kept only since {channel.deletes.floor}: use a newer checkpoint"
        )
    if channel.writes.forgotten(request.unserved):
        raise NotReady(
            f"segment {manifest.segment_id} was requested before the deletes of a write had been served "
            "everywhere, and they are no longer kept: request it again"
        )
    _check_taken(channel, channel.follower, manifest.partition_id, wanted)
    return channel


def check_still_loadable(
    segment: SealedSegment,
    channel: FollowedVchannel,
    deletes: DeleteBuffer,
    channels: Mapping[str, FollowedVchannel],
    wanted: Coverage,
) -> None:
    """Raise if the segment may have missed deletes while its own were applied, or is not wanted now.

    ``channel``, ``deletes``: what `loadable` returned before, and its deletes then.
    """
    current = channels.get(segment.vchannel)
    if current is not channel or channel.follower is None or channel.deletes is not deletes:
        raise NotReady(
            f"segment {segment.segment_id} was loaded while vchannel {segment.vchannel} was given up: "
            "watch the vchannel and load the segment again"
        )
    _check_taken(channel, channel.follower, segment.partition_id, wanted)


def _check_taken(
    channel: FollowedVchannel, follower: Follower, partition_id: PartitionID, wanted: Coverage
) -> None:
    """Raise unless sealed segments of the partition may be served together with what the follower takes."""
    if channel.rows:
        takes = follower.coverage.takes(partition_id)
    else:
        takes = partition_id not in follower.coverage.dropped and wanted.takes(partition_id)
    if not takes:
        raise PartitionNotLoaded(f"partition not loaded[partition={partition_id}]")
