"""Datacoord's state, in memory and in the metadata: vchannels, segments, imports, writes, compactions, pins.

Each has one key. A vchannel's record points to a manifest object with its delta logs, a segment's record to
its own manifest, so records stay small however much data there is. Changes are persisted atomically first
(`elanus.datacoord.records`), and then applied in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec

from elanus.core.catalog import Checkpoint
from elanus.core.channels import pchannel_of
from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.errors import CommitRefused, SegmentNotFound
from elanus.core.ids import NO_NODE, CollectionID, NodeID, PartitionID, SegmentID, TaskID
from elanus.core.imports import ImportTask
from elanus.core.pins import Pin
from elanus.core.schema import CollectionSchema
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.writes import WriteRecord
from elanus.datacoord.lowest_positions import LowestPositions
from elanus.datacoord.records import Records, in_batches
from elanus.datacoord.segment_table import NoUses, PathUses, SegmentTable
from elanus.datacoord.write_table import PREFIX as _WRITES
from elanus.datacoord.write_table import WriteTable, encoded, key_of
from elanus.meta.cancellation import uncancellable
from elanus.meta.port import MetaStore
from elanus.meta.turns import in_turns

_SEGMENTS = "datacoord/segment/"
_VCHANNELS = "datacoord/vchannel/"
_IMPORTS = "datacoord/import/"
_PINS = "datacoord/pin/"
_PLANS = "datacoord/compaction/"


@dataclass(frozen=True, slots=True)
class Vchannel:
    """``deltas``: path of the manifest that lists the vchannel's delta logs, "" when it has none.

    ``dropping``: its collection is dropped. ``dropped``: when its data node had read the drop message; from
    then on it is not recovered, and the record is kept only until its files are reclaimed. ``owner``: the
    data node that follows it, `NO_NODE` for none yet. ``epoch`` grows with every change of owner, and is part
    of the owner's commits. ``quarantined``: how many entries of its log, up to the checkpoint, flushes left
    out because they do not fit the schema. ``lenders``: the vchannels whose delta logs its first list names,
    in a clone.
    """

    vchannel: str
    collection_id: CollectionID
    schema: CollectionSchema
    checkpoint: Checkpoint
    deltas: str = ""
    dropping: bool = False
    dropped: Timestamp = NO_TIMESTAMP
    owner: NodeID = NO_NODE
    epoch: int = 0
    quarantined: int = 0
    lenders: tuple[str, ...] = ()


class DataState:
    """``uses`` is notified of the manifests and delta lists that come into force and go out of it."""

    def __init__(self, meta: MetaStore, uses: PathUses | None = None) -> None:
        self._uses = NoUses() if uses is None else uses
        self._records = Records(meta)
        self._segments = SegmentTable(self._uses)
        self._vchannels: dict[str, Vchannel] = {}
        self._vchannels_of: dict[CollectionID, dict[str, None]] = {}
        self._owned: dict[str, Counter[NodeID]] = {}
        self.positions = LowestPositions()
        """Where the checkpoints of the vchannels that are not dropped are."""
        self._imports: dict[TaskID, ImportTask] = {}
        self._importing: dict[TaskID, CollectionID] = {}
        self.writes = WriteTable()
        self._pins: dict[int, Pin] = {}
        self._plans: dict[int, CompactionPlan] = {}

    async def start(self) -> None:
        await self._records.start()
        async for stored in in_turns(await self._records.load(_SEGMENTS)):
            self._segments.show(msgspec.json.decode(stored, type=SegmentInfo))
        async for stored in in_turns(await self._records.load(_VCHANNELS)):
            self._show_vchannel(msgspec.json.decode(stored, type=Vchannel))
        for stored in await self._records.load(_IMPORTS):
            task = msgspec.json.decode(stored, type=ImportTask)
            self._imports[task.task_id] = task
        self.writes.load(await self._records.load(_WRITES))
        for stored in await self._records.load(_PINS):
            pin = msgspec.json.decode(stored, type=Pin)
            self._pins[pin.pin_id] = pin
        for stored in await self._records.load(_PLANS):
            plan = msgspec.json.decode(stored, type=CompactionPlan)
            self._plans[plan.plan_id] = plan

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
        names = self._vchannels_of.get(collection_id, ())
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
        return [v for v in self._vchannels.values() if v.dropped == NO_TIMESTAMP]

    def dropped_vchannels(self) -> Iterable[Vchannel]:
        return [v for v in self._vchannels.values() if v.dropped != NO_TIMESTAMP]

    def vchannels_of(self, collection_id: CollectionID) -> list[Vchannel]:
        """Like `vchannels`, for one collection."""
        found = (self._vchannels[name] for name in self._vchannels_of.get(collection_id, ()))
        return [v for v in found if v.dropped == NO_TIMESTAMP]

    def vchannel(self, name: str) -> Vchannel | None:
        return self._vchannels.get(name)

    def owned(self) -> Mapping[str, Mapping[NodeID, int]]:
        """Return, by pchannel, how many of its vchannels each data node owns, `NO_NODE` for those without an
        owner. Dropped vchannels do not count."""
        return self._owned

    def owned_counts(self) -> Counter[NodeID]:
        """As `owned`, of all pchannels together."""
        return sum(self._owned.values(), Counter())

    def imports(self) -> Sequence[ImportTask]:
        return tuple(self._imports.values())

    def import_task(self, task_id: TaskID) -> ImportTask | None:
        return self._imports.get(task_id)

    @contextmanager
    def importing(self, task: ImportTask) -> Iterator[None]:
        """Note, in memory, that the task is being committed: from before its rows have their timestamp until
        its
        segments are shown."""
        self._importing[task.task_id] = task.collection_id
        try:
            yield
        finally:
            del self._importing[task.task_id]

    def is_importing(self, collection_id: CollectionID) -> bool:
        return collection_id in self._importing.values()

    def pins(self) -> Sequence[Pin]:
        return tuple(self._pins.values())

    def pin(self, pin_id: int) -> Pin | None:
        return self._pins.get(pin_id)

    def made_from(self, segment_id: SegmentID) -> tuple[SegmentID, ...]:
        """Return the segments that the compaction of this one made."""
        return self._segments.made_from(segment_id)

    def successors(self, segment_id: SegmentID) -> list[SegmentInfo]:
        """Return the segments that now hold the rows of a compacted one; none when no row is left."""
        return self._segments.successors(segment_id)

    def heirs(self, segment_ids: Iterable[SegmentID]) -> set[SegmentID]:
        """Return the segments by which `successors` finds what holds the rows of these segments now."""
        return self._segments.heirs(segment_ids)

    def plans(self) -> Iterable[CompactionPlan]:
        """Return all plans in the order in which they were made."""
        return self._plans.values()

    def planned(self) -> list[CompactionPlan]:
        """Return the plans of compactions that have not ended."""
        return [plan for plan in self._plans.values() if plan.state is CompactionState.PLANNED]

    def plan(self, plan_id: int) -> CompactionPlan | None:
        return self._plans.get(plan_id)

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
        memory.
        """
        records = {
            f"{_SEGMENTS}{segment.segment_id}": msgspec.json.encode(segment)
            async for segment in in_turns(segments)
        }
        records |= {f"{_VCHANNELS}{v.vchannel}": msgspec.json.encode(v) for v in vchannels}
        records |= {f"{_IMPORTS}{t.task_id}": msgspec.json.encode(t) for t in imports}
        records |= {f"{_PINS}{p.pin_id}": msgspec.json.encode(p) for p in pins}
        records |= {f"{_PLANS}{p.plan_id}": msgspec.json.encode(p) for p in plans}
        records |= encoded(writes)
        if records:
            await self._put(records, segments, vchannels, imports, pins, plans, writes)

    @uncancellable
    async def _put(
        self,
        records: Mapping[str, bytes],
        segments: Sequence[SegmentInfo],
        vchannels: Sequence[Vchannel],
        imports: Sequence[ImportTask],
        pins: Sequence[Pin],
        plans: Sequence[CompactionPlan],
        writes: Sequence[WriteRecord],
    ) -> None:
        try:
            await self._records.put(records)
        except CommitRefused:
            await self._look_again(records)
            raise
        for segment in segments:
            self._segments.show(segment)
        for vchannel in vchannels:
            self._show_vchannel(vchannel)
        self._imports |= {t.task_id: t for t in imports}
        self._pins |= {p.pin_id: p for p in pins}
        self._plans |= {p.plan_id: p for p in plans}
        for write in writes:
            self.writes.show(write)
        await self._records.finish()

    async def _look_again(self, keys: Iterable[str]) -> None:
        """Reload records that another process has changed (this coordinator's predecessor, as it ended)."""
        for key, stored in await self._records.reload(keys):
            if key.startswith(_SEGMENTS):
                found = msgspec.json.decode(stored, type=SegmentInfo)
                known = self._segments.find(found.segment_id) or found
                expires = max(found.last_expire, known.last_expire)
                self._segments.show(replace(found, last_expire=expires))
            elif key.startswith(_VCHANNELS):
                self._show_vchannel(msgspec.json.decode(stored, type=Vchannel))
            elif key.startswith(_IMPORTS):
                task = msgspec.json.decode(stored, type=ImportTask)
                self._imports[task.task_id] = task
            elif key.startswith(_WRITES):
                self.writes.load([stored])
            elif key.startswith(_PLANS):
                plan = msgspec.json.decode(stored, type=CompactionPlan)
                self._plans[plan.plan_id] = plan
            else:
                pin = msgspec.json.decode(stored, type=Pin)
                self._pins[pin.pin_id] = pin

    @uncancellable
    async def forget(self, segments: Sequence[SegmentID], vchannels: Sequence[str]) -> None:
        """Remove records. Segments are removed first: a segment without its vchannel would have no owner."""
        for segment_ids in in_batches(segments):
            await self._records.delete([f"{_SEGMENTS}{segment_id}" for segment_id in segment_ids])
            for segment_id in segment_ids:
                self._segments.forget(segment_id)
        for names in in_batches(vchannels):
            await self._records.delete([f"{_VCHANNELS}{name}" for name in names])
            for name in names:
                self._forget_vchannel(name)

    @uncancellable
    async def forget_imports(self, tasks: Sequence[ImportTask]) -> None:
        for some in in_batches(tasks):
            await self._records.delete([f"{_IMPORTS}{task.task_id}" for task in some])
            for task in some:
                self._imports.pop(task.task_id, None)

    @uncancellable
    async def forget_writes(self, writes: Sequence[WriteRecord]) -> None:
        for some in in_batches(writes):
            await self._records.delete([key_of(w.collection_id, w.write_id) for w in some])
            for write in some:
                self.writes.forget(write)

    @uncancellable
    async def forget_pins(self, pins: Sequence[Pin]) -> None:
        for some in in_batches(pins):
            await self._records.delete([f"{_PINS}{pin.pin_id}" for pin in some])
            for pin in some:
                self._pins.pop(pin.pin_id, None)

    @uncancellable
    async def remove_plans(self, plan_ids: Sequence[int]) -> None:
        for some in in_batches(plan_ids):
            await self._records.delete([f"{_PLANS}{plan_id}" for plan_id in some])
            for plan_id in some:
                self._plans.pop(plan_id, None)

    def touch(self, segment: SegmentInfo) -> None:
        """Apply in memory a change that need not survive this process (the latest allocation's expiry)."""
        self._segments.show(segment)

    def _show_vchannel(self, vchannel: Vchannel) -> None:
        known = self._vchannels.get(vchannel.vchannel)
        before = "" if known is None or known.dropped else known.deltas
        after = "" if vchannel.dropped else vchannel.deltas
        if after != before:
            if before:
                self._uses.forget(before)
            if after:
                self._uses.use(after)
        self._count_owner(known, -1)
        self._count_owner(vchannel, 1)
        if vchannel.dropped:
            self.positions.remove(vchannel.vchannel)
        else:
            self.positions.place(vchannel.vchannel, vchannel.checkpoint.position)
        self._vchannels[vchannel.vchannel] = vchannel
        self._vchannels_of.setdefault(vchannel.collection_id, {})[vchannel.vchannel] = None

    def _count_owner(self, vchannel: Vchannel | None, change: int) -> None:
        if vchannel is None or vchannel.dropped:
            return
        pchannel = pchannel_of(vchannel.vchannel)
        counts = self._owned.setdefault(pchannel, Counter())
        counts[vchannel.owner] += change
        if not counts[vchannel.owner]:
            del counts[vchannel.owner]
        if not counts:
            del self._owned[pchannel]

    def _forget_vchannel(self, name: str) -> None:
        known = self._vchannels.pop(name, None)
        if known is None:
            return
        self._count_owner(known, -1)
        self.positions.remove(name)
        if known.deltas and not known.dropped:
            self._uses.forget(known.deltas)
        names = self._vchannels_of[known.collection_id]
        names.pop(name, None)
        if not names:
            del self._vchannels_of[known.collection_id]
