"""Growing data in memory: which segments to seal so that query nodes get it back.

A query node keeps the rows of a growing segment in memory until the segment is sealed, flushed and handed
off. The size of one segment does not bound the sum of many: a thousand small ones fill a node while none is
full, old or idle. So when the growing data of a node passes the soft limit of back-pressure, the largest
segments are sealed. Segments that are sealed already are on their way out of memory and count as gone.

Largest first means the fewest segments. Half of the limit is sealed at a time, so a steady trickle into many
collections does not become a stream of tiny segments.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from elanus.core.ids import SegmentID


@dataclass(frozen=True, slots=True)
class GrowingMemory:
    """The growing data of one query node.

    ``total_bytes``: what back-pressure compares with its limits. It includes deletes that are kept for
    segments loaded later. ``segments``: the bytes of each segment's rows, until a handoff releases them.
    """

    total_bytes: int
    segments: Mapping[SegmentID, int]


def in_flight_bytes(memory: GrowingMemory, growing: Container[SegmentID]) -> int:
    """Return the bytes that leave memory without more sealing. ``growing``: the segments not sealed yet."""
    return sum(size for segment_id, size in memory.segments.items() if segment_id not in growing)


def segments_to_seal(
    memory: GrowingMemory, growing: Container[SegmentID], soft_bytes: int
) -> tuple[SegmentID, ...]:
    """Return the segments to seal now, largest first; none while the rest is within the limit.

    ``growing``: the segments that are not sealed yet. The rest, after those in flight and those returned are
    gone, is at most half of the limit. Sealing frees no deletes, so they lower the limit, but only to a
    quarter: below that, segments would become too small.
    """
    sizes = {s: size for s, size in memory.segments.items() if s in growing}
    deletes = max(0, memory.total_bytes - sum(memory.segments.values()))
    limit = max(soft_bytes - deletes, soft_bytes // 4)
    rest = sum(sizes.values())
    if rest <= limit:
        return ()
    chosen = []
    for segment_id, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        if rest <= limit // 2:
            break
        chosen.append(segment_id)
        rest -= size
    return tuple(chosen)
