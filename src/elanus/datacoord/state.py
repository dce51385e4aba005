"""Datacoord's state, in memory and in the metadata: vchannels, segments, imports, compactions and pins.

Each has one key. A vchannel's record points to a manifest object with its delta logs, a segment's record to
its own manifest, so records stay small however much data there is. Changes are persisted atomically first
(`elanus.datacoord.records`), and then applied in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from elanus.core.catalog import Checkpoint
from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.errors import CommitRefused, SegmentNotFound
from elanus.core.ids import NO_NODE, CollectionID, NodeID, PartitionID, SegmentID, TaskID
from elanus.core.imports import ImportTask
from elanus.core.pins import Pin
from elanus.core.schema import CollectionSchema
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.records import Records
from elanus.meta.cancellation import uncancellable
from elanus.meta.port import MetaStore

_SEGMENTS = "datacoord/segment/"
_VCHANNELS = "datacoord/vchannel/"
_IMPORTS = "datacoord/import/"
_PINS = "datacoord/pin/"
_PLANS = "datacoord/compaction/"
_UNFLUSHED = (SegmentState.GROWING, SegmentState.SEALED, SegmentState.FLUSHING)


@dataclass(frozen=True, slots=True)
class Vchannel:
    """``deltas``: path of the manifest that lists the vchannel's delta logs, "" when it has none.

    ``dropping``: its collection is dropped. ``dropped``: when its data node had read the drop message; from
    then on it is not recovered, and the record is kept only until its files are reclaimed. ``owner``: the
    data node that follows it, `NO_NODE` for none yet. ``epoch`` grows with every change of owner, and is part
    of the owner's commits. ``quarantined``: how many entries of its log, up to the checkpoint, flushes left
    out because they do not fit the schema.
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


class DataState:
    def __init__(self, meta: MetaStore) -> None:
        self._records = Records(meta)
        self._segments: dict[SegmentID, SegmentInfo] = {}
        self._vchannels: dict[str, Vchannel] = {}
        self._unflushed: dict[SegmentID, None] = {}
        self._imports: dict[TaskID, ImportTask] = {}
        self._pins: dict[int, Pin] = {}
        self._successors: dict[SegmentID, SegmentID] = {}
        self._plans: dict[int, CompactionPlan] = {}

    async def start(self) -> None:
        await self._records.start()
        for stored in await self._records.load(_SEGMENTS):
            self._show(msgspec.json.decode(stored, type=SegmentInfo))
        for stored in await self._records.load(_VCHANNELS):
            vchannel = msgspec.json.decode(stored, type=Vchannel)
            self._vchannels[vchannel.vchannel] = vchannel
        for stored in await self._records.load(_IMPORTS):
            task = msgspec.json.decode(stored, type=ImportTask)
            self._imports[task.task_id] = task
        for stored in await self._records.load(_PINS):
            pin = msgspec.json.decode(stored, type=Pin)
            self._pins[pin.pin_id] = pin
        for stored in await self._records.load(_PLANS):
            plan = msgspec.json.decode(stored, type=CompactionPlan)
            self._plans[plan.plan_id] = plan

    # reading

    def segment(self, segment_id: SegmentID) -> SegmentInfo:
        """Return a segment's record. Raises `SegmentNotFound`."""
        try:
            return self._segments[segment_id]
        except KeyError:
            raise SegmentNotFound(f"segment not found[segment={segment_id}]") from None

    def find_segment(self, segment_id: SegmentID) -> SegmentInfo | None:
        return self._segments.get(segment_id)

    def segments(self) -> Iterable[SegmentInfo]:
        return self._segments.values()

    def segments_of(self, collection_id: CollectionID) -> list[SegmentInfo]:
        return [s for s in self._segments.values() if s.collection_id == collection_id]

    def segments_on(self, vchannel: str) -> list[SegmentInfo]:
        return [s for s in self._segments.values() if s.vchannel == vchannel]

    def unflushed(self) -> list[SegmentInfo]:
        """Growing, sealed and flushing segments."""
        return [self._segments[segment_id] for segment_id in self._unflushed]

    def growing(
        self, collection_id: CollectionID, partition_id: PartitionID, vchannel: str
    ) -> list[SegmentInfo]:
        key = (collection_id, partition_id, vchannel)
        return [
            s
            for s in self.unflushed()
            if s.state is SegmentState.GROWING and (s.collection_id, s.partition_id, s.vchannel) == key
        ]

    def vchannels(self) -> Iterable[Vchannel]:
        """Return the vchannels that are not dropped, or whose drop message is still to be read."""
        return [v for v in self._vchannels.values() if v.dropped == NO_TIMESTAMP]

    def dropped_vchannels(self) -> Iterable[Vchannel]:
        return [v for v in self._vchannels.values() if v.dropped != NO_TIMESTAMP]

    def vchannels_of(self, collection_id: CollectionID) -> list[Vchannel]:
        """Like `vchannels`, for one collection."""
        return [v for v in self.vchannels() if v.collection_id == collection_id]

    def vchannel(self, name: str) -> Vchannel | None:
        return self._vchannels.get(name)

    def imports(self) -> Sequence[ImportTask]:
        return tuple(self._imports.values())

    def import_task(self, task_id: TaskID) -> ImportTask | None:
        return self._imports.get(task_id)

    def pins(self) -> Sequence[Pin]:
        return tuple(self._pins.values())

    def successor(self, segment_id: SegmentID) -> SegmentInfo | None:
        """Return the segment that now holds the rows of a compacted one; None when none does."""
        following = self._successors.get(segment_id)
        while following in self._successors:
            following = self._successors[following]
        info = None if following is None else self._segments.get(following)
        return None if info is None or info.state is SegmentState.DROPPED else info

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
    ) -> None:
        """Persist any number of records, all or none, and apply them in memory.

        Raises `CommitRefused` when one changed in the store meanwhile; its new value is then applied in
        memory.
        """
        records = {f"{_SEGMENTS}{s.segment_id}": msgspec.json.encode(s) for s in segments}
        records |= {f"{_VCHANNELS}{v.vchannel}": msgspec.json.encode(v) for v in vchannels}
        records |= {f"{_IMPORTS}{t.task_id}": msgspec.json.encode(t) for t in imports}
        records |= {f"{_PINS}{p.pin_id}": msgspec.json.encode(p) for p in pins}
        records |= {f"{_PLANS}{p.plan_id}": msgspec.json.encode(p) for p in plans}
        if records:
            await self._put(records, segments, vchannels, imports, pins, plans)

    @uncancellable
    async def _put(
        self,
        records: Mapping[str, bytes],
        segments: Sequence[SegmentInfo],
        vchannels: Sequence[Vchannel],
        imports: Sequence[ImportTask],
        pins: Sequence[Pin],
        plans: Sequence[CompactionPlan],
    ) -> None:
        try:
            await self._records.put(records)
        except CommitRefused:
            await self._look_again(records)
            raise
        for segment in segments:
            self._show(segment)
        self._vchannels |= {v.vchannel: v for v in vchannels}
        self._imports |= {t.task_id: t for t in imports}
        self._pins |= {p.pin_id: p for p in pins}
        self._plans |= {p.plan_id: p for p in plans}
        await self._records.finish()

    async def _look_again(self, keys: Iterable[str]) -> None:
        """Reload records that another process has changed (this coordinator's predecessor, as it ended)."""
        for key, stored in await self._records.reload(keys):
            if key.startswith(_SEGMENTS):
                found = msgspec.json.decode(stored, type=SegmentInfo)
                known = self._segments.get(found.segment_id, found)
                self._show(replace(found, last_expire=max(found.last_expire, known.last_expire)))
            elif key.startswith(_VCHANNELS):
                vchannel = msgspec.json.decode(stored, type=Vchannel)
                self._vchannels[vchannel.vchannel] = vchannel
            elif key.startswith(_IMPORTS):
                task = msgspec.json.decode(stored, type=ImportTask)
                self._imports[task.task_id] = task
            elif key.startswith(_PLANS):
                plan = msgspec.json.decode(stored, type=CompactionPlan)
                self._plans[plan.plan_id] = plan
            else:
                pin = msgspec.json.decode(stored, type=Pin)
                self._pins[pin.pin_id] = pin

    @uncancellable
    async def forget(self, segments: Sequence[SegmentID], vchannels: Sequence[str]) -> None:
        """Remove records. Segments are removed first: a segment without its vchannel would have no owner."""
        for segment_id in segments:
            await self._records.delete(f"{_SEGMENTS}{segment_id}")
            self._segments.pop(segment_id, None)
        for name in vchannels:
            await self._records.delete(f"{_VCHANNELS}{name}")
            self._vchannels.pop(name, None)

    @uncancellable
    async def forget_imports(self, tasks: Sequence[ImportTask]) -> None:
        for task in tasks:
            await self._records.delete(f"{_IMPORTS}{task.task_id}")
            self._imports.pop(task.task_id, None)

    @uncancellable
    async def forget_pins(self, pins: Sequence[Pin]) -> None:
        for pin in pins:
            await self._records.delete(f"{_PINS}{pin.pin_id}")
            self._pins.pop(pin.pin_id, None)

    async def remove_plan(self, plan_id: int) -> None:
        await self._records.delete(f"{_PLANS}{plan_id}")
        self._plans.pop(plan_id, None)

    def touch(self, segment: SegmentInfo) -> None:
        """Apply in memory a change that need not survive this process (the latest allocation's expiry)."""
        self._show(segment)

    def _show(self, segment: SegmentInfo) -> None:
        self._segments[segment.segment_id] = segment
        self._successors |= dict.fromkeys(segment.compacted_from, segment.segment_id)
        if segment.state in _UNFLUSHED:
            self._unflushed[segment.segment_id] = None
        else:
            self._unflushed.pop(segment.segment_id, None)
