"""The segment records in memory, indexed by what they are looked up by: a look-up costs what it finds.

The table also follows which manifests are in force: a manifest is used from the moment a record names it
until the record names another, or the segment is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.datacoord.path_uses import PathUses, note_change
from elanus.datacoord.record_table import RecordTable

Key = TypeVar("Key")
_Room = tuple[CollectionID, PartitionID, str]


class SegmentTable(RecordTable[SegmentID, SegmentInfo]):
    """``uses`` is notified of the paths of manifests that come into force and go out of it."""

    prefix = "datacoord/segment/"
    kind = SegmentInfo

    def __init__(self, uses: PathUses) -> None:
        self._uses = uses
        self._segments: dict[SegmentID, SegmentInfo] = {}
        self._by_collection: dict[CollectionID, dict[SegmentID, None]] = {}
        self._by_vchannel: dict[str, dict[SegmentID, None]] = {}
        self._growing: dict[_Room, dict[SegmentID, None]] = {}
        self._unflushed: dict[str, dict[SegmentID, None]] = {}
        """By vchannel: a report of a data node concerns the segments of a few vchannels."""
        self._sealed: dict[str, dict[SegmentID, None]] = {}
        """Sealed and flushing ones, by vchannel."""
        self._changes = 0
        self._changed: dict[str, int] = {}
        self._states = [0] * (max(SegmentState) + 1)
        """How many segments are in each state: a list, because enumerations take long to hash."""
        self._sizes_bytes: Counter[CollectionID] = Counter()
        self.dropped_bytes = 0
        """The size of the binlogs of dropped segments that still have files."""
        self._dropped: dict[str, dict[SegmentID, None]] = {}
        """By vchannel."""
        self._made: dict[SegmentID, dict[SegmentID, None]] = {}
        """The segments that compaction made from each: several, if it was cut into clusters."""

    def id_of(self, info: SegmentInfo, /) -> SegmentID:
        return info.segment_id

    def find(self, segment_id: SegmentID) -> SegmentInfo | None:
        return self._segments.get(segment_id)

    def all(self) -> Iterable[SegmentInfo]:
        return self._segments.values()

    def of_collection(self, collection_id: CollectionID) -> list[SegmentInfo]:
        return self._infos(self._by_collection.get(collection_id, ()))

    def on_vchannel(self, vchannel: str) -> list[SegmentInfo]:
        return self._infos(self._by_vchannel.get(vchannel, ()))

    def growing(
        self, collection_id: CollectionID, partition_id: PartitionID, vchannel: str
    ) -> list[SegmentInfo]:
        return self._infos(self._growing.get((collection_id, partition_id, vchannel), ()))

    def unflushed(self) -> list[SegmentInfo]:
        """Growing, sealed and flushing segments."""
        return [info for vchannel in self._unflushed for info in self.unflushed_on(vchannel)]

    def sealed_vchannels(self) -> Iterable[str]:
        """Vchannels with sealed or flushing segments."""
        return self._sealed

    def unflushed_on(self, vchannel: str) -> list[SegmentInfo]:
        return self._infos(self._unflushed.get(vchannel, ()))

    def last_change(self, vchannel: str) -> int:
        """Return the number of the latest change of a segment of the vchannel; 0 if it has none."""
        return self._changed.get(vchannel, 0)

    def states(self) -> Counter[SegmentState]:
        """Return how many segments are in each state."""
        return Counter({state: self._states[state] for state in SegmentState if self._states[state]})

    def stored_bytes(self, collection_ids: Iterable[CollectionID] | None = None) -> int:
        """Return the size of the binlogs of these collections' segments, or of all; dropped ones are left
        out."""
        if collection_ids is None:
            return self._sizes_bytes.total()
        return sum(self._sizes_bytes[collection_id] for collection_id in collection_ids)

    def dropped(self) -> list[SegmentInfo]:
        return [info for vchannel in self._dropped for info in self.dropped_on(vchannel)]

    def dropped_on(self, vchannel: str) -> list[SegmentInfo]:
        return self._infos(self._dropped.get(vchannel, ()))

    def gone(self, segment_ids: Iterable[SegmentID]) -> list[SegmentID]:
        """Return those that are dropped, or have no record."""
        known, dropped = self._segments, SegmentState.DROPPED
        return [s for s in segment_ids if (info := known.get(s)) is None or info.state is dropped]

    def successors_of(self, segment_ids: Iterable[SegmentID]) -> dict[SegmentID, tuple[SegmentID, ...]]:
        """Return, for each of these, the segments that now hold its rows: none if it was never compacted, or
        if no row is left. Compactions that several of them share are followed once."""
        last: dict[SegmentID, frozenset[SegmentID]] = {}
        heirs: dict[frozenset[SegmentID], tuple[SegmentID, ...]] = {}
        found: dict[SegmentID, tuple[SegmentID, ...]] = {}
        for segment_id in segment_ids:
            own = self._last_of(segment_id, last) if segment_id in self._made else frozenset[SegmentID]()
            if own not in heirs:
                heirs[own] = tuple(info.segment_id for info in self._live(own))
            found[segment_id] = heirs[own]
        return found

    def _last_of(
        self, segment_id: SegmentID, known: dict[SegmentID, frozenset[SegmentID]]
    ) -> frozenset[SegmentID]:
        """Return the segments at the end of all compactions that began with this one, and add to ``known``
        those of all between."""
        course = [segment_id]
        while course:
            current = course[-1]
            made = self._made.get(current)
            if made is None:
                known[current] = frozenset((current,))
            elif waits := [m for m in made if m not in known]:
                course += waits
                continue
            elif len(made) == 1:
                (only,) = made
                known[current] = known[only]
            else:
                known[current] = frozenset().union(*(known[m] for m in made))
            course.pop()
        return known[segment_id]

    def _live(self, segment_ids: Iterable[SegmentID]) -> list[SegmentInfo]:
        """Return those that are recorded and not dropped, in the order of their ids."""
        infos = (self._segments.get(s) for s in sorted(segment_ids))
        return [info for info in infos if info is not None and info.state is not SegmentState.DROPPED]

    def descendants(self, segment_ids: Iterable[SegmentID]) -> set[SegmentID]:
        """Return the segments that compactions made from these, and from what they made, and so on.

        By them `successors_of` finds what holds the rows now.
        """
        found: set[SegmentID] = set()
        following = [made for segment_id in segment_ids for made in self._made.get(segment_id, ())]
        while following:
            made = following.pop()
            if made not in found:
                found.add(made)
                following += self._made.get(made, ())
        return found

    def _infos(self, segment_ids: Iterable[SegmentID]) -> list[SegmentInfo]:
        return [self._segments[segment_id] for segment_id in segment_ids]

    def reload(self, stored: bytes) -> None:
        """As `load`. The expiry of the latest allocation is kept: it is in memory only."""
        found = self.decoded(stored)
        known = self._segments.get(found.segment_id) or found
        self.show(replace(found, last_expire=max(found.last_expire, known.last_expire)))

    def show(self, info: SegmentInfo, /) -> None:
        segment_id = info.segment_id
        known = self._segments.get(segment_id)
        note_change(self._uses, _manifest_in_force(known), _manifest_in_force(info))
        self._count(known, info)
        self._changes += 1
        self._changed[info.vchannel] = self._changes
        self._segments[segment_id] = info
        if known is None:  # it never moves to another collection or vchannel
            self._by_collection.setdefault(info.collection_id, {})[segment_id] = None
            self._by_vchannel.setdefault(info.vchannel, {})[segment_id] = None
        for replaced in info.compacted_from:
            self._made.setdefault(replaced, {})[segment_id] = None
        if known is None:
            self._list(info)
        elif known.state is not info.state:
            self._list(info)
            self._delist(known, info.state)

    def _list(self, info: SegmentInfo) -> None:
        """Add the segment to the indexes of its state."""
        segment_id, vchannel, state = info.segment_id, info.vchannel, info.state
        if state is SegmentState.DROPPED:
            self._dropped.setdefault(vchannel, {})[segment_id] = None
        elif _is_unflushed(state):
            self._unflushed.setdefault(vchannel, {})[segment_id] = None
            if state is SegmentState.GROWING:
                self._growing.setdefault(_room(info), {})[segment_id] = None
            else:
                self._sealed.setdefault(vchannel, {})[segment_id] = None

    def _delist(self, info: SegmentInfo, after: SegmentState | None = None) -> None:
        """Remove the segment from the indexes of its state that do not belong to the state ``after``."""
        segment_id, vchannel, state = info.segment_id, info.vchannel, info.state
        if state is SegmentState.DROPPED:
            _remove(self._dropped, vchannel, segment_id)
        elif _is_unflushed(state):
            if after is None or not _is_unflushed(after):
                _remove(self._unflushed, vchannel, segment_id)
            if state is SegmentState.GROWING:
                _remove(self._growing, _room(info), segment_id)
            elif after is None or after is SegmentState.GROWING or not _is_unflushed(after):
                _remove(self._sealed, vchannel, segment_id)

    def _count(self, known: SegmentInfo | None, info: SegmentInfo | None) -> None:
        if known is not None:
            self._states[known.state] -= 1
            self._add_bytes(known, -1)
        if info is not None:
            self._states[info.state] += 1
            self._add_bytes(info, 1)

    def _add_bytes(self, info: SegmentInfo, times: int) -> None:
        if info.state is SegmentState.DROPPED:
            self.dropped_bytes += times * info.size_bytes if info.manifest else 0
        elif info.size_bytes:
            self._sizes_bytes[info.collection_id] += times * info.size_bytes
            if not self._sizes_bytes[info.collection_id]:
                del self._sizes_bytes[info.collection_id]

    def forget(self, segment_id: SegmentID, /) -> None:
        """Remove a record, and what is known about the segments that it replaced or was replaced by.

        It must be none of the `descendants` of a segment that is still served.
        """
        info = self._segments.pop(segment_id, None)
        if info is None:
            return
        note_change(self._uses, _manifest_in_force(info), "")
        _remove(self._by_collection, info.collection_id, segment_id)
        _remove(self._by_vchannel, info.vchannel, segment_id)
        if info.vchannel not in self._by_vchannel:
            self._changed.pop(info.vchannel, None)
        self._delist(info)
        self._count(info, None)
        self._made.pop(segment_id, None)
        for replaced in info.compacted_from:
            _remove(self._made, replaced, segment_id)


def _room(info: SegmentInfo) -> _Room:
    return (info.collection_id, info.partition_id, info.vchannel)


def _manifest_in_force(info: SegmentInfo | None) -> str:
    return "" if info is None or info.state is SegmentState.DROPPED else info.manifest


def _is_unflushed(state: SegmentState) -> bool:
    return state is SegmentState.GROWING or state is SegmentState.SEALED or state is SegmentState.FLUSHING


def _remove(index: dict[Key, dict[SegmentID, None]], key: Key, segment_id: SegmentID) -> None:
    found = index.get(key)
    if found is not None:
        found.pop(segment_id, None)
        if not found:
            del index[key]
