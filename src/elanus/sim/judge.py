"""The judge: compares the answers that clients received with the truth, and names the broken invariant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from elanus.core.channels import pchannel_of
from elanus.core.consistency import ConsistencyLevel
from elanus.core.ids import CollectionID, FieldID, PartitionID
from elanus.core.invariants import InvariantBroken
from elanus.core.time_to_live import TTL_PROPERTY
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp, before, minus_ms
from elanus.proxy.role.cache import CachedCollection
from elanus.sim.aliases import AliasMeanings
from elanus.sim.import_tasks import ImportTasks
from elanus.sim.partition_loads import PartitionLoads
from elanus.sim.policies import GRACEFUL_MS
from elanus.sim.truth import Contents, Row, Truth
from elanus.sim.upsert_pairs import UpsertPairs

_PATIENCE_S = 1.5
"""Longer than a version change, a probe of the nodes and a lost message take together."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An acknowledged write. ``values``: one per key written; empty when the keys were deleted.

    ``replaced``: the keys that an upsert deleted, where they are not those written.
    """

    collection_id: CollectionID
    vchannels: tuple[str, ...]
    ts: Timestamp
    keys: tuple[int, ...]
    values: tuple[int, ...]
    replaced: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Since:
    """The state when a read began: the newest acknowledged write per collection, the dropped collections."""

    newest: Mapping[CollectionID, Timestamp]
    dropped: frozenset[CollectionID]
    now: Timestamp


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query: (key, value) of each row. ``bound``: the query selected values below it."""

    collection_id: CollectionID
    ts: Timestamp
    bound: int | None
    rows: tuple[tuple[int, int], ...]


class Judge:
    """``times_reads``: whether only a lagging query node can make a read wait in this run."""

    def __init__(self, truth: Truth, imports: ImportTasks, *, times_reads: bool = False) -> None:
        self._times_reads = times_reads
        self._truth = truth
        self.imports = imports
        self.aliases = AliasMeanings()
        self.upserts = UpsertPairs()
        self.loads = PartitionLoads()
        self.extra_fields: dict[tuple[CollectionID, int], FieldID] = {}
        """By collection and value, of acknowledged rows: which extra field they were written with."""
        self._writes: list[Acknowledged] = []
        self._stamps: set[Timestamp] = set()
        self._newest: dict[CollectionID, Timestamp] = {}
        self._dropped: set[CollectionID] = set()
        self._leaving: set[PartitionID] = set()
        self._dropped_partitions: list[tuple[CollectionID, PartitionID]] = []

    def since(self, now: Timestamp) -> Since:
        self.imports.now_is(now)
        return Since(dict(self._newest), frozenset(self._dropped), now)

    def dropped(self, collection_id: CollectionID) -> None:
        """Record that a drop of the collection was acknowledged to a client."""
        self._dropped.add(collection_id)

    def partition_leaves(self, partition_id: PartitionID) -> None:
        """Record that a drop is requested: from now on a read may or may not find the partition's rows."""
        self._leaving.add(partition_id)

    def _may_be_gone(self, contents: Contents, row: Row, read_ts: Timestamp) -> bool:
        """Whether a read may or may not find the row: its partition is dropped or not loaded, or it is being
        imported, or deleted by an import."""
        return (
            self._is_leaving(contents, row)
            or self.loads.may_miss(row.partition_id)
            or self.imports.may_be_missing(row, read_ts)
            or self._lingers(row, read_ts)
        )

    def _lingers(self, row: Row, read_ts: Timestamp) -> bool:
        return row.died <= read_ts < row.died_in_log and self.imports.may_linger(row, read_ts)

    def _is_leaving(self, contents: Contents, row: Row) -> bool:
        return row.partition_id in self._leaving or contents.may_be_gone(row)

    def partition_dropped(self, collection_id: CollectionID, partition_id: PartitionID) -> None:
        """Record an acknowledged drop: the partition's rows must be gone once the system is at rest."""
        self._dropped_partitions.append((collection_id, partition_id))

    def check_dropped_partitions(self) -> None:
        """Check that dropped partitions hold no rows. Raises `InvariantBroken`."""
        for collection_id, partition_id in self._dropped_partitions:
            contents = self._truth.contents(collection_id)
            alive = contents.alive(before(MAX_TIMESTAMP))
            left = tuple(row.key for row in alive if row.partition_id == partition_id)
            if left and not contents.drop_ts:
                raise InvariantBroken("DDL1", f"partition {partition_id} was dropped, and holds {left}", left)

    # writes

    def acknowledged(self, write: Acknowledged) -> None:
        """Record an acknowledged write and check it. Raises `InvariantBroken`."""
        if write.ts in self._stamps:
            raise InvariantBroken("TT4", f"timestamp {write.ts} was given to two writes", write.keys)
        self._stamps.add(write.ts)
        self._writes.append(write)
        known = self._newest.get(write.collection_id, NO_TIMESTAMP)
        self._newest[write.collection_id] = max(known, write.ts)
        self._check_kept(write)

    def check_all_kept(self) -> None:
        """Check that no acknowledged write was lost. Raises `InvariantBroken`."""
        for write in self._writes:
            self._check_kept(write)

    def check_upserts(self) -> None:
        """Check that upserts deleted what they replaced, and nothing else. Raises `InvariantBroken`."""
        for collection_id in self.upserts.collections:
            self.upserts.check(self._truth.contents(collection_id))

    def _check_kept(self, write: Acknowledged) -> None:
        for vchannel in write.vchannels:
            if self._truth.is_late(pchannel_of(vchannel), write.ts):
                if self._truth.contents(write.collection_id).drop_ts:
                    return
                raise InvariantBroken("TT2", f"the write at {write.ts} is late on {vchannel}", write.keys)
        contents = self._truth.contents(write.collection_id)
        if write.values:
            found = {
                (row.key, row.value)
                for key in write.keys
                for row in contents.of_key(key)
                if row.born == write.ts
            }
            lost = {pair[0] for pair in zip(write.keys, write.values, strict=True) if pair not in found}
        else:
            lost = {k for k in write.keys if not contents.has_deletion(k, write.ts)}
        lost |= {k for k in write.replaced if not contents.has_deletion(k, write.ts)}
        if lost:
            raise InvariantBroken("DUR1", f"the write at {write.ts} lost {sorted(lost)}", tuple(sorted(lost)))

    # reads

    def ticked(self, cached: CachedCollection) -> Timestamp:
        """The timestamp up to which all pchannels of the collection have ticked now.

        It is at least the collection's creation, since nothing in the collection can be older.
        """
        return max(cached.view.created, min(map(self._truth.tick, cached.view.pchannels)))

    def check_moment(
        self,
        cached: CachedCollection,
        read_ts: Timestamp,
        level: ConsistencyLevel,
        session_ts: Timestamp,
        since: Since,
        ticked: Timestamp,
    ) -> None:
        """Check the timestamp that a read was answered at. Raises `InvariantBroken`.

        ``ticked``: the result of `ticked` when the read was answered.
        """
        if cached.collection_id in since.dropped:
            raise InvariantBroken("DDL1", f"collection {cached.collection_id} was dropped, and answers")
        newest = since.newest.get(cached.collection_id, NO_TIMESTAMP)
        floor = {
            ConsistencyLevel.STRONG: newest,
            ConsistencyLevel.SESSION: session_ts,
            ConsistencyLevel.BOUNDED: min(newest, minus_ms(since.now, GRACEFUL_MS)),
        }.get(level, NO_TIMESTAMP)
        if read_ts < floor:
            raise InvariantBroken("CON1", f"a {level.name} read at {read_ts} had to see {floor}")
        if read_ts > ticked:
            raise InvariantBroken("TT3", f"a read at {read_ts}, and its pchannels had ticked up to {ticked}")

    def check_wait(self, level: ConsistencyLevel, waited_s: float) -> None:
        """Check how long a read took, whether or not it succeeded. Raises `InvariantBroken`."""
        if self._times_reads and level is ConsistencyLevel.EVENTUALLY and waited_s > _PATIENCE_S:
            raise InvariantBroken("CON2", f"a read at Eventually took {waited_s:.3f} s")

    def check_count(self, cached: CachedCollection, read_ts: Timestamp, count: int) -> None:
        contents = self._truth.contents(cached.collection_id)
        alive, expired = _by_age(cached, contents.alive(read_ts), read_ts)
        least = sum(not self._may_be_gone(contents, row, read_ts) for row in alive)
        if count < least:
            raise InvariantBroken("VIS1", f"{count} rows counted at {read_ts}, {least} are alive")
        most = len(alive) + len(self._lingering(cached, contents, read_ts))
        if most < count <= most + len(expired):
            raise InvariantBroken("VIS5", f"{count} rows counted at {read_ts}, {len(alive)} had not expired")
        if count > most:
            raise InvariantBroken("VIS2", f"{count} rows counted at {read_ts}, {len(alive)} are alive")

    def check_rows(
        self,
        cached: CachedCollection,
        read_ts: Timestamp,
        keys: Sequence[int],
        values: Sequence[int] | None,
        selects: Callable[[int], bool] | None = None,
    ) -> None:
        """Check an answer that holds each key once. ``values``: None when the answer holds only keys.
        ``selects``: which values the read asked for; None: all."""
        contents = self._truth.contents(cached.collection_id)
        wanted: dict[int, list[Row]] = {}
        alive, expired = _by_age(cached, contents.alive(read_ts), read_ts)
        for row in (*alive, *self._lingering(cached, contents, read_ts)):
            if selects is None or selects(row.value):
                wanted.setdefault(row.key, []).append(row)
        found = frozenset(keys)
        if len(found) != len(keys):
            twice = tuple(sorted(key for key, times in Counter(keys).items() if times > 1))
            raise InvariantBroken("VIS2", f"keys twice in the answer at {read_ts}: {twice}", twice)
        missing = [
            k
            for k, rows in wanted.items()
            if k not in found and not all(self._may_be_gone(contents, row, read_ts) for row in rows)
        ]
        if missing:
            raise InvariantBroken("VIS1", f"missing at {read_ts}: {sorted(missing)}", tuple(sorted(missing)))
        if selects is None:
            for key, rows in wanted.items():
                if key not in found and not any(self._is_leaving(contents, row) for row in rows):
                    self.imports.check_replaced(rows, read_ts)
        single = [rows[0] for rows in wanted.values() if len(rows) == 1 and rows[0].is_imported]
        staying = [row for row in single if not self._is_leaving(contents, row)]
        self.imports.check_whole(staying, found, read_ts)
        for number, key in enumerate(keys):
            value = None if values is None else values[number]
            if not self._is_right(contents, wanted.get(key, []), value, read_ts):
                if any(row.key == key and value in (None, row.value) for row in expired):
                    raise InvariantBroken("VIS5", f"key {key} has expired at {read_ts}", (key,))
                raise _wrong(contents, key, value, read_ts)

    def _lingering(self, cached: CachedCollection, contents: Contents, read_ts: Timestamp) -> Sequence[Row]:
        rows = [row for row in contents.lingering(read_ts) if self._lingers(row, read_ts)]
        return _by_age(cached, rows, read_ts)[0]

    def _is_right(self, contents: Contents, rows: list[Row], value: int | None, read_ts: Timestamp) -> bool:
        if not rows:
            return False
        newest = max(rows, key=lambda row: row.born)
        if value is None or value == newest.value:
            return True
        return self._may_be_gone(contents, newest, read_ts) and any(row.value == value for row in rows)

    def check_repeated(self, before: Answer, read_ts: Timestamp, rows: Sequence[tuple[int, int]]) -> None:
        """Check that the same read at the same moment gives the same rows, apart from partitions dropped
        since."""
        if read_ts != before.ts:
            raise InvariantBroken("VIS3", f"a read pinned to {before.ts} was answered at {read_ts}")
        contents = self._truth.contents(before.collection_id)
        differ = sorted(
            key
            for key, _ in set(rows) ^ set(before.rows)
            if not any(self._may_be_gone(contents, row, read_ts) for row in contents.of_key(key))
        )
        if differ or len(set(rows)) != len(rows):
            raise InvariantBroken("VIS3", f"read again at {read_ts}, other rows of {differ}", tuple(differ))


def _by_age(
    cached: CachedCollection, rows: Sequence[Row], read_ts: Timestamp
) -> tuple[Sequence[Row], Sequence[Row]]:
    """Return the rows that have not expired at ``read_ts``, and those that have."""
    ttl_s = int(cached.view.properties.get(TTL_PROPERTY, "0"))
    if not ttl_s:
        return rows, ()
    until = minus_ms(read_ts, 1000 * ttl_s)
    return [row for row in rows if row.born > until], [row for row in rows if row.born <= until]


def _wrong(contents: Contents, key: int, value: int | None, read_ts: Timestamp) -> InvariantBroken:
    written = [row for row in contents.of_key(key) if value is None or row.value == value]
    what = f"key {key} with value {value} at {read_ts}"
    if any(row.died <= read_ts for row in written):
        return InvariantBroken("DEL1", f"{what} is deleted", (key,))
    return InvariantBroken("VIS4", f"{what} is not what was written", (key,))
