"""Watches what the coordinators persist: segment states, the progress of checkpoints, compactions."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

import msgspec

from elanus.core.catalog import Collection, Index
from elanus.core.channels import pchannel_of
from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.ids import BuildID, CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.imports import ImportTask
from elanus.core.invariants import InvariantBroken
from elanus.core.partition_keys import key_partitions
from elanus.core.pins import Pin
from elanus.core.segments import SegmentInfo, SegmentState, may_become
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.vchannel_table import Vchannel
from elanus.indexcoord.state import Build
from elanus.log.port import Position
from elanus.meta.port import Delete, Put
from elanus.sim.trace import Trace

_SEGMENTS = "datacoord/segment/"
_VCHANNELS = "datacoord/vchannel/"
_BUILDS = "indexcoord/build/"
_INDEXES = "indexcoord/index/"
_COLLECTIONS = "rootcoord/collection/"
_PLANS = "datacoord/compaction/"
_IMPORTS = "datacoord/import/"
_PINS = "datacoord/pin/"


class Records:
    """The persisted records, reported by the metadata store.

    ``durable_end``: up to which position a pchannel is on stable storage. ``import_changed`` is called with
    each record of an import, ``cloned`` with each record of a clone: see `elanus.sim.truth.Truth.cloned`.
    """

    def __init__(
        self,
        durable_end: Callable[[str], Position],
        trace: Trace,
        import_changed: Callable[[ImportTask], None],
        cloned: Callable[
            [CollectionID, CollectionID, Mapping[str, str], Container[PartitionID], Timestamp], None
        ],
    ) -> None:
        self._cloned = cloned
        self._import_changed = import_changed
        self._durable_end = durable_end
        self._trace = trace
        self.segments: dict[SegmentID, SegmentInfo] = {}
        self.vchannels: dict[str, Vchannel] = {}
        self.plans: dict[int, CompactionPlan] = {}
        self.pins: dict[int, Pin] = {}
        self.builds: dict[BuildID, Build] = {}
        self.indexed: set[CollectionID] = set()
        """The collections that have an index: none ever loses it here."""
        self.columns: dict[CollectionID, list[list[str]]] = {}
        """The columns that every collection has had, of each of its schemas once."""
        self.schema_changes: dict[CollectionID, int] = {}
        """How often the fields of each collection have begun, or ceased, to change."""
        self.fields: dict[CollectionID, tuple[FieldID, ...] | None] = {}
        """The fields of each collection, while they do not change."""
        self.key_partitions: dict[CollectionID, tuple[PartitionID, ...]] = {}
        """The partitions that the key of a collection with a partition key selects from, in their order."""
        self.vchannels_of: dict[CollectionID, tuple[str, ...]] = {}
        """The vchannels of these collections, index-aligned with the shards."""
        self.changes = 0
        """How many changes have been applied."""
        self._made_into: dict[SegmentID, set[SegmentID]] = {}
        self._expired_in_sources: dict[str, Timestamp] = {}
        """Per vchannel of a clone: up to where expired rows may have been removed before it was made."""

    def owner(self, key: str) -> SegmentInfo | Vchannel | Build | None:
        """The segment, vchannel or build that the record describes, in its current state."""
        if key.startswith(_SEGMENTS):
            return self.segments.get(SegmentID(int(key.removeprefix(_SEGMENTS))))
        if key.startswith(_BUILDS):
            return self.builds.get(BuildID(int(key.removeprefix(_BUILDS))))
        return self.vchannels.get(key.removeprefix(_VCHANNELS))

    def observe(self, operation: Put | Delete) -> None:
        """Apply a change to the records and check it. Raises `InvariantBroken`.

        A coordinator deletes a record again if its predecessor's delete came after it had read the records.
        """
        self.changes += 1
        if isinstance(operation, Delete):
            self.vchannels.pop(operation.key.removeprefix(_VCHANNELS), None)
            if operation.key.startswith(_PINS):
                self.pins.pop(int(operation.key.removeprefix(_PINS)), None)
            if operation.key.startswith(_SEGMENTS):
                self.segments.pop(SegmentID(int(operation.key.removeprefix(_SEGMENTS))), None)
            if operation.key.startswith(_BUILDS):
                self.builds.pop(BuildID(int(operation.key.removeprefix(_BUILDS))), None)
        elif operation.key.startswith(_SEGMENTS):
            self._segment(msgspec.json.decode(operation.value, type=SegmentInfo))
        elif operation.key.startswith(_COLLECTIONS):
            collection = msgspec.json.decode(operation.value, type=Collection)
            self._schema(collection)
            if collection.schema.partition_key is not None:
                partitions = {p.name: p.partition_id for p in collection.partitions}
                self.key_partitions[collection.collection_id] = key_partitions(partitions)
            self.vchannels_of[collection.collection_id] = collection.vchannels
            self._clone(collection)
        elif operation.key.startswith(_PINS):
            pin = msgspec.json.decode(operation.value, type=Pin)
            self.pins[pin.pin_id] = pin
        elif operation.key.startswith(_IMPORTS):
            self._import(msgspec.json.decode(operation.value, type=ImportTask))
        elif operation.key.startswith(_PLANS):
            self._plan(msgspec.json.decode(operation.value, type=CompactionPlan))
        elif operation.key.startswith(_VCHANNELS):
            self._vchannel(msgspec.json.decode(operation.value, type=Vchannel))
        elif operation.key.startswith(_INDEXES):
            self.indexed.add(msgspec.json.decode(operation.value, type=Index).collection_id)
        elif operation.key.startswith(_BUILDS):
            build = msgspec.json.decode(operation.value, type=Build)
            self.builds[build.build_id] = build
            if build.file is not None:
                self._trace.count("indexes built")

    def _schema(self, collection: Collection) -> None:
        known = self.columns.setdefault(collection.collection_id, [])
        names = [f.name for f in collection.schema.fields]
        if names not in known:
            known.append(names)
        fields = tuple(collection.schema.by_id) if collection.becoming is None else None
        if fields != self.fields.get(collection.collection_id, ()):
            self.fields[collection.collection_id] = fields
            times = self.schema_changes.get(collection.collection_id, 0)
            self.schema_changes[collection.collection_id] = times + 1

    def _clone(self, collection: Collection) -> None:
        origin = collection.origin
        if origin is not None:
            sources = self.vchannels_of[origin.collection_id]
            vchannels = dict(zip(sources, collection.vchannels, strict=True))
            partitions = {partition.partition_id for partition in collection.partitions}
            self._cloned(collection.collection_id, origin.collection_id, vchannels, partitions, origin.moment)
            for source, own in vchannels.items():
                self._expired_in_sources.setdefault(own, self.expired_until(source))

    def folded_until(self, vchannel: str) -> Timestamp:
        """Return the timestamp up to which compactions may have folded in deletes of the vchannel."""
        bounds = (plan.fold_until for plan in self.plans.values() if plan.vchannel == vchannel)
        return max(bounds, default=NO_TIMESTAMP)

    def expired_until(self, vchannel: str) -> Timestamp:
        """Return the timestamp up to which compactions may have removed expired rows of the vchannel.

        For a clone, those of its source before that count as well.
        """
        bounds = [plan.expire_until for plan in self.plans.values() if plan.vchannel == vchannel]
        return max((self._expired_in_sources.get(vchannel, NO_TIMESTAMP), *bounds))

    def _plan(self, plan: CompactionPlan) -> None:
        inputs = ", ".join(map(str, plan.inputs)) or f"{len(plan.deltas)} delta logs"
        self._trace.note(
            f"compaction of {inputs} into {plan.output or plan.outputs}: {plan.state} {plan.reason}"
        )
        if plan.clustering is not None and plan.state is CompactionState.COMPLETED:
            self._trace.count("partitions clustered")
        self.plans[plan.plan_id] = plan

    def _import(self, task: ImportTask) -> None:
        self._trace.note(f"import {task.task_id} {task.state.name}, try {task.tries} {task.reason}")
        self._trace.count(f"imports {task.state.name.lower()}")
        self._import_changed(task)

    def homes_of(self, segment_id: SegmentID) -> dict[SegmentID, SegmentInfo | None]:
        """The segments that hold the rows of this one now: itself, or those it was compacted into.

        None for one that is gone: see `emptied_until`.
        """
        found = {s: self.segments.get(s) for s in self._last(segment_id)}
        return {s: None if i is None or i.state is SegmentState.DROPPED else i for s, i in found.items()}

    def emptied_until(self, segment_id: SegmentID) -> Timestamp:
        """Up to where deletes were folded in by a compaction of the segment that left no row; else 0."""
        emptied = [p for p in self.plans.values() if p.state is CompactionState.COMPLETED and not p.made]
        return max((plan.fold_until for plan in emptied if segment_id in plan.inputs), default=NO_TIMESTAMP)

    def _last(self, segment_id: SegmentID) -> set[SegmentID]:
        """The segments that the segment was compacted into, those that these were compacted into, and so on:
        the last ones of each course."""
        course, known, last = [segment_id], {segment_id}, set()
        while course:
            current = course.pop()
            made = self._made_into.get(current)
            if made:
                # Clusters are cut from many segments, again and again: there are many courses to each.
                course += made - known
                known.update(made)
            else:
                last.add(current)
        return last

    def _segment(self, info: SegmentInfo) -> None:
        known = self.segments.get(info.segment_id)
        if known is None or known.state is not info.state:
            self._trace.note(
                f"segment {info.segment_id} {info.state.name}, {info.rows} rows, {info.vchannel[-2:]}"
            )
            self._trace.count(f"segments {info.state.name.lower()}")
        if known is not None and known.state is not info.state and not may_become(known.state, info.state):
            raise InvariantBroken(
                "SEG2", f"segment {info.segment_id} went from {known.state.name} to {info.state.name}"
            )
        for replaced in info.compacted_from:
            self._made_into.setdefault(replaced, set()).add(info.segment_id)
        self.segments[info.segment_id] = info

    def _vchannel(self, info: Vchannel) -> None:
        known = self.vchannels.get(info.vchannel)
        checkpoint = info.checkpoint
        if known is None or known.checkpoint != checkpoint:
            self._trace.count("checkpoints moved")
            self._trace.note(
                f"checkpoint of {info.vchannel} at {checkpoint.ts}, position {checkpoint.position}"
            )
            end = self._durable_end(pchannel_of(info.vchannel))
            if checkpoint.position > end:
                raise InvariantBroken(
                    "CKPT2", f"{info.vchannel}: position {checkpoint.position}, durable are {end}"
                )
        if known is not None and (
            checkpoint.ts < known.checkpoint.ts or checkpoint.position < known.checkpoint.position
        ):
            raise InvariantBroken(
                "CKPT1", f"{info.vchannel}: from {known.checkpoint.ts} back to {checkpoint.ts}"
            )
        if known is not None:
            self._check_owner(known, info)
        self.vchannels[info.vchannel] = info

    def _check_owner(self, known: Vchannel, info: Vchannel) -> None:
        if info.epoch < known.epoch or (info.owner != known.owner and info.epoch == known.epoch):
            raise InvariantBroken(
                "OWN1",
                f"{info.vchannel}: from node {known.owner}, epoch {known.epoch} "
                f"to node {info.owner}, epoch {info.epoch}",
            )
        if info.epoch != known.epoch:
            self._trace.note(f"{info.vchannel} is owned by node {info.owner} under epoch {info.epoch}")
        if known.owner and info.owner != known.owner:
            self._trace.count("vchannels moved")
