"""The data coordinator's interface: allocation, sealing, flush, commits. Recovery is in `recovery`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from elanus.api.backups import BackupCalls
from elanus.api.gc import GcCalls
from elanus.api.idempotency import repeatable
from elanus.api.imports import ImportRequest
from elanus.api.recovery import SegmentCalls
from elanus.api.snapshots import CloneCalls, DroppedCollection, SnapshotCalls
from elanus.api.storage_use import StorageCalls
from elanus.core.attempts import NO_ATTEMPT
from elanus.core.catalog import Checkpoint, Collection
from elanus.core.clustering import Cluster
from elanus.core.compaction import CompactionPlan
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID, TaskID
from elanus.core.imports import ImportTask
from elanus.core.quarantine import Quarantined
from elanus.core.schema import CollectionSchema
from elanus.core.segments import BinlogFile
from elanus.core.timestamps import Timestamp


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """A request for space for ``rows`` rows of one (collection, partition, vchannel)."""

    collection_id: CollectionID
    partition_id: PartitionID
    vchannel: str
    rows: int


@dataclass(frozen=True, slots=True)
class SegmentAllocation:
    """A segment allocation: ``rows`` rows may be written to the segment with timestamps up to ``expires``."""

    collection_id: CollectionID
    partition_id: PartitionID
    vchannel: str
    segment_id: SegmentID
    rows: int
    expires: Timestamp


@dataclass(frozen=True, slots=True)
class FlushOutcome:
    """``sealed``: segments that this call found unflushed; ``flushed``: those flushed before."""

    sealed: tuple[SegmentID, ...]
    flushed: tuple[SegmentID, ...]
    flush_ts: Timestamp


@dataclass(frozen=True, slots=True)
class ChannelAssignment:
    """A vchannel that a data node owns: since which epoch, and from which checkpoint it continues.

    Every commit of a range carries ``epoch``. It grows each time the vchannel is given to a node.
    """

    vchannel: str
    collection_id: CollectionID
    schema: CollectionSchema
    checkpoint: Checkpoint
    epoch: int


@dataclass(frozen=True, slots=True)
class DataNodeRegistration:
    """``epoch`` is the registration's own. All calls between datacoord and the node carry it, except those
    that concern the ownership of a vchannel. ``channels``: what the node owns."""

    epoch: int
    channels: tuple[ChannelAssignment, ...]


@dataclass(frozen=True, slots=True)
class DataNodeTick:
    """DataNodeTtMsg: the data node has seen everything of the vchannel up to ``ts``.

    ``segment_rows`` and ``bytes`` count what is beyond the checkpoint with timestamp ``checkpoint_ts``.
    """

    vchannel: str
    ts: Timestamp
    checkpoint_ts: Timestamp
    segment_rows: Mapping[SegmentID, int]
    bytes: int


@dataclass(frozen=True, slots=True)
class SegmentOutput:
    """The files and rows that one range adds to one segment.

    The output of merged delta logs is one delta log, in place of insert logs, of no segment. ``cluster``: see
    `elanus.core.segments.SegmentManifest`.
    """

    segment_id: SegmentID
    insert_logs: tuple[BinlogFile, ...]
    stats_logs: tuple[str, ...]
    cluster: Cluster | None = None


@dataclass(frozen=True, slots=True)
class CheckpointMove:
    """A range of a vchannel without any writes. The fields are those of `RangeCommit`."""

    epoch: int
    vchannel: str
    expected: Checkpoint
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class RangeCommit:
    """One pipeline range of one vchannel, to be committed as a whole or not at all.

    ``expected`` is the checkpoint the range started from. ``flushed``: segments that are complete with
    this range. ``attempt``: the number that the files carry in their names (`elanus.core.attempts`);
    0 where there are no files. ``epoch``: the vchannel's epoch under its owner. ``quarantined``:
    entries of the range that are in no file, because they do not fit the collection's schema.
    """

    epoch: int
    vchannel: str
    expected: Checkpoint
    checkpoint: Checkpoint
    segments: tuple[SegmentOutput, ...]
    delta: BinlogFile | None
    flushed: tuple[SegmentID, ...]
    attempt: int = NO_ATTEMPT
    quarantined: tuple[Quarantined, ...] = ()


@dataclass(frozen=True, slots=True)
class CompactionCommit:
    """The result of a compaction. One by a clustering key has any number of outputs, others exactly one; an
    output without rows has no files. ``attempt``: the order's; ``epoch``: of the data node's registration.
    """

    epoch: int
    attempt: int
    plan_id: int
    outputs: tuple[SegmentOutput, ...]


class ChannelCalls(CloneCalls, Protocol):
    """The vchannels of collections."""

    @repeatable
    async def change_schema(self, collection_id: CollectionID, schema: CollectionSchema) -> None:
        """Write the collection's rows with this schema from now on: it has, or remembers, all former fields.

        When this has returned, no flush with the former schema is committed any more.
        """
        ...

    @repeatable
    async def watch_channels(self, collection: Collection) -> None:
        """A collection was created: its vchannels exist from their start positions on."""
        ...

    @repeatable
    async def holds_channels(self, collection_id: CollectionID) -> bool:
        """Whether the drop message of any vchannel of the collection is still unread."""

    @repeatable
    async def channel_owners(self) -> dict[str, NodeID]:
        """Return the data node that owns each vchannel, `NO_NODE` where none does yet. Vchannels of dropped
        collections are left out."""

    @repeatable
    async def owned_vchannels(self) -> dict[NodeID, int]:
        """Return how many vchannels each data node owns; `NO_NODE`: those without an owner. Without those of
        dropped collections."""

    @repeatable
    async def quarantined(self) -> dict[str, int]:
        """Return the number of entries in each vchannel's log that flushes left out because they do not
        fit the collection's schema. Vchannels without such entries and those of dropped collections are
        left out."""

    @repeatable
    async def remember_dropped(self, record: DroppedCollection) -> None:
        """Keep the definition of a dropped collection, by which it can be restored while its files exist.

        The first one counts: later ones may lack the indexes, which are dropped afterwards.
        """

    @repeatable
    async def drop_collection(self, collection_id: CollectionID) -> None:
        """Refuse allocations and flushes for it from now on; the data node reports its channels dropped."""

    @repeatable
    async def drop_partition(self, collection_id: CollectionID, partition_id: PartitionID) -> None:
        """Mark the partition's segments dropped."""

    @repeatable
    async def channel_dropped(self, epoch: int, vchannel: str) -> None:
        """The data node has read the drop message: the vchannel and its segments are marked dropped.

        Raises `CommitRefused` when the vchannel is no longer owned under the epoch.
        """

    @repeatable
    async def channel_unreadable(self, epoch: int, vchannel: str) -> bool:
        """The log cannot be read: as `channel_dropped` if the collection was. Returns whether it was."""


class AllocationCalls(Protocol):
    """Segment allocation."""

    @repeatable
    async def allocate(self, requests: tuple[AllocationRequest, ...]) -> tuple[SegmentAllocation, ...]: ...


class FlushCalls(Protocol):
    """Flushes that clients request."""

    @repeatable
    async def flush(self, collection_id: CollectionID) -> FlushOutcome:
        """Seal all growing segments of the collection and return. Flushing follows in the background."""
        ...

    @repeatable
    async def flush_finished(
        self, collection_id: CollectionID, segment_ids: tuple[SegmentID, ...], flush_ts: Timestamp
    ) -> bool:
        """Whether the segments are flushed (or dropped, or unknown).

        With a ``flush_ts``, every segment that existed at that time must be too.
        """
        ...


class ChangeCalls(Protocol):
    """The counter of changes, for roles that follow this one (`elanus.core.change`)."""

    @repeatable
    async def wait_change(self, since: int, timeout_s: float) -> int:
        """Return the change counter as soon as it is larger than ``since``, or after the timeout."""
        ...

    @repeatable
    async def changed_since(self, since: int) -> tuple[CollectionID, ...] | None:
        """Return the collections that the changes after ``since`` concerned; ``None``: it may be any of
        them."""
        ...


class RegistrationCalls(Protocol):
    """The registration of data nodes."""

    @repeatable
    async def register_datanode(self, node_id: NodeID) -> DataNodeRegistration:
        """Own a share of the vchannels from now on. Everything under an earlier registration has ended.

        ``node_id`` is that of the node's session; raises `NodeReplaced` when it has ended, or a later
        one has its address.
        """
        ...


class DataNodeCalls(Protocol):
    """The calls with which data nodes report and commit."""

    @repeatable
    async def report_ticks(self, epoch: int, ticks: tuple[DataNodeTick, ...]) -> tuple[str, ...]:
        """Report how far vchannels have been read: those with writes beyond their checkpoints, and those of
        the last answer.

        Returns the vchannels without such writes whose ticks are awaited. The others are reported seldom: a
        node may have thousands of idle vchannels.
        """
        ...

    @repeatable
    async def open_attempts(self, epoch: int, count: int) -> int:
        """Return the first of ``count`` consecutive numbers for attempts of jobs that are about to write
        files.

        Raises `CommitRefused` for an epoch that has been replaced.
        """
        ...

    @repeatable
    async def close_attempts(self, attempts: tuple[int, ...]) -> None:
        """Their owner will commit nothing under these numbers. Files written under them become garbage
        immediately, instead of after the commit deadline. Closing twice has no further effect."""
        ...

    async def commit_range(self, commit: RangeCommit) -> None:
        """Commit a range. Raises `CommitRefused` when the checkpoint, the epoch, the attempt or a segment is
        not the expected one. The attempt has ended in either case.

        A caller that got no answer may repeat its last commit of a vchannel: the coordinator that has applied
        it answers as if it did so now."""
        ...


class CompactionCalls(Protocol):
    """Compactions: requested by clients, carried out by data nodes."""

    async def compact(
        self, collection_id: CollectionID, target_bytes: int | None = None, by_key: bool = False
    ) -> int:
        """Plan every compaction that gains anything, ignoring thresholds; return before they are carried out.

        ``target_bytes``: segments are merged up to this size, by the estimated size of their rows, and not
        beyond the maximum of a segment (None: up to that maximum, if they are not half as large). ``by_key``:
        segments are rewritten by the collection's clustering key, if it has one (`elanus.core.clustering`).
        Returns the plans' trigger id. Raises `CollectionNotFound`, `InvalidParameter` (target below maximum).
        """
        ...

    @repeatable
    async def compaction_plans(self, trigger_id: int) -> tuple[CompactionPlan, ...]:
        """Return the current state of the plans made together; none when the id is unknown or ended long
        ago."""
        ...

    @repeatable
    async def compactions_of(self, collection_id: CollectionID) -> tuple[CompactionPlan, ...]:
        """Return the plans of a collection that are remembered: those that run, and those that ended
        lately."""
        ...

    async def commit_compaction(self, commit: CompactionCommit) -> None:
        """Replace the inputs by the outputs. Raises `CommitRefused` when the epoch, the plan or an input is
        not the expected one, or it is too late."""
        ...

    @repeatable
    async def compaction_failed(self, epoch: int, plan_id: int, reason: str) -> None: ...


class ImportCalls(Protocol):
    """Imports of files."""

    async def start_import(self, request: ImportRequest) -> TaskID:
        """Put an import into the queue; return before it runs. A write that is known is not queued again.

        Raises `CollectionNotFound`, `PartitionNotFound`, and `TaskQueueFull`.
        """
        ...

    @repeatable
    async def import_task(self, task_id: TaskID) -> ImportTask:
        """Raises `InvalidParameter` for a task that is unknown or was forgotten."""
        ...

    @repeatable
    async def import_tasks(self, collection_id: CollectionID) -> tuple[ImportTask, ...]:
        """Return the tasks of a collection, or all when it is 0; oldest first."""
        ...

    @repeatable
    async def commit_import(self, task_id: TaskID) -> None:
        """Commit a task that waits for its commit; nothing for one that has committed.

        Raises `InvalidParameter` for a task in another state, `ImportRefused` for one that is unknown,
        `CollectionNotFound` and `PartitionNotFound`.
        """
        ...

    @repeatable
    async def cancel_import(self, task_id: TaskID) -> None:
        """End a task that has not committed. Raises `InvalidParameter` for one that has."""
        ...


class CheckpointCalls(Protocol):
    """Checkpoints that move without a job."""

    @repeatable
    async def move_checkpoints(self, moves: tuple[CheckpointMove, ...]) -> dict[str, str]:
        """Move the checkpoints of vchannels over ranges without writes, in one change.

        Returns why a move was refused, by vchannel: its checkpoint or epoch is not the expected one. The
        other moves are made all the same.
        """
        ...


class MemoryCalls(Protocol):
    """The growing data that leaves the query nodes' memory, for back-pressure."""

    @repeatable
    async def flushing_bytes(self) -> int:
        """Return how much growing data of a query node is sealed and on its way out of memory: the largest
        figure of all nodes, a few seconds old. 0 while no node is above the soft limit of back-pressure."""
        ...


class DataCoordApi(
    ChannelCalls,
    AllocationCalls,
    FlushCalls,
    SegmentCalls,
    ChangeCalls,
    RegistrationCalls,
    DataNodeCalls,
    CompactionCalls,
    ImportCalls,
    GcCalls,
    MemoryCalls,
    StorageCalls,
    CheckpointCalls,
    SnapshotCalls,
    BackupCalls,
    Protocol,
):
    """All calls of datacoord except those of the job ledger and of the connector's snapshots."""
