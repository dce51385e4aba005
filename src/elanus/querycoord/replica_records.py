"""The records of replicas in the metadata, of any size.

A `ReplicaRecord` has two roles. It is the per-node record of segments and vchannels, which serves to recover
from the loss of a node. It is also the task in progress: its ``plan`` is written before the work begins and
cleared with the version that completes it.

A value of the store is small (`elanus.meta.port.VALUE_MAX_BYTES`), and a replica may have a hundred thousand
segments. A record of few segments is one value. In a larger one the segments are in parts, ordered by their
ids, and the value under the replica's key is a header that names the parts.

Parts are never overwritten: a change writes the parts that it concerns under new numbers, then the header
that names them, and removes the ones they replace. The header decides, so a change is made whole or not at
all, whatever interrupts it. A change of one segment writes one part and the header, however large the record
is. Parts that no header names, left by an interruption, are removed when the record is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

import msgspec

from elanus.api.query_channel import QueryChannelInfo
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.core.timestamps import Timestamp
from elanus.meta.port import TXN_OPERATIONS_MAX, Delete, MetaStore, Put
from elanus.meta.turns import in_turns

T = TypeVar("T")
PART_MAX = 512
"""Segments in a part: at most 100 KB. A record of up to that many segments has no parts."""
_HEADERS = "querycoord/replica/"
_PARTS = "querycoord/replica_part/"
_BATCH_BYTES = 1_000_000
_PARTS_AT_ONCE = 10
"""Parts that are read or written before other tasks run."""


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """A replica: its nodes, and what was last announced on its channel.

    ``plan``: segments that are being loaded on a node where no version names them yet. ``stamps``: moments
    assigned for a version that may not have been announced (`elanus.querycoord.visible_from`).
    ``partitions``: those that can be read under the version in force; None: all. ``writes``: the commits of
    the latest writes that delete rows, each with the moment from which reads see it.
    """

    info: QueryChannelInfo
    nodes: tuple[NodeID, ...] = ()
    plan: Mapping[SegmentID, NodeID] = field(default_factory=dict)
    stamps: Mapping[SegmentID, Timestamp] = field(default_factory=dict)
    partitions: tuple[PartitionID, ...] | None = None
    writes: Mapping[Timestamp, Timestamp] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Header(ReplicaRecord):
    """``parts``: the lowest segment id that each part is for, and its number. Empty: the record is whole."""

    parts: tuple[tuple[SegmentID, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """The facts of a record about some segments; see `ReplicaRecord` and `QueryChannelInfo`."""

    sealed: Mapping[SegmentID, NodeID] = field(default_factory=dict)
    visible_from: Mapping[SegmentID, Timestamp] = field(default_factory=dict)
    plan: Mapping[SegmentID, NodeID] = field(default_factory=dict)
    stamps: Mapping[SegmentID, Timestamp] = field(default_factory=dict)

    @classmethod
    def all_of(cls, record: ReplicaRecord) -> _Part:
        return cls(record.info.sealed, record.info.visible_from, record.plan, record.stamps)

    def of(self, segments: Iterable[SegmentID]) -> _Part:
        """Return the facts about these segments."""
        some = tuple(segments)
        return _Part(
            {s: self.sealed[s] for s in some if s in self.sealed},
            {s: self.visible_from[s] for s in some if s in self.visible_from},
            {s: self.plan[s] for s in some if s in self.plan},
            {s: self.stamps[s] for s in some if s in self.stamps},
        )

    def segments(self) -> set[SegmentID]:
        return {*self.sealed, *self.visible_from, *self.plan, *self.stamps}

    def changed(self, before: _Part) -> set[SegmentID]:
        """Return the segments about which the facts differ."""
        pairs = (
            _differing(self.sealed, before.sealed),
            _differing(self.visible_from, before.visible_from),
            _differing(self.plan, before.plan),
            _differing(self.stamps, before.stamps),
        )
        return set().union(*pairs)

    def names(self, segment_id: SegmentID) -> bool:
        places = (self.sealed, self.visible_from, self.plan, self.stamps)
        return any(segment_id in place for place in places)


def _differing(now: Mapping[SegmentID, T], then: Mapping[SegmentID, T]) -> set[SegmentID]:
    if now is then:
        return set()
    return {s for s, fact in now.items() if then.get(s) != fact} | (then.keys() - now.keys())


_headers = msgspec.json.Decoder(_Header)
_parts = msgspec.json.Decoder(_Part)


@dataclass(slots=True)
class _Division:
    """The parts of a stored record: of each its lowest segment id, its number, and its segments."""

    record: ReplicaRecord
    bounds: list[SegmentID] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    members: list[set[SegmentID]] = field(default_factory=list)
    following: int = 1

    def regroup(self, facts: _Part) -> None:
        """Divide all segments again. The parts have no numbers yet."""
        found = sorted(facts.segments())
        self.bounds, self.numbers, self.members = [], [], []
        if len(found) > PART_MAX:
            for begin in range(0, len(found), PART_MAX // 2):
                self._insert(len(self.bounds), found[begin : begin + PART_MAX // 2])

    def change(self, facts: _Part, changed: set[SegmentID]) -> None:
        """Take in changes. The parts that they concern get the number 0."""
        concerned: dict[int, None] = {}
        for segment_id in sorted(changed):
            at = max(0, bisect_right(self.bounds, segment_id) - 1)
            concerned[at] = None
            if facts.names(segment_id):
                self.members[at].add(segment_id)
            else:
                self.members[at].discard(segment_id)
        for at in sorted(concerned, reverse=True):
            found = sorted(self.members[at])
            del self.bounds[at], self.numbers[at], self.members[at]
            step = PART_MAX if len(found) <= PART_MAX else PART_MAX // 2
            for number, begin in enumerate(range(0, len(found), step)):
                self._insert(at + number, found[begin : begin + step])

    @property
    def segments(self) -> int:
        """How many segments the parts have."""
        return sum(map(len, self.members))

    def is_sparse(self) -> bool:
        """Whether there are far more parts than the segments need, or none are needed."""
        count = self.segments
        return count <= PART_MAX // 2 or count < len(self.bounds) * PART_MAX // 8

    def _insert(self, at: int, segments: Sequence[SegmentID]) -> None:
        self.bounds.insert(at, segments[0])
        self.numbers.insert(at, 0)
        self.members.insert(at, set(segments))


class ReplicaRecords:
    """Reads and writes the records. One coordinator writes at a time (its metadata store is fenced)."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._known: dict[str, _Division] = {}

    async def of(self, collection_id: CollectionID) -> list[ReplicaRecord]:
        """Return the collection's records in the order of the replica numbers."""
        found = await self._read(f"{collection_id}/")
        self._known |= found
        return sorted((division.record for division in found.values()), key=lambda r: r.info.replica)

    async def put(self, record: ReplicaRecord) -> None:
        """Write a record: whole, or not at all."""
        name = _name(record)
        # While the outcome is unknown nothing is: what is stored is read again before the next change.
        division = self._known.pop(name, None) or (await self._read(name)).get(name)
        facts = _Part.all_of(record)
        before = [] if division is None else list(division.numbers)
        if division is None or not division.bounds:
            division = _Division(record, following=division.following if division else 1)
            division.regroup(facts)
        else:
            changed = facts.changed(_Part.all_of(division.record))
            if 2 * len(changed) > division.segments:  # as many parts are written as by a division of all
                division.regroup(facts)
            else:
                division.change(facts, changed)
                if division.is_sparse():
                    division.regroup(facts)
        division.record = record
        puts = []
        new = [at for at, number in enumerate(division.numbers) if not number]
        async for at in in_turns(new, _PARTS_AT_ONCE):
            division.numbers[at], division.following = division.following, division.following + 1
            part = facts.of(division.members[at])
            puts.append(Put(_part_key(name, division.numbers[at]), msgspec.json.encode(part)))
        header = Put(_HEADERS + name, _encoded_header(record, division))
        gone = [Delete(_part_key(name, n)) for n in before if n not in set(division.numbers)]
        *earlier, last = _batches(puts)
        for batch in earlier:
            await self._meta.txn(batch)
        last.append(header)
        room = TXN_OPERATIONS_MAX - len(last)
        await self._meta.txn([*last, *gone[:room]])
        self._known[name] = division
        await self._delete(gone[room:])

    async def remove(self, record: ReplicaRecord) -> None:
        await self._remove([Delete(_HEADERS + _name(record))], f"{_name(record)}/")

    async def remove_all(self, collection_id: CollectionID, *also: Delete) -> None:
        """Remove the collection's records together with other keys."""
        headers = await self._meta.list(f"{_HEADERS}{collection_id}/")
        await self._remove([*also, *(Delete(key) for key, _ in headers)], f"{collection_id}/")

    async def restore(self) -> dict[CollectionID, list[ReplicaRecord]]:
        """Return all records by collection, in the order of the replica numbers.

        They are read at once: a read for each of ten thousand collections would take a hundred times as long.
        """
        found: dict[CollectionID, list[ReplicaRecord]] = {}
        self._known = await self._read("")
        for division in self._known.values():
            found.setdefault(division.record.info.collection_id, []).append(division.record)
        return {of: sorted(records, key=lambda r: r.info.replica) for of, records in found.items()}

    async def _read(self, prefix: str) -> dict[str, _Division]:
        """Read the records whose names begin like this, and remove parts that none of them names."""
        headers = await self._meta.list(_HEADERS + prefix)
        stored = dict(await self._meta.list(_PARTS + prefix))
        found = {}
        async for key, value in in_turns(headers):
            header = _headers.decode(value.value)
            name = key.removeprefix(_HEADERS)
            parts = []
            async for _, number in in_turns(header.parts, _PARTS_AT_ONCE):
                parts.append(_parts.decode(stored.pop(_part_key(name, number)).value))
            record = _whole(header, parts)
            bounds, numbers = [b for b, _ in header.parts], [n for _, n in header.parts]
            found[name] = _Division(
                record, bounds, numbers, [part.segments() for part in parts], max(numbers, default=0) + 1
            )
        await self._delete(map(Delete, stored))
        return found

    async def _remove(self, deletes: list[Delete], prefix: str) -> None:
        for name in [name for name in self._known if f"{name}/".startswith(prefix)]:
            del self._known[name]
        await self._meta.txn(deletes)
        await self._delete(Delete(key) for key, _ in await self._meta.list(_PARTS + prefix))

    async def _delete(self, deletes: Iterable[Delete]) -> None:
        left = iter(deletes)
        while batch := list(islice(left, TXN_OPERATIONS_MAX)):
            await self._meta.txn(batch)


def _name(record: ReplicaRecord) -> str:
    return f"{record.info.collection_id}/{record.info.replica}"


def _part_key(name: str, number: int) -> str:
    return f"{_PARTS}{name}/{number}"


def _encoded_header(record: ReplicaRecord, division: _Division) -> bytes:
    if not division.bounds:
        return msgspec.json.encode(record)
    header = _Header(
        replace(record.info, sealed={}, visible_from={}),
        record.nodes,
        partitions=record.partitions,
        writes=record.writes,
        parts=tuple(zip(division.bounds, division.numbers, strict=True)),
    )
    return msgspec.json.encode(header)


def _whole(header: _Header, parts: Sequence[_Part]) -> ReplicaRecord:
    facts = _Part.all_of(header)
    if parts:
        facts = _Part(
            {s: at for part in parts for s, at in part.sealed.items()},
            {s: ts for part in parts for s, ts in part.visible_from.items()},
            {s: at for part in parts for s, at in part.plan.items()},
            {s: ts for part in parts for s, ts in part.stamps.items()},
        )
    info = replace(header.info, sealed=facts.sealed, visible_from=facts.visible_from)
    return ReplicaRecord(info, header.nodes, facts.plan, facts.stamps, header.partitions, header.writes)


def _batches(puts: Sequence[Put]) -> Iterator[list[Put]]:
    """Yield the puts in transactions; the last one, which may be empty, has room for the header."""
    batch: list[Put] = []
    size_bytes = 0
    for put in puts:
        if batch and (size_bytes + len(put.value) > _BATCH_BYTES or len(batch) >= TXN_OPERATIONS_MAX - 1):
            yield batch
            batch, size_bytes = [], 0
        batch.append(put)
        size_bytes += len(put.value)
    yield batch
