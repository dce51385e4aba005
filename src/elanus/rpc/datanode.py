"""What datacoord asks of a data node.

Every order carries the epoch of the registration it is meant for. A node that has heard of a later one
refuses it (`CommitRefused`): the order comes from a coordinator that was replaced, or was meant for an
earlier life of the process at this address. Which vchannels a node owns under one registration may change:
each has an epoch of its own, by which the two know which of two changes is the later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema
from elanus.core.segments import BinlogFile, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.rpc.datacoord import ChannelAssignment
from elanus.rpc.fencing import order_of
from elanus.rpc.gc import SweeperApi
from elanus.rpc.imports import ImportNodeApi
from elanus.rpc.repeat import repeatable


@dataclass(frozen=True, slots=True)
class FlushReason:
    """Why a range is to be written, and who waits for it: for the job ledger."""

    cause: str
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompactionOrder:
    """What becomes of which files: ``inputs`` without what is dead become the segment ``segment_id``.

    Dead is a row with a delete in ``delta_logs`` that is later than the row and not later than
    ``fold_until``, and a row not later than ``expire_until``. ``attempt``: see `elanus.core.attempts`.
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

    @property
    def insert_logs(self) -> tuple[BinlogFile, ...]:
        """All files of the inputs, in their order."""
        return tuple(file for manifest in self.inputs for file in manifest.insert_logs)


class DataNodeApi(Protocol):
    @order_of("datacoord")
    @repeatable
    async def watch_channels(self, epoch: int, channels: tuple[ChannelAssignment, ...]) -> None:
        """Own these vchannels as well, from their checkpoints on. Those it owns already under the same epoch,
        or has been told to leave under it, stay as they are."""
        ...

    @order_of("datacoord")
    @repeatable
    async def unwatch_channels(self, epoch: int, channels: Mapping[str, int]) -> None:
        """Others own these vchannels now: leave them. ``channels``: the epoch each was owned under."""
        ...

    @order_of("datacoord")
    @repeatable
    async def flush_segments(
        self, epoch: int, vchannel: str, segment_ids: tuple[SegmentID, ...], reason: FlushReason
    ) -> None:
        """Bring the vchannel up to its current tick into binlogs and commit these segments as flushed.

        Returns when the order is noted; datacoord hears of the result through `commit_range`. Without
        segments only the checkpoint moves on.
        """
        ...

    @order_of("datacoord")
    @repeatable
    async def compact(self, epoch: int, order: CompactionOrder) -> None:
        """Returns when the order is noted; datacoord hears of the result through `commit_compaction` or
        `compaction_failed`. A later attempt of a plan ends the one before. Raises `NotReady` when the node
        has not heard that it is registered under the epoch."""
        ...

    @order_of("datacoord")
    @repeatable
    async def cancel_compactions(self, epoch: int, plan_ids: tuple[int, ...]) -> None:
        """Nobody wants their results any more."""
        ...


@dataclass(frozen=True, slots=True)
class DataNodePorts:
    """A data node as datacoord reaches it: where it is, and the sides it serves there."""

    address: str
    orders: DataNodeApi
    imports: ImportNodeApi
    sweeps: SweeperApi
