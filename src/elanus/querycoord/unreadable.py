"""Segments of a replica whose files a query node could not read.

They hold up nothing else: the replica is brought to its target without them, and they are tried again after
growing pauses, or as soon as their files change. A version says which flushed segments it lacks, so that
reads of that data are refused instead of answered with less (`elanus.api.query_channel.MissingSegment`). For
a growing segment that could not be recovered, the node that leads its vchannel refuses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import structlog

from elanus.api.querynode import UnrecoveredSegment
from elanus.api.recovery import DamagedManifest
from elanus.core.ids import CollectionID, SegmentID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.core.unreadable import unreadable_text

PAUSE_S = 15.0
PAUSE_MAX_S = 600.0
_log = structlog.get_logger("querycoord")


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
        _log.error(
            "segment not readable; trying again",
            collection=manifest.collection_id,
            segment=manifest.segment_id,
            pause_s=pause_s,
            error=reason,
        )
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

    def waiting_with(
        self,
        wanted: Mapping[SegmentID, SegmentManifest],
        damaged: Mapping[SegmentID, DamagedManifest],
        now_s: float,
    ) -> Mapping[SegmentID, Unreadable]:
        """As `waiting`, with those whose manifests cannot be read. Their attempt was to read the manifest."""
        manifests = {s: d.manifest for s, d in damaged.items()}
        waiting = dict(self.waiting({**wanted, **manifests}, now_s))
        for segment_id, found in damaged.items():
            if segment_id not in waiting:
                text = unreadable_text(segment_id, found.manifest.partition_id, found.reason)
                waiting[segment_id] = self.failed(found.manifest, text, now_s)
        return waiting

    def due_s(self) -> float | None:
        """Return when the next attempt is due; None if none is."""
        return min((u.due_s for u in self._found.values()), default=None)


class UnrecoveredSegments:
    """The growing segments that the nodes which lead the vchannels could not recover."""

    def __init__(self) -> None:
        self._noted = UnreadableSegments()
        self._waiting: frozenset[SegmentID] = frozenset()

    def all(self) -> tuple[Unreadable, ...]:
        return self._noted.all()

    def due_s(self) -> float | None:
        return self._noted.due_s()

    def due(self, now_s: float) -> tuple[SegmentID, ...]:
        """Return the segments that are to be tried again now."""
        known = {u.manifest.segment_id: u.manifest for u in self._noted.all()}
        self._waiting = frozenset(self._noted.waiting(known, now_s))
        return tuple(known.keys() - self._waiting)

    def found(
        self, collection_id: CollectionID, segments: Mapping[str, Iterable[UnrecoveredSegment]], now_s: float
    ) -> None:
        """``segments``: what the leading nodes answered, by vchannel; after `due`."""
        answered = {s.segment_id: (vchannel, s) for vchannel, of in segments.items() for s in of}
        known = {u.manifest.segment_id for u in self._noted.all()}
        self._noted.readable(known - answered.keys())
        for segment_id, (vchannel, one) in answered.items():
            if segment_id not in self._waiting:
                self._noted.failed(_key(collection_id, vchannel, one), one.reason, now_s)


def _key(collection_id: CollectionID, vchannel: str, of: UnrecoveredSegment) -> SegmentManifest:
    return SegmentManifest(
        of.segment_id, collection_id, of.partition_id, vchannel, (), (), deletes_from=NO_TIMESTAMP
    )
