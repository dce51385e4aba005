"""The data coordinator's interface: quota, sealing, flush, commits, recovery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from elanus.core.attempts import NO_ATTEMPT
from elanus.core.catalog import Checkpoint, Collection
from elanus.core.compaction import CompactionPlan
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID, TaskID
from elanus.core.imports import ImportTask
from elanus.core.schema import CollectionSchema
from elanus.core.segments import BinlogFile, DeltaLog, SegmentInfo, SegmentManifest
from elanus.core.timestamps import Timestamp
from elanus.rpc.gc import GcStatus
from elanus.rpc.imports import ImportRequest
from elanus.rpc.repeat import repeatable


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """Room for ``rows`` rows of one (collection, partition, vchannel)."""

    collection_id: CollectionID
    partition_id: PartitionID
    vchannel: str
    rows: int


@dataclass(frozen=True, slots=True)
class Quota:
    """``rows`` rows may be written to the segment with timestamps up to ``expires``."""

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
class VchannelRecovery:
    """``growing``: manifests of segments that are not flushed and have binlogs already."""

    vchannel: str
    checkpoint: Checkpoint
    delta_logs: tuple[DeltaLog, ...]
    growing: tuple[SegmentManifest, ...]
    excluded: tuple[SegmentID, ...]


@dataclass(frozen=True, slots=True)
class RecoveryInfo:
    """All that a reader needs to rebuild a collection: one consistent moment of the metadata.

    ``successors``: the dropped segments on record, and those asked about of which no record is left; each
    with the flushed segment that compaction has brought its rows to, or 0 when there is none.
    """

    collection_id: CollectionID
    vchannels: tuple[VchannelRecovery, ...]
    flushed: tuple[SegmentManifest, ...]
    successors: Mapping[SegmentID, SegmentID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChannelAssignment:
    """A vchannel a data node owns, since when, and where it goes on.

    ``epoch`` stands in every commit of a range: it grows each time the vchannel is given to a node.
    """

    vchannel: str
    collection_id: CollectionID
    schema: CollectionSchema
    checkpoint: Checkpoint
    epoch: int


@dataclass(frozen=True, slots=True)
class DataNodeRegistration:
    """``epoch`` is the registration's own: it stands in all that datacoord and the node say to one another,
    but for what concerns the ownership of a vchannel. ``channels``: what the node owns."""

    epoch: int
    channels: tuple[ChannelAssignment, ...]


@dataclass(frozen=True, slots=True)
class DataNodeTick:
    """DataNodeTtMsg: everything of the vchannel up to ``ts`` has been seen by its data node.

    ``segment_rows`` and ``bytes`` count what lies beyond the checkpoint with timestamp
    ``checkpoint_ts``.
    """

    vchannel: str
    ts: Timestamp
    checkpoint_ts: Timestamp
    segment_rows: Mapping[SegmentID, int]
    bytes: int


@dataclass(frozen=True, slots=True)
class SegmentOutput:
    """What one range adds to one segment."""

    segment_id: SegmentID
    insert_logs: tuple[BinlogFile, ...]
    stats_logs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RangeCommit:
    """One pipeline range of one vchannel, to be committed as a whole or not at all.

    ``expected`` is the checkpoint the range started from. ``flushed``: segments that are complete with
    this range. ``attempt``: the number that the files carry in their names (`elanus.core.attempts`);
    0 where there are no files. ``epoch``: the vchannel's, under which its owner has it.
    """

    epoch: int
    vchannel: str
    expected: Checkpoint
    checkpoint: Checkpoint
    segments: tuple[SegmentOutput, ...]
    delta: BinlogFile | None
    flushed: tuple[SegmentID, ...]
    attempt: int = NO_ATTEMPT


@dataclass(frozen=True, slots=True)
class CompactionCommit:
    """The result of a compaction: its output's files, none when no row was left.

    ``attempt``: the order's. ``epoch``: that of the data node's registration.
    """

    epoch: int
    attempt: int
    plan_id: int
    output: SegmentOutput


class DataCoordApi(Protocol):
    @repeatable
    async def assign_quota(self, requests: tuple[QuotaRequest, ...]) -> tuple[Quota, ...]: ...
    @repeatable
    async def watch_channels(self, collection: Collection) -> None:
        """A collection was created: its vchannels exist from their starts on."""
        ...

    @repeatable
    async def holds_channels(self, collection_id: CollectionID) -> bool:
        """Whether the drop message of any vchannel of the collection has still to be read."""
        ...

    @repeatable
    async def channel_owners(self) -> dict[str, NodeID]:
        """The data node that owns each vchannel, `NO_NODE` where none does yet. Those of dropped collections
        are not among them."""
        ...

    @repeatable
    async def drop_collection(self, collection_id: CollectionID) -> None:
        """Refuse quota and flushes for it from now on; the data node reports its channels dropped."""
        ...

    @repeatable
    async def drop_partition(self, collection_id: CollectionID, partition_id: PartitionID) -> None:
        """Marks the partition's segments dropped."""
        ...

    @repeatable
    async def flush(self, collection_id: CollectionID) -> FlushOutcome:
        """Seals all growing segments of the collection and returns; flushing follows (seed 1)."""
        ...

    @repeatable
    async def flush_finished(
        self, collection_id: CollectionID, segment_ids: tuple[SegmentID, ...], flush_ts: Timestamp
    ) -> bool:
        """Whether the segments are flushed (or dropped, or unknown).

        With a ``flush_ts``: and every segment too that was there at that time.
        """
        ...

    @repeatable
    async def segments(self, collection_id: CollectionID) -> tuple[SegmentInfo, ...]:
        """All segments of a collection; of all collections when it is 0. ``rows`` includes unflushed ones."""
        ...

    @repeatable
    async def segments_by_id(self, segment_ids: tuple[SegmentID, ...]) -> tuple[SegmentInfo, ...]:
        """Those that exist, in any order."""
        ...

    @repeatable
    async def recovery_info(
        self, collection_id: CollectionID, held: tuple[SegmentID, ...] = ()
    ) -> RecoveryInfo:
        """``held``: segments a reader serves, to be told which of them are dropped."""
        ...

    async def compact(self, collection_id: CollectionID) -> int:
        """Plan whatever compaction gains anything, thresholds aside; returns before it is carried out.

        The answer is the plans' trigger id. Raises `CollectionNotFound`.
        """
        ...

    @repeatable
    async def compaction_plans(self, trigger_id: int) -> tuple[CompactionPlan, ...]:
        """The plans made at once, as they stand; none when the id is unknown or long over."""
        ...

    @repeatable
    async def wait_change(self, since: int, timeout_s: float) -> int:
        """Returns the change counter as soon as it is larger than ``since``, or after the timeout."""
        ...

    @repeatable
    async def changed_since(self, since: int) -> tuple[CollectionID, ...] | None:
        """The collections that the changes after ``since`` concerned; ``None``: it may be any."""
        ...

    @repeatable
    async def register_datanode(self, node_id: NodeID) -> DataNodeRegistration:
        """Own a share of the vchannels from now on. What the node did under an earlier registration is over.

        ``node_id`` is that of the node's session; raises `NodeReplaced` when it has ended, or a later
        one has its address.
        """
        ...

    @repeatable
    async def report_ticks(self, epoch: int, ticks: tuple[DataNodeTick, ...]) -> None: ...
    @repeatable
    async def open_attempts(self, epoch: int, count: int) -> int:
        """The first of ``count`` consecutive numbers for tries of jobs that are about to write files.

        Raises `CommitRefused` for an epoch that has been replaced.
        """
        ...

    @repeatable
    async def close_attempts(self, attempts: tuple[int, ...]) -> None:
        """Their owner will commit nothing under these numbers: what was written is garbage at once, and not
        only after the commit deadline. Closing twice does nothing."""
        ...

    async def commit_range(self, commit: RangeCommit) -> None:
        """Raises `CommitRefused` when the checkpoint, the epoch, the attempt or a segment is not what it
        should be. However it is answered, the attempt has ended."""
        ...

    @repeatable
    async def collect_garbage(self, delete: bool) -> None:
        """Begin a round of garbage collection, after the one that runs; without ``delete`` one that only
        tells what would go. Returns at once, `gc_status` tells how it goes."""
        ...

    @repeatable
    async def gc_status(self) -> GcStatus: ...
    async def commit_compaction(self, commit: CompactionCommit) -> None:
        """Put the output in its inputs' place. Raises `CommitRefused` when the epoch, the plan or an input is
        not what it should be, or it is too late."""
        ...

    @repeatable
    async def compaction_failed(self, epoch: int, plan_id: int, reason: str) -> None: ...
    @repeatable
    async def channel_dropped(self, epoch: int, vchannel: str) -> None:
        """The data node has read the drop message: the vchannel and its segments are marked dropped.

        Raises `CommitRefused` when the vchannel is not owned under the epoch any more.
        """
        ...

    async def start_import(self, request: ImportRequest) -> TaskID:
        """Puts an import into the queue; returns before it runs.

        Raises `CollectionNotFound`, `PartitionNotFound`, and `TaskQueueFull`.
        """
        ...

    @repeatable
    async def import_task(self, task_id: TaskID) -> ImportTask:
        """Raises `InvalidParameter` for one that is not known, or was forgotten."""
        ...

    @repeatable
    async def import_tasks(self, collection_id: CollectionID) -> tuple[ImportTask, ...]:
        """Those of a collection, or of all when it is 0; oldest first."""
        ...

    @repeatable
    async def cancel_import(self, task_id: TaskID) -> None:
        """Ends a task that has not committed. Raises `InvalidParameter` for one that has."""
        ...
