"""The facts about a vchannel that compaction decisions need: dead rows per segment, superseded delta logs.

The facts are gathered without the role's lock, because files are read for them. The result is therefore a
proposal: the caller checks under the lock that the segments have not changed before it acts on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from elanus.core.compaction import (
    Candidate,
    CompactionThresholds,
    concerned_deltas,
    expired_rows,
    is_candidate,
    superseded_deltas,
)
from elanus.core.ids import SegmentID
from elanus.core.segments import DeltaLog, SegmentInfo, SegmentManifest, SegmentState
from elanus.core.timestamps import Timestamp
from elanus.datacoord.dead_rows import DeadRows
from elanus.datacoord.expiring_rows import ExpiringRows
from elanus.datacoord.manifest_reader import Chosen
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.state import DataState
from elanus.datacoord.vchannel_table import Vchannel
from elanus.meta.turns import in_turns
from elanus.storage.port import CorruptObject, ObjectMissing

_SEGMENTS_AT_ONCE = 200
_COMPARISONS_AT_ONCE = 5000
"""So many segments are compared with delta logs before other tasks run."""
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class CompactionFacts:
    """The facts about one vchannel. ``superseded``: paths of delta logs that are no longer needed, see
    `superseded_deltas`; ``segments``: the segments that were examined for it."""

    candidates: tuple[Candidate, ...]
    superseded: frozenset[str]
    segments: frozenset[SegmentID]


@dataclass(frozen=True, slots=True)
class _Found:
    info: SegmentInfo
    manifest: SegmentManifest
    deltas: Sequence[DeltaLog]


class FactGatherer:
    def __init__(
        self, state: DataState, manifests: Manifests, dead: DeadRows, thresholds: CompactionThresholds
    ) -> None:
        self._state = state
        self._manifests = manifests
        self._dead = dead
        self._expiring = ExpiringRows(dead.reader, thresholds.deleted_ratio)
        self._thresholds = thresholds

    async def gather(
        self,
        vchannel: Vchannel,
        bound: Timestamp,
        expire_until: Timestamp,
        taken: frozenset[SegmentID],
        *,
        force: bool,
    ) -> CompactionFacts:
        """Return the facts. ``bound``: see `fold_bound`; ``taken``: segments that are not candidates.

        A segment that cannot be read is not a candidate either. Raises whatever reading delta logs raises.
        """
        deltas = await self._manifests.of_vchannel(vchannel)
        found, is_whole = await self._readable(vchannel, deltas, bound)
        await self._dead.prepare({f.info.manifest: (f.manifest, f.deltas) for f in found if f.deltas})
        candidates = []
        async for f in in_turns(found, _SEGMENTS_AT_ONCE):
            if is_candidate(f.info, taken):
                try:
                    candidates.append(await self._candidate(f, vchannel, bound, expire_until, force=force))
                except (ObjectMissing, CorruptObject) as error:
                    _not_compacted(f.info, str(error))
        examined = deltas if is_whole else ()  # it is not known which of them concern the other segments
        superseded = await self._superseded(examined, found, bound)
        return CompactionFacts(tuple(candidates), superseded, frozenset(f.info.segment_id for f in found))

    async def _readable(
        self, vchannel: Vchannel, deltas: Sequence[DeltaLog], bound: Timestamp
    ) -> tuple[list[_Found], bool]:
        """Return the segments whose manifests can be read, with the delta logs that concern them, and whether
        these are all segments of the vchannel."""
        infos = [
            s
            for s in self._state.segments_on(vchannel.vchannel)
            if s.state is not SegmentState.DROPPED and s.manifest
        ]
        await asyncio.sleep(0)  # each pass over all segments takes milliseconds
        _, contents = await self._manifests.current(lambda: Chosen(infos), skip_damaged=True)
        await asyncio.sleep(0)
        readable = []
        for info in infos:
            if info.manifest in contents.damaged:
                _not_compacted(info, contents.damaged[info.manifest])
            else:
                readable.append(info)
        manifests = contents.of_segments(readable)
        found = [
            _Found(info, manifest, concerned_deltas(manifest, deltas, bound))
            async for info, manifest in in_turns(zip(readable, manifests, strict=True), _SEGMENTS_AT_ONCE)
        ]
        return found, len(readable) == len(infos)

    async def _superseded(
        self, deltas: Sequence[DeltaLog], found: Sequence[_Found], bound: Timestamp
    ) -> frozenset[str]:
        """Return the paths of the delta logs that none of the segments needs any longer."""
        manifests = [f.manifest for f in found]
        paths = {f.manifest.segment_id: f.info.manifest for f in found}

        def is_concerned(manifest: SegmentManifest, delta: DeltaLog) -> bool:
            return self._dead.estimate(paths[manifest.segment_id], (delta,)).rows > 0

        at_once = max(1, _COMPARISONS_AT_ONCE // max(1, len(manifests)))
        superseded: list[DeltaLog] = []
        async for delta in in_turns(deltas, at_once):
            superseded += superseded_deltas((delta,), manifests, bound, is_concerned)
        return frozenset(delta.file.path for delta in superseded)

    async def _candidate(
        self, found: _Found, vchannel: Vchannel, bound: Timestamp, expire_until: Timestamp, *, force: bool
    ) -> Candidate:
        """Describe a segment as a candidate. Its dead rows are counted exactly only if the estimate alone
        would cause a rewrite."""
        info = found.info
        estimate = self._dead.estimate(info.manifest, found.deltas)
        dead_rows = min(estimate.rows, info.rows)
        if dead_rows and (force or dead_rows >= self._thresholds.deleted_ratio * info.rows):
            primary_key = vchannel.schema.primary_field.name
            dead_rows = await self._dead.count(
                info.manifest, found.manifest, primary_key, found.deltas, bound
            )
        expired = expired_rows(found.manifest, expire_until)
        expired += await self._expiring.count(info.manifest, found.manifest, vchannel.schema, bound)
        return Candidate(info, dead_rows, estimate.bytes, expired)

    def forget_others(self) -> None:
        """Forget what is known about segments that no longer exist."""
        self._dead.keep(self._manifests.is_used)
        self._expiring.keep(self._manifests.is_used)


def _not_compacted(info: SegmentInfo, error: str) -> None:
    _log.error("segment not compacted", segment=info.segment_id, error=error)
