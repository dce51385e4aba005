"""Segments of a replica whose files a query node could not read.

They hold up nothing else: the replica is brought to its target without them, and they are tried again after
growing pauses, or as soon as their files change. A version says which segments it lacks, so that reads of
that data are refused instead of answered with less (`elanus.api.query_channel.MissingSegment`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elanus.core.ids import SegmentID
from elanus.core.segments import SegmentManifest

PAUSE_S = 15.0
PAUSE_MAX_S = 600.0


@dataclass(frozen=True, slots=True)
class Unreadable:
    """``manifest``: as of the last attempt. ``due_s``: when the next attempt may be made."""

    manifest: SegmentManifest
    reason: str
    pause_s: float
    due_s: float


class UnreadableSegments:
    """Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._found: dict[SegmentID, Unreadable] = {}

    def all(self) -> tuple[Unreadable, ...]:
        return tuple(self._found.values())

    def failed(self, manifest: SegmentManifest, reason: str, now_s: float) -> Unreadable:
        """Note a failed attempt. Each pause is twice as long as the one before."""
        before = self._found.get(manifest.segment_id)
        pause_s = PAUSE_S if before is None else min(PAUSE_MAX_S, before.pause_s * 2)
        noted = self._found[manifest.segment_id] = Unreadable(manifest, reason, pause_s, now_s + pause_s)
        return noted

    def readable(self, segments: Iterable[SegmentID]) -> None:
        for segment_id in segments:
            self._found.pop(segment_id, None)

    def waiting(
        self, wanted: Mapping[SegmentID, SegmentManifest], now_s: float
    ) -> Mapping[SegmentID, Unreadable]:
        """Return the segments among ``wanted`` that are not to be tried now; forget those not wanted."""
        self._found = {s: u for s, u in self._found.items() if wanted.get(s) == u.manifest}
        return {s: u for s, u in self._found.items() if u.due_s > now_s}

    def due_s(self) -> float | None:
        """Return when the next attempt is due; None if none is."""
        return min((u.due_s for u in self._found.values()), default=None)
