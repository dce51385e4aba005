"""The rules of a sweep: what is in use and what was dropped, at one moment of the metadata."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog

from elanus.api.gc import A_READER, HeldFiles, IndexReferences, PinnedSegment
from elanus.core.batches import batched
from elanus.core.faults import StorageFault
from elanus.core.gc import GcPolicy, SweepRules, expires_ms, keeps_files, may_reclaim
from elanus.core.ids import NO_SEGMENT, CollectionID, SegmentID
from elanus.core.offload import Offload
from elanus.core.path_digests import PathDigests, digests
from elanus.core.pins import Pin
from elanus.core.segments import DeltaLog, SegmentInfo, SegmentManifest, SegmentState
from elanus.core.timestamps import Timestamp, physical_ms
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.vchannel_table import Vchannel
from elanus.meta.turns import in_turns
from elanus.storage.paths import (
    DELTA_LOG,
    INDEX_FILES,
    INSERT_LOG,
    MANIFESTS,
    PROGRESS,
    SNAPSHOTS,
    STATS_LOG,
)

_READS_AT_ONCE = 64
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class Moment:
    """The metadata as of ``now``. ``attempts_below``: see `elanus.core.gc.SweepRules`; ``wall_ms``: the time
    by the clock that stamps objects."""

    now: Timestamp
    wall_ms: float
    attempts_below: int
    segments: Sequence[SegmentInfo]
    vchannels: Sequence[Vchannel]
    dropped_vchannels: Sequence[Vchannel]

    async def reclaimable(self, policy: GcPolicy, held: frozenset[SegmentID]) -> list[SegmentInfo]:
        """Return the dropped segments whose files may be deleted. Other tasks run meanwhile."""
        return [s async for s in in_turns(self.segments) if may_reclaim(s, self.now, policy, held)]

    def ended_vchannels(self, policy: GcPolicy) -> list[Vchannel]:
        """Return the dropped vchannels whose delta logs may be deleted."""
        now_ms = physical_ms(self.now)
        return [v for v in self.dropped_vchannels if now_ms >= expires_ms(v.dropped, policy)]

    async def pinned(
        self,
        policy: GcPolicy,
        reclaimed: Iterable[SegmentInfo],
        served: frozenset[SegmentID],
        pinned: frozenset[SegmentID] = frozenset(),
        pins: Iterable[Pin] = (),
    ) -> tuple[PinnedSegment, ...]:
        """Return the dropped segments whose files are kept, and until when. Other tasks run meanwhile.

        ``reclaimed``: those whose files are not kept; ``served``: those that query nodes read; ``pinned``:
        those of which ``pins`` keep files.
        """
        gone = {s.segment_id for s in reclaimed}
        lent = {s.lender for s in self.segments if s.state is not SegmentState.DROPPED}
        pins_of: dict[CollectionID, list[Pin]] = {}
        for pin in pins:
            pins_of.setdefault(pin.collection_id, []).append(pin)
        found = []
        async for s in in_turns(self.segments):
            if not keeps_files(s) or s.segment_id in gone:
                continue
            until_ms = int(expires_ms(s.dropped, policy))
            readers = ["a query node"] * (s.segment_id in served) + ["a clone"] * (s.segment_id in lent)
            if s.segment_id in pinned:
                own = [p for p in pins_of.get(s.collection_id, ()) if p.path and p.read_ts < s.dropped]
                until_ms = max(until_ms, *(pin.expires_ms for pin in own), 0)
                readers += dict.fromkeys(map(_holder, own)) or [A_READER]
            found.append(
                PinnedSegment(
                    s.segment_id,
                    s.collection_id,
                    s.size_bytes,
                    physical_ms(s.dropped),
                    until_ms,
                    " and ".join(readers),
                )
            )
        return tuple(found)


def held_files(moment: Moment, pins: Iterable[Pin]) -> tuple[HeldFiles, ...]:
    """Return what pins and clones keep beyond the life of the collections that the files were written for."""
    found = [
        HeldFiles(
            _holder(pin),
            pin.collection_id,
            pin.expires_ms,
            0,
            physical_ms(pin.read_ts),
        )
        for pin in pins
    ]
    borrowed: Counter[CollectionID] = Counter()
    for info in moment.segments:
        if info.lender != NO_SEGMENT and info.state is not SegmentState.DROPPED:
            borrowed[info.collection_id] += info.size_bytes
    return (*found, *(HeldFiles("a clone", cid, 0, size) for cid, size in borrowed.items()))


def _holder(pin: Pin) -> str:
    return f"snapshot {pin.name}" if pin.name else "a clone being made" if pin.clones else A_READER


class References:
    """Reads the manifests in force. Takes no lock: a `Moment` does not change."""

    def __init__(self, manifests: Manifests, offload: Offload) -> None:
        self._manifests = manifests
        self._offload = offload

    async def rules(
        self,
        moment: Moment,
        index: IndexReferences,
        policy: GcPolicy,
        reclaimed: Iterable[SegmentInfo],
        pinned: PathDigests,
    ) -> dict[str, SweepRules]:
        """Return the rules per prefix: what may be deleted there. ``reclaimed``: the dropped segments whose
        files are to go; ``pinned``: paths that are kept even if their segment or vchannel was dropped."""
        gone = {str(s.segment_id) for s in reclaimed}
        gone |= {v.vchannel for v in moment.ended_vchannels(policy)}
        owners = {str(s.segment_id) async for s in in_turns(moment.segments) if keeps_files(s)}
        owners |= {v.vchannel for v in moment.dropped_vchannels}
        named, unreadable = await self._named(moment, gone)
        named |= {INDEX_FILES: list(index.files), SNAPSHOTS: [], PROGRESS: []}
        kept = frozenset(owners - gone | unreadable)
        return {
            prefix: SweepRules(
                named=await self._offload(digests, paths, pinned.within(prefix)),
                kept=kept if prefix != INDEX_FILES else frozenset(),
                gone=frozenset(gone) if prefix != INDEX_FILES else frozenset(),
                attempts_below=moment.attempts_below,
                builds_below=index.builds_below,
                unfinished=index.unfinished,
                modified_before_ms=policy.modified_before_ms(moment.wall_ms),
                unnumbered_before_ms=policy.unnumbered_before_ms(moment.wall_ms),
            )
            for prefix, paths in named.items()
        }

    async def _named(self, moment: Moment, gone: set[str]) -> tuple[dict[str, list[str]], set[str]]:
        """Return the paths in use per prefix, and the segments and vchannels whose lists cannot be read, with
        those from which clones have their files. ``gone``: those whose files may be deleted."""
        named: dict[str, list[str]] = {INSERT_LOG: [], STATS_LOG: [], DELTA_LOG: [], MANIFESTS: []}
        unreadable: set[str] = set()
        live = [
            s async for s in in_turns(moment.segments) if _names_files(s) and str(s.segment_id) not in gone
        ]
        for some in batched(live, _READS_AT_ONCE):
            for info, manifest in zip(some, await asyncio.gather(*map(self._read, some)), strict=True):
                named[MANIFESTS].append(info.manifest)
                if manifest is None:
                    unreadable |= {str(info.segment_id), str(info.lender)}
                else:
                    named[MANIFESTS] += self._manifests.befores(info.manifest)
                    named[INSERT_LOG] += (file.path for file in manifest.insert_logs)
                    named[STATS_LOG] += manifest.stats_logs
        ended = [v for v in moment.dropped_vchannels if v.lenders and v.vchannel not in gone]
        for vchannel in (*moment.vchannels, *ended):
            if vchannel.deltas:
                named[MANIFESTS].append(vchannel.deltas)
                logs = await self._read_deltas(vchannel)
                if logs is None:
                    unreadable |= {vchannel.vchannel, *vchannel.lenders}
                else:
                    named[MANIFESTS] += self._manifests.befores(vchannel.deltas)
                    named[DELTA_LOG] += (log.file.path for log in logs)
        return named, unreadable

    async def _read(self, info: SegmentInfo) -> SegmentManifest | None:
        try:
            return await self._manifests.of_segment(info)
        except StorageFault as error:
            _log.error("manifest not readable; all files of the segment are kept", manifest=info.manifest)
            _log.debug("manifest not readable: details", error=str(error))
            return None

    async def _read_deltas(self, vchannel: Vchannel) -> tuple[DeltaLog, ...] | None:
        try:
            return await self._manifests.of_vchannel(vchannel)
        except StorageFault as error:
            _log.error("delta list not readable; its delta logs are kept", path=vchannel.deltas)
            _log.debug("delta list not readable: details", error=str(error))
            return None


def _names_files(info: SegmentInfo) -> bool:
    """Whether what the segment's manifest names is in use.

    The files of a dropped segment have its id in their paths, and stay until their time has come. Those that
    a clone borrows do not, so its manifest speaks for them as long as it may be read.
    """
    return bool(info.manifest) and (info.state is not SegmentState.DROPPED or info.lender != NO_SEGMENT)
