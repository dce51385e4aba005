"""How readers rebuild a collection: a part of the data coordinator's interface, and its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from elanus.api.idempotency import repeatable
from elanus.core.catalog import Checkpoint
from elanus.core.heirs import Heirs
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.schema import CollectionSchema
from elanus.core.segments import DeltaLog, SegmentInfo, SegmentManifest


@dataclass(frozen=True, slots=True)
class DamagedManifest:
    """A segment whose manifest, or whose vchannel's list of delta logs, cannot be read.

    ``manifest``: without its files. ``reason`` names the object.
    """

    manifest: SegmentManifest
    reason: str


@dataclass(frozen=True, slots=True)
class VchannelRecovery:
    """``growing``: manifests of segments that are not flushed but already have binlogs; ``damaged``: those
    of them that cannot be read. ``unserved``: delta logs of writes that are not served yet, which are not
    among ``delta_logs``: nodes apply them with the version that brings the write's rows online."""

    vchannel: str
    checkpoint: Checkpoint
    delta_logs: tuple[DeltaLog, ...]
    growing: tuple[SegmentManifest, ...]
    excluded: tuple[SegmentID, ...]
    damaged: tuple[DamagedManifest, ...] = ()
    unserved: tuple[DeltaLog, ...] = ()


@dataclass(frozen=True, slots=True)
class LogHold:
    """The lowest position of a pchannel's log that ``holder`` still needs.

    ``holder``: a query node; 0 is querycoord, for nodes that it is about to have read there.
    """

    holder: NodeID
    pchannel: str
    position: int


@dataclass(frozen=True, slots=True)
class RecoveryInfo:
    """All that a reader needs to rebuild a collection: one consistent moment of the metadata.

    ``successors`` and ``split`` are the `heirs` of the dropped segments on record, and of the requested ones
    that have no record any more. ``damaged``: the flushed segments whose manifests cannot be read; they are
    not in ``flushed``. ``schema``: the one that rows are written with; it may have fields that the catalog is
    about to show.
    """

    collection_id: CollectionID
    vchannels: tuple[VchannelRecovery, ...]
    flushed: tuple[SegmentManifest, ...]
    successors: Mapping[SegmentID, SegmentID] = field(default_factory=dict)
    damaged: tuple[DamagedManifest, ...] = ()
    schema: CollectionSchema | None = None
    split: Mapping[SegmentID, tuple[SegmentID, ...]] = field(default_factory=dict)

    @property
    def heirs(self) -> Heirs:
        """The flushed segments that have the rows of dropped ones."""
        return Heirs(self.successors, self.split)


class SegmentCalls(Protocol):
    """The segments of a collection, and how to rebuild them."""

    @repeatable
    async def segments(self, collection_id: CollectionID) -> tuple[SegmentInfo, ...]:
        """Return all segments of a collection; of all collections when it is 0. ``rows`` includes unflushed
        ones."""
        ...

    @repeatable
    async def segment_states(self) -> dict[str, int]:
        """Return how many segments there are in each state, by the lower-case name of a `SegmentState`."""
        ...

    @repeatable
    async def segments_by_id(self, segment_ids: tuple[SegmentID, ...]) -> tuple[SegmentInfo, ...]:
        """Return the segments among these that exist, in any order."""
        ...

    @repeatable
    async def recovery_info(
        self, collection_id: CollectionID, held: tuple[SegmentID, ...] = ()
    ) -> RecoveryInfo:
        """``held``: segments that the reader serves; the answer says which of them are dropped.

        The log is kept from the vchannels' checkpoints on until `hold_log` can say how far it is needed.
        """
        ...

    @repeatable
    async def hold_log(self, holds: tuple[LogHold, ...]) -> None:
        """Keep the log from these positions on; those of the call before do not count any more.

        A position that does not move counts for `datacoord.log_hold_s` only.
        """
        ...
