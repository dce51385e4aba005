"""The interface of a data node towards datacoord.

Every order carries the epoch of the registration it is meant for. A node that knows a later epoch refuses the
order (`CommitRefused`): it comes from a coordinator that was replaced, or was meant for an earlier
incarnation of the process at this address. The vchannels that a node owns under one registration may change.
Each vchannel has an epoch of its own, which shows both sides which of two changes is the later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from elanus.api.datacoord import ChannelAssignment
from elanus.api.fencing import order_of
from elanus.api.gc import SweeperApi
from elanus.api.idempotency import repeatable
from elanus.api.imports import ImportNodeApi
from elanus.core.clustering import Clustering
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema
from elanus.core.segments import BinlogFile, SegmentManifest
from elanus.core.timestamps import Timestamp


@dataclass(frozen=True, slots=True)
class FlushReason:
    """Why a range is to be written, and who waits for it; shown in the job ledger."""

    cause: str
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompactionOrder:
    """Which files become what: ``inputs`` without their dead rows become the segment ``segment_id``.

    A row is dead when ``delta_logs`` has a delete for it that is later than the row and not later than
    ``fold_until``, or when the row is not later than ``expire_until``. ``attempt``: see
    `elanus.core.attempts`. With ``merges_deltas`` there are no inputs, and ``delta_logs`` become one. With
    ``clustering`` the inputs become several segments, as it says.
    """

    plan_id: int
    attempt: int
    collection_id: CollectionID
    partition_id: PartitionID
    vchannel: str
    segment_id: SegmentID
    schema: CollectionSchema
    inputs: tuple[SegmentManifest, ...]
    delta_logs: tuple[BinlogFile, ...]
    fold_until: Timestamp
    expire_until: Timestamp
    merges_deltas: bool = False
    clustering: Clustering | None = None

    @property
    def insert_logs(self) -> tuple[BinlogFile, ...]:
        """All files of the inputs, in their order."""
        return tuple(file for manifest in self.inputs for file in manifest.insert_logs)


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """``attempts``: those of the orders that the node has. ``room``: how many compactions it can run at a
    time now."""

    attempts: tuple[int, ...]
    room: int


class DataNodeApi(Protocol):
    @order_of("datacoord")
    @repeatable
    async def watch_channels(self, epoch: int, channels: tuple[ChannelAssignment, ...]) -> None:
        """Own these vchannels as well, from their checkpoints on. Those that the node already owns, or was
        ordered to leave, under the same epoch stay as they are."""
        ...

    @order_of("datacoord")
    @repeatable
    async def unwatch_channels(self, epoch: int, channels: Mapping[str, int]) -> None:
        """Leave these vchannels: others own them now. ``channels``: the epoch each was owned under."""
        ...

    @order_of("datacoord")
    @repeatable
    async def flush_segments(
        self, epoch: int, vchannel: str, segment_ids: tuple[SegmentID, ...], reason: FlushReason
    ) -> None:
        """Write the vchannel up to its current tick to binlogs and commit these segments as flushed.

        Returns when the order is noted; datacoord receives the result through `commit_range`. Without
        segments, only the checkpoint advances.
        """
        ...

    @order_of("datacoord")
    @repeatable
    async def report_soon(self, epoch: int, vchannel: str, at_least: Timestamp) -> None:
        """Report the vchannel's tick as soon as it has reached ``at_least``, although nothing was written."""
        ...

    @order_of("datacoord")
    @repeatable
    async def compact(self, epoch: int, order: CompactionOrder) -> int:
        """Return when the order is noted: how many compactions the node can run at a time now. Datacoord
        receives the result through `commit_compaction` or `compaction_failed`. A later attempt of a plan ends
        the previous one. Raises `NotReady` when the node does not know yet that it is registered under the
        epoch."""
        ...

    @order_of("datacoord")
    @repeatable
    async def compactions(self, epoch: int) -> CompactionWork:
        """Return the compactions that the node has: those that run, wait for Spark or are being committed.
        Raises as `compact` does."""
        ...

    @order_of("datacoord")
    @repeatable
    async def cancel_compactions(self, epoch: int, plan_ids: tuple[int, ...]) -> None:
        """Stop these compactions: their results are no longer wanted."""
        ...


@dataclass(frozen=True, slots=True)
class DataNodePorts:
    """A data node as datacoord reaches it: its address and the interfaces it serves there."""

    address: str
    orders: DataNodeApi
    imports: ImportNodeApi
    sweeps: SweeperApi
