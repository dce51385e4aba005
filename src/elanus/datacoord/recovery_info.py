"""The segments of a collection, and everything else that a reader needs to rebuild it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from elanus.api.recovery import DamagedManifest, LogHold, RecoveryInfo, VchannelRecovery
from elanus.core.channels import pchannel_of
from elanus.core.errors import CollectionNotFound
from elanus.core.ids import CollectionID, SegmentID
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.datacoord.context import DataContext
from elanus.datacoord.log_holds import LogHolds
from elanus.datacoord.manifest_reader import Chosen, Contents, empty
from elanus.datacoord.vchannel_table import Vchannel
from elanus.datacoord.write_commits import unserved


class Recovery:
    """Implements `elanus.api.recovery.SegmentCalls`."""

    def __init__(self, context: DataContext, log_holds: LogHolds) -> None:
        self._state = context.state
        self._manifests = context.manifests
        self._allocator = context.allocator
        self._log_holds = log_holds

    async def segments(self, collection_id: CollectionID) -> tuple[SegmentInfo, ...]:
        found = self._state.segments_of(collection_id) if collection_id else self._state.segments()
        return tuple(self._with_seen_rows(s) for s in found)

    async def segment_states(self) -> dict[str, int]:
        return {state.name.lower(): count for state, count in self._state.segment_states().items()}

    async def segments_by_id(self, segment_ids: tuple[SegmentID, ...]) -> tuple[SegmentInfo, ...]:
        found = (self._state.find_segment(segment_id) for segment_id in segment_ids)
        return tuple(self._with_seen_rows(s) for s in found if s is not None)

    def _with_seen_rows(self, info: SegmentInfo) -> SegmentInfo:
        seen = self._allocator.seen_rows(info)
        return replace(info, rows=info.rows + seen) if seen else info

    async def recovery_info(
        self, collection_id: CollectionID, held: tuple[SegmentID, ...] = ()
    ) -> RecoveryInfo:
        """Answer as of one moment. No lock is taken: the manifests are read first, and again those that
        commits
        have replaced meanwhile; then all is put together without a pause.

        A manifest that cannot be read concerns its segment alone, and a list of delta logs the segments of
        its vchannel: what they name is reported as damaged."""
        chosen, contents = await self._manifests.current(
            lambda: self._chosen(collection_id), skip_damaged=True
        )
        for vchannel in chosen.vchannels:
            self._log_holds.give_out(pchannel_of(vchannel.vchannel), vchannel.checkpoint.position)
        reasons = _damage(chosen, contents)
        pending = unserved(self._state.imports(), collection_id)
        flushed = [s for s in chosen.segments if s.state is SegmentState.FLUSHED]
        dropped = {v.vchannel: self._state.dropped_segments_on(v.vchannel) for v in chosen.vchannels}
        successors = self._state.successors_of(
            (*self._state.gone(held), *(s.segment_id for of in dropped.values() for s in of))
        )
        return RecoveryInfo(
            collection_id,
            tuple(
                _recovery(
                    v,
                    self._state.unflushed_on(v.vchannel),
                    dropped[v.vchannel],
                    contents,
                    reasons,
                    pending,
                )
                for v in chosen.vchannels
            ),
            contents.of_segments([s for s in flushed if s.segment_id not in reasons]),
            {s: heirs[0] if heirs else SegmentID(0) for s, heirs in successors.items()},
            _damaged(flushed, reasons),
            chosen.vchannels[0].schema,
            {s: heirs for s, heirs in successors.items() if len(heirs) > 1},
        )

    def _chosen(self, collection_id: CollectionID) -> Chosen:
        """Return the vchannels and the segments that are not dropped. Raises `CollectionNotFound`."""
        vchannels = [v for v in self._state.vchannels_of(collection_id) if not v.dropping]
        if not vchannels:
            raise CollectionNotFound(f"collection not found[collection={collection_id}]")
        segments = self._state.segments_of(collection_id)
        return Chosen([s for s in segments if s.state is not SegmentState.DROPPED], vchannels)

    async def hold_log(self, holds: tuple[LogHold, ...]) -> None:
        self._log_holds.report(holds)


def _damage(chosen: Chosen, contents: Contents) -> dict[SegmentID, str]:
    """Return the segments that have binlogs and cannot be read, each with the reason."""
    if not contents.damaged:
        return {}
    lists = {v.vchannel: contents.damaged[v.deltas] for v in chosen.vchannels if v.deltas in contents.damaged}
    found = ((s, contents.damaged.get(s.manifest) or lists.get(s.vchannel)) for s in chosen.segments)
    return {s.segment_id: reason for s, reason in found if reason and s.manifest}


def _damaged(
    segments: Iterable[SegmentInfo], reasons: Mapping[SegmentID, str]
) -> tuple[DamagedManifest, ...]:
    return tuple(
        DamagedManifest(empty(s), reasons[s.segment_id]) for s in segments if s.segment_id in reasons
    )


def _recovery(
    vchannel: Vchannel,
    unflushed: Iterable[SegmentInfo],
    dropped: Iterable[SegmentInfo],
    contents: Contents,
    reasons: Mapping[SegmentID, str],
    apart: frozenset[str],
) -> VchannelRecovery:
    unflushed = [s for s in unflushed if s.manifest]
    logs = () if vchannel.deltas in contents.damaged else contents.of_vchannel(vchannel)
    return VchannelRecovery(
        vchannel.vchannel,
        vchannel.checkpoint,
        tuple(log for log in logs if log.file.path not in apart),
        growing=contents.of_segments([s for s in unflushed if s.segment_id not in reasons]),
        excluded=tuple(s.segment_id for s in dropped if s.dropped > vchannel.checkpoint.ts),
        damaged=_damaged(unflushed, reasons),
        unserved=tuple(log for log in logs if log.file.path in apart),
    )
