"""Imports between the roles: what a proxy requests, what the data node is ordered to do, and the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elanus.api.fencing import order_of
from elanus.core.ids import CollectionID, PartitionID, SegmentID, TaskID
from elanus.core.imports import COMMAS, CsvFormat, Duplicates, WriteMode
from elanus.core.schema import CollectionSchema
from elanus.core.segments import BinlogFile, DeltaLog, SegmentManifest
from elanus.core.timestamps import Timestamp


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """The names accompany the ids for display to people. ``files``: paths below the import directory.

    Patterns and directories among them are resolved when the import runs (`elanus.core.import_files`).
    ``write_id``: what the caller calls this write, "" for nothing. A write that did not fail is not repeated;
    ``batch``: its number, where ``write_id`` names a stream of writes; ``query_id``: who writes that.
    ``rejects_max``: how many rows may be left out because they do not fit.
    ``takes_keys``: files may bring values of an automatic key (`elanus.core.sent_keys`).
    ``csv``: the format of CSV files. ``timeout_ms``: after how long it fails; 0: what the server allows.
    ``auto_commit``: whether it commits by itself when its files are written.
    ``partition_id`` is `ALL_PARTITIONS`, and ``partition`` empty, where rows go by their partition key.
    """

    collection_id: CollectionID
    collection: str
    partition_id: PartitionID
    partition: str
    files: tuple[str, ...]
    write_id: str = ""
    rejects_max: int = 0
    batch: int = -1
    mode: WriteMode = WriteMode.APPEND
    duplicates: Duplicates = Duplicates.KEEP
    takes_keys: bool = False
    csv: CsvFormat = COMMAS
    timeout_ms: int = 0
    query_id: str = ""
    auto_commit: bool = True


@dataclass(frozen=True, slots=True)
class ImportOrder:
    """Turn files into segments. ``vchannels`` are index-aligned with the shards.

    The names of all files that are written contain ``attempt``. ``stamp`` fills their timestamp column,
    which the commit's timestamp overrides. A segment takes at most ``segment_rows_max`` rows.
    ``key_partitions``: those that the partition key selects from, by number; empty if there is no such key.
    ``first_attempt``: that of the task's first try. Outcomes of Spark tasks since then are used again, if
    their parts of the files are the same. ``replaced``: the segments whose rows an overwrite deletes.
    ``existing``: the path of a snapshot with the rows that there are, "" where they do not matter.
    """

    task_id: TaskID
    attempt: int
    collection_id: CollectionID
    partition_id: PartitionID
    schema: CollectionSchema
    vchannels: tuple[str, ...]
    files: tuple[str, ...]
    segment_rows_max: int
    stamp: Timestamp
    key_partitions: tuple[PartitionID, ...] = ()
    rejects_max: int = 0
    first_attempt: int = 0
    mode: WriteMode = WriteMode.APPEND
    replaced: tuple[SegmentManifest, ...] = ()
    duplicates: Duplicates = Duplicates.KEEP
    existing: str = ""
    csv: CsvFormat = COMMAS


@dataclass(frozen=True, slots=True)
class ImportedSegment:
    segment_id: SegmentID
    vchannel: str
    insert_log: BinlogFile
    stats_log: str
    partition_id: PartitionID


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """The result of an import. None of it exists before datacoord has committed it.

    ``rejected``: the number of rows that were left out because they do not fit. ``deltas``: delta logs, whose
    deletes get the timestamp of the commit. ``left_out``: that of rows left out because of their keys.
    ``files_bytes``: the size of each of the order's ``files``, of a pattern or directory that of all it has;
    empty if they were not surveyed.
    """

    segments: tuple[ImportedSegment, ...]
    rejected: int = 0
    deltas: tuple[DeltaLog, ...] = ()
    left_out: int = 0
    files_bytes: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        return sum(segment.insert_log.rows for segment in self.segments)


class ImportNodeApi(Protocol):
    """The importing part of a data node, served in addition to `elanus.api.datanode.DataNodeApi`."""

    @order_of("datacoord")
    async def import_files(self, order: ImportOrder) -> ImportOutcome:
        """Run the import as Spark jobs; return when all files are on the object store.

        Raises `InvalidParameter` for files that cannot be read or do not fit the schema, `DiskFull`,
        `Unavailable` when Spark or the object store was lost, `Cancelled`, and `Internal`.
        """
        ...
