"""The text about a segment whose files cannot be read: it names the object and the remedy."""

from __future__ import annotations

from elanus.core.ids import PartitionID, SegmentID


def unreadable_text(segment_id: SegmentID, partition_id: PartitionID, reason: str) -> str:
    """``reason`` names the object, and says what is wrong with it."""
    return (
        f"segment {segment_id} of partition {partition_id} cannot be read: {reason}. Restore the object "
        "from a backup; or drop the partition, or the collection, and insert its rows again"
    )
