"""Datacoord's state, in memory and in the metadata: vchannels, segments, imports, writes, compactions, pins.

Each record has one key. A vchannel's record points to a manifest object with its delta logs, a segment's
record to its own manifest, so records stay small however much data there is. Changes are persisted atomically
first (`elanus.datacoord.records`), and then shown in the tables of their kinds
(`elanus.datacoord.record_table`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, TypeVar

import structlog

from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.errors import CommitRefused, ElanusError, SegmentNotFound
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID, TaskID
from elanus.core.imports import ImportTask
from elanus.core.pins import Pin
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.writes import WriteRecord
from elanus.datacoord.lowest_positions import LowestPositions
from elanus.datacoord.path_uses import NoUses, PathUses
from elanus.datacoord.record_table import PlainTable, RecordTable, TableChange
from elanus.datacoord.records import Records, in_batches
from elanus.datacoord.segment_table import SegmentTable
from elanus.datacoord.vchannel_table import Vchannel, VchannelTable
from elanus.datacoord.write_table import WriteTable
from elanus.meta.cancellation import uncancellable
from elanus.meta.port import MetaStore
from elanus.meta.turns import in_turns

Id = TypeVar("Id")
Record = TypeVar("Record")
_log = structlog.get_logger("datacoord")


class DataState:
    """``uses`` is notified of the manifests and delta lists that come into force and go out of it."""

    def __init__(self, meta: MetaStore, uses: PathUses | None = None) -> None:
        uses = NoUses() if uses is None else uses
        self._records = Records(meta)
        self._segments = SegmentTable(uses)
        self._vchannels = VchannelTable(uses)
        self._imports = PlainTable[TaskID, ImportTask]("datacoord/import/", ImportTask, attrgetter("task_id"))
        self.writes = WriteTable()
        self._pins = PlainTable[int, Pin]("datacoord/pin/", Pin, attrgetter("pin_id"))
        self._plans = PlainTable[int, CompactionPlan](
            "datacoord/compaction/", CompactionPlan, attrgetter("plan_id")
        )
        self._tables: tuple[RecordTable[Any, Any], ...] = (
            self._segments,
            self._vchannels,
            self._imports,
            self.writes,
            self._pins,
            self._plans,
        )
        self._importing: dict[TaskID, CollectionID] = {}

    async def start(self) -> None:
        await self._records.start()
        for table in self._tables:
            async for stored in in_turns(await self._records.load(table.prefix)):
                table.load(stored)

    # reading

    def segment(self, segment_id: SegmentID) -> SegmentInfo:
        """Return a segment's record. Raises `SegmentNotFound`."""
        found = self._segments.find(segment_id)
        if found is None:
            raise SegmentNotFound(f"segment not found[segment={segment_id}]")
        return found

    def find_segment(self, segment_id: SegmentID) -> SegmentInfo | None:
        return self._segments.find(segment_id)

    def segments(self) -> Iterable[SegmentInfo]:
        return self._segments.all()

    def segments_of(self, collection_id: CollectionID) -> list[SegmentInfo]:
        return self._segments.of_collection(collection_id)

    def segments_on(self, vchannel: str) -> list[SegmentInfo]:
        return self._segments.on_vchannel(vchannel)

    def stored_bytes(self, collection_ids: Iterable[CollectionID] | None = None) -> int:
        """Return the size of the binlogs of these collections, or of all."""
        return self._segments.stored_bytes(collection_ids)

    def dropped_bytes(self) -> int:
        """Return the size of the binlogs of dropped segments that still have files."""
        return self._segments.dropped_bytes

    def unflushed(self) -> list[SegmentInfo]:
        """Growing, sealed and flushing segments."""
        return self._segments.unflushed()

    def sealed_vchannels(self) -> Iterable[str]:
        """Return the vchannels with sealed or flushing segments."""
        return self._segments.sealed_vchannels()

    def unflushed_on(self, vchannel: str) -> list[SegmentInfo]:
        return self._segments.unflushed_on(vchannel)

    def unflushed_of(self, collection_id: CollectionID) -> list[SegmentInfo]:
        names = self._vchannels.names_of(collection_id)
        return [info for name in names for info in self._segments.unflushed_on(name)]

    def last_change(self, vchannel: str) -> int:
        """Return the number of the latest change of a segment of the vchannel; 0 if it has none."""
        return self._segments.last_change(vchannel)

    def segment_states(self) -> Counter[SegmentState]:
        """Return how many segments are in each state."""
        return self._segments.states()

    def dropped_segments(self) -> list[SegmentInfo]:
        return self._segments.dropped()

    def dropped_segments_on(self, vchannel: str) -> list[SegmentInfo]:
        return self._segments.dropped_on(vchannel)

    def gone(self, segment_ids: Iterable[SegmentID]) -> list[SegmentID]:
        """Return those of these segments that are dropped, or have no record."""
        return self._segments.gone(segment_ids)

    def growing(
        self, collection_id: CollectionID, partition_id: PartitionID, vchannel: str
    ) -> list[SegmentInfo]:
        return self._segments.growing(collection_id, partition_id, vchannel)

    def vchannels(self) -> Iterable[Vchannel]:
        """Return the vchannels that are not dropped, or whose drop message is still to be read."""
        return self._vchannels.live()

    def dropped_vchannels(self) -> Iterable[Vchannel]:
        return self._vchannels.dropped()

    def vchannels_of(self, collection_id: CollectionID) -> list[Vchannel]:
        """Like `vchannels`, for one collection."""
        return self._vchannels.of_collection(collection_id)

    def vchannel(self, name: str) -> Vchannel | None:
        return self._vchannels.find(name)

    @property
    def positions(self) -> LowestPositions:
        """Where the checkpoints of the vchannels that are not dropped are."""
        return self._vchannels.positions

    def quarantined(self) -> dict[str, int]:
        """See `VchannelTable.quarantined`."""
        return self._vchannels.quarantined()

    def owned(self) -> Mapping[str, Mapping[NodeID, int]]:
        """See `VchannelTable.owned`."""
        return self._vchannels.owned()

    def owned_counts(self) -> Counter[NodeID]:
        """As `owned`, of all pchannels together."""
        return self._vchannels.owned_counts()

    def imports(self) -> Sequence[ImportTask]:
        return self._imports.all()

    def import_task(self, task_id: TaskID) -> ImportTask | None:
        return self._imports.find(task_id)

    @contextmanager
    def importing(self, task: ImportTask) -> Iterator[None]:
        """Note, in memory, that the task is being committed: from before its rows have their timestamp until
        its segments are shown."""
        self._importing[task.task_id] = task.collection_id
        try:
            yield
        finally:
            del self._importing[task.task_id]

    def is_importing(self, collection_id: CollectionID) -> bool:
        return collection_id in self._importing.values()

    def imports_in_commit(self, collection_id: CollectionID) -> set[TaskID]:
        return {task_id for task_id, of in self._importing.items() if of == collection_id}

    def pins(self) -> Sequence[Pin]:
        return self._pins.all()

    def pin(self, pin_id: int) -> Pin | None:
        return self._pins.find(pin_id)

    def successors_of(self, segment_ids: Iterable[SegmentID]) -> dict[SegmentID, tuple[SegmentID, ...]]:
        """See `SegmentTable.successors_of`."""
        return self._segments.successors_of(segment_ids)

    def descendants(self, segment_ids: Iterable[SegmentID]) -> set[SegmentID]:
        """See `SegmentTable.descendants`."""
        return self._segments.descendants(segment_ids)

    def plans(self) -> Iterable[CompactionPlan]:
        """Return all plans in the order in which they were made."""
        return self._plans.all()

    def planned(self) -> list[CompactionPlan]:
        """Return the plans of compactions that have not ended."""
        return [plan for plan in self._plans.all() if plan.state is CompactionState.PLANNED]

    def plan(self, plan_id: int) -> CompactionPlan | None:
        return self._plans.find(plan_id)

    # writing

    async def put(
        self,
        segments: Sequence[SegmentInfo] = (),
        vchannels: Sequence[Vchannel] = (),
        imports: Sequence[ImportTask] = (),
        pins: Sequence[Pin] = (),
        plans: Sequence[CompactionPlan] = (),
        writes: Sequence[WriteRecord] = (),
    ) -> None:
        """Persist any number of records, all or none, and apply them in memory.

        Raises `CommitRefused` when one changed in the store meanwhile; its new value is then applied in
        memory. A caller that is cancelled meanwhile does not learn whether they are persisted.
        """
        changes: list[TableChange[Any, Any]] = [
            TableChange(self._segments, segments),
            TableChange(self._vchannels, vchannels),
            TableChange(self._imports, imports),
            TableChange(self._pins, pins),
            TableChange(self._plans, plans),
            TableChange(self.writes, writes),
        ]
        records = {key: value for change in changes async for key, value in change.encoded()}
        if records:
            await self._put(records, changes)

    @uncancellable
    async def _put(self, records: Mapping[str, bytes], changes: Iterable[TableChange[Any, Any]]) -> None:
        try:
            await self._records.put(records)
        except CommitRefused:
            await self._reload(records)
            raise
        for change in changes:
            change.show()
        try:
            await self._records.finish()
        except CommitRefused:
            raise  # another coordinator has taken over, and nobody should rely on this one
        except ElanusError as error:
            # The change is decided and shown: a caller that took it for failed would never do what follows
            # from it. The next change, or the next start, resumes the writing.
            _log.warning("large change not written out yet", records=len(records), error=error.message)

    async def _reload(self, keys: Iterable[str]) -> None:
        """Reload records that another process has changed (this coordinator's predecessor, as it ended)."""
        for key, stored in await self._records.reload(keys):
            table = next(table for table in self._tables if key.startswith(table.prefix))
            table.reload(stored)

    async def forget(self, segments: Sequence[SegmentID], vchannels: Sequence[str]) -> None:
        """Remove records. Segments are removed first: a segment without its vchannel would have no owner."""
        await self._forget(self._segments, segments)
        await self._forget(self._vchannels, vchannels)

    async def forget_imports(self, tasks: Sequence[ImportTask]) -> None:
        await self._forget(self._imports, [task.task_id for task in tasks])

    async def forget_writes(self, writes: Sequence[WriteRecord]) -> None:
        await self._forget(self.writes, [self.writes.id_of(write) for write in writes])

    async def forget_pins(self, pins: Sequence[Pin]) -> None:
        await self._forget(self._pins, [pin.pin_id for pin in pins])

    async def forget_plans(self, plan_ids: Sequence[int]) -> None:
        await self._forget(self._plans, plan_ids)

    @uncancellable
    async def _forget(self, table: RecordTable[Id, Record], ids: Sequence[Id]) -> None:
        for some in in_batches(ids):
            await self._records.delete([table.key(record_id) for record_id in some])
            for record_id in some:
                table.forget(record_id)

    def touch(self, segment: SegmentInfo) -> None:
        """Apply in memory a change that need not survive this process (the latest allocation's expiry)."""
        self._segments.show(segment)
