"""The truth of a run: the contents of the log and of imports, by the simplest rules, in plain Python.

The log decides what exists, not the roles. A message at or below the tick in force at its position is
late and does not count, and rows with other columns than their collection's are ignored; everything else
counts, at its timestamp. This determines which rows are alive at any timestamp, and every answer of the
system is compared with it. Nothing here is shared with the code by which the roles follow the log, so a
mistake in one shows up against the other.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from elanus.core.ids import ALL_PARTITIONS, CollectionID, PartitionID, SegmentID, TaskID
from elanus.core.invariants import InvariantBroken
from elanus.core.messages import (
    DdlMessage,
    DeleteMessage,
    InsertMessage,
    Message,
    MsgKind,
    UpsertMessage,
)
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.log.codec import decode
from elanus.log.port import LogEntry, Position

KEY, VALUE = "id", "value"
NO_TASK = TaskID(0)


@dataclass(slots=True)
class Row:
    """A row that was written. ``died``: the first delete of its key that is later than the row.

    ``died_in_log``: the first that is in the log; ``died_by``: the import that committed the first one that
    is in none.
    """

    key: int
    value: int
    vchannel: str
    partition_id: PartitionID
    segment_id: SegmentID
    born: Timestamp
    died: Timestamp = MAX_TIMESTAMP
    is_imported: bool = False
    is_cloned: bool = False
    died_in_log: Timestamp = MAX_TIMESTAMP
    died_by: TaskID = NO_TASK


@dataclass(frozen=True, slots=True)
class Deletion:
    key: int
    vchannel: str
    partition_id: PartitionID
    ts: Timestamp
    task_id: TaskID = NO_TASK
    """The import that committed it; 0: it is in the log."""

    def concerns(self, row: Row) -> bool:
        """For a row with this key: whether the delete is newer than the row and covers its partition."""
        return row.born < self.ts and self.partition_id in (ALL_PARTITIONS, row.partition_id)


@dataclass(slots=True)
class Contents:
    """Everything ever written to one collection.

    ``dropped``: when each partition was dropped, per vchannel. ``segments``: those that have rows.
    """

    rows: list[Row] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    dropped: dict[tuple[str, PartitionID], Timestamp] = field(default_factory=dict)
    drop_ts: Timestamp = NO_TIMESTAMP
    segments: set[SegmentID] = field(default_factory=set)
    _rows_of: dict[int, list[Row]] = field(default_factory=dict)
    _deletions_of: dict[int, list[Deletion]] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.segments.add(row.segment_id)
        self._rows_of.setdefault(row.key, []).append(row)
        for deletion in self._deletions_of.get(row.key, ()):
            _apply(deletion, row)

    def delete(self, deletion: Deletion) -> None:
        self.deletions.append(deletion)
        self._deletions_of.setdefault(deletion.key, []).append(deletion)
        for row in self._rows_of.get(deletion.key, ()):
            _apply(deletion, row)

    def of_key(self, key: int) -> list[Row]:
        return self._rows_of.get(key, [])

    def has_deletion(self, key: int, ts: Timestamp) -> bool:
        return any(deletion.ts == ts for deletion in self._deletions_of.get(key, ()))

    def alive(self, ts: Timestamp) -> list[Row]:
        alive = [row for row in self.rows if row.born <= ts < row.died]
        if not self.dropped:
            return alive
        drop_of = self.dropped.get
        return [row for row in alive if drop_of((row.vchannel, row.partition_id), MAX_TIMESTAMP) > ts]

    def lingering(self, ts: Timestamp) -> list[Row]:
        """The rows that only the deletes of imports have deleted at ``ts``: reads may not see these yet."""
        return [row for row in self.rows if row.died <= ts < row.died_in_log and row.born <= ts]

    def may_be_gone(self, row: Row) -> bool:
        """Whether the row's partition is being dropped: an earlier read may or may not still find it."""
        return any(partition_id == row.partition_id for _, partition_id in self.dropped)


def _apply(deletion: Deletion, row: Row) -> None:
    if not deletion.concerns(row):
        return
    if not deletion.task_id:
        row.died_in_log = min(row.died_in_log, deletion.ts)
    elif deletion.ts < row.died:
        row.died_by = deletion.task_id
    row.died = min(row.died, deletion.ts)


@dataclass(slots=True)
class _Pchannel:
    entries: list[LogEntry] = field(default_factory=list)
    tick: Timestamp = NO_TIMESTAMP
    epoch: int = 0
    tick_of_epoch: Timestamp = NO_TIMESTAMP
    late: set[Timestamp] = field(default_factory=set)


class Truth:
    """The contents of the log, updated as entries become visible.

    ``note`` is called with a description of each entry; ``columns_of`` gives the names of a collection's
    columns in order, of each schema that it has had; ``has_partition_key``: whether it has one.
    """

    def __init__(
        self,
        note: Callable[[str, list[int]], None],
        columns_of: Callable[[CollectionID], list[list[str]]],
        has_partition_key: Callable[[CollectionID], bool],
    ) -> None:
        self._note = note
        self._columns_of = columns_of
        self._has_partition_key = has_partition_key
        self._pchannels: dict[str, _Pchannel] = {}
        self._contents: dict[CollectionID, Contents] = {}
        self._messages: dict[int, tuple[LogEntry, Message]] = {}
        self._imported: list[tuple[CollectionID, Sequence[Row], Sequence[Deletion]]] = []
        self._cloned: dict[CollectionID, tuple[Sequence[Row], Sequence[Deletion]]] = {}

    def contents(self, collection_id: CollectionID) -> Contents:
        return self._contents.setdefault(collection_id, Contents())

    def collections(self) -> Iterator[tuple[CollectionID, Contents]]:
        return iter(self._contents.items())

    def tick(self, pchannel: str) -> Timestamp:
        known = self._pchannels.get(pchannel)
        return NO_TIMESTAMP if known is None else known.tick

    def is_late(self, pchannel: str, ts: Timestamp) -> bool:
        """Whether a message with that timestamp was behind the tick at its position."""
        known = self._pchannels.get(pchannel)
        return known is not None and ts in known.late

    def observe(self, pchannel: str, entry: LogEntry) -> None:
        """Take in an entry that became visible. Raises `InvariantBroken`."""
        self._pchannels.setdefault(pchannel, _Pchannel()).entries.append(entry)
        self._read(pchannel, entry, self._note)

    def imported(
        self, collection_id: CollectionID, rows: Sequence[Row], deletions: Sequence[Deletion]
    ) -> None:
        """Add the rows of an import that has been committed, and its deletes."""
        self._imported.append((collection_id, rows, deletions))
        self._import(collection_id, rows, deletions)

    def _import(
        self, collection_id: CollectionID, rows: Sequence[Row], deletions: Sequence[Deletion]
    ) -> None:
        for row in rows:
            self.contents(collection_id).add(replace(row))
        for deletion in deletions:
            self.contents(collection_id).delete(deletion)

    def cloned(
        self,
        clone: CollectionID,
        source: CollectionID,
        vchannels: Mapping[str, str],
        partitions: Container[PartitionID],
        moment: Timestamp,
    ) -> None:
        """Add what a clone has from its source, once. ``vchannels``: the clone's by the source's.

        ``partitions``: the clone's. Rows of one that was dropped after the moment are not in it.
        """
        if clone in self._cloned:
            return
        contents = self.contents(source)
        rows = [
            replace(
                row,
                vchannel=vchannels[row.vchannel],
                died=MAX_TIMESTAMP,
                died_in_log=MAX_TIMESTAMP,
                died_by=NO_TASK,
                is_cloned=True,
            )
            for row in contents.rows
            if row.born <= moment
            and row.partition_id in partitions
            and contents.dropped.get((row.vchannel, row.partition_id), MAX_TIMESTAMP) > moment
        ]
        deletions = [replace(d, vchannel=vchannels[d.vchannel]) for d in contents.deletions if d.ts <= moment]
        self._cloned[clone] = (rows, deletions)
        self._add_cloned(clone)

    def _add_cloned(self, clone: CollectionID) -> None:
        rows, deletions = self._cloned[clone]
        for deletion in deletions:
            self.contents(clone).delete(deletion)
        for row in rows:
            self.contents(clone).add(replace(row))

    def cut(self, ends: Mapping[str, Position]) -> None:
        """Forget the tail that the log has lost, as if it had never existed."""
        kept = {
            p: [e for e in known.entries if e.position < ends.get(p, Position(0))]
            for p, known in self._pchannels.items()
        }
        self._pchannels = {p: _Pchannel(entries) for p, entries in kept.items()}
        self._contents = {}
        for imported in self._imported:
            self._import(*imported)
        for clone in self._cloned:
            self._add_cloned(clone)
        for pchannel, entries in kept.items():
            for entry in entries:
                self._read(pchannel, entry, lambda text, keys: None)

    def _read(self, pchannel: str, entry: LogEntry, note: Callable[[str, list[int]], None]) -> None:
        known, header = self._pchannels[pchannel], entry.header
        where = f"{pchannel[-1]}@{entry.position}"
        if header.kind is MsgKind.EPOCH:
            if header.epoch == known.epoch:
                raise InvariantBroken("TT1", f"{where}: epoch {header.epoch} begins twice")
            if header.epoch < known.epoch:
                return  # from a root coordinator that died meanwhile
            known.epoch, known.tick_of_epoch = header.epoch, NO_TIMESTAMP
            note(f"{where}: epoch {header.epoch}", [])
        elif header.kind is MsgKind.TIME_TICK:
            if header.epoch < known.epoch:
                return  # from a root coordinator that has been replaced
            if header.ts <= known.tick_of_epoch:
                raise InvariantBroken("TT1", f"{where}: tick {header.ts} after {known.tick_of_epoch}")
            known.tick_of_epoch = header.ts
            known.tick = max(known.tick, header.ts)
        elif header.ts <= known.tick:
            known.late.add(header.ts)
            note(f"{where}: {header.kind.name} {header.ts} of segment {header.segment_id} is late", [])
        else:
            self._take(entry, where, note)

    def _decoded(self, entry: LogEntry) -> Message:
        """Decode an entry once: every power loss makes `cut` read all entries again, and they never
        change."""
        known = self._messages.get(id(entry))
        if known is None:
            known = self._messages[id(entry)] = (entry, decode(entry))  # kept, so its id stays unique
        return known[1]

    def _is_foreign(self, message: Message) -> bool:
        return isinstance(
            message, InsertMessage | UpsertMessage
        ) and message.rows.schema.names not in self._columns_of(message.collection_id)

    def _take(self, entry: LogEntry, where: str, note: Callable[[str, list[int]], None]) -> None:
        message = self._decoded(entry)
        contents = self.contents(entry.header.collection_id)
        keys: list[int] = []
        text = f"{where}: {entry.header.kind.name} {entry.header.ts}"
        if self._is_foreign(message):
            text += " does not fit its collection"
        elif isinstance(message, InsertMessage | UpsertMessage):
            keys = message.rows.column(KEY).to_pylist()
            values = message.rows.column(VALUE).to_pylist()
            place = (message.vchannel, message.partition_id, message.segment_id, message.ts)
            if isinstance(message, UpsertMessage):
                by_key = self._has_partition_key(message.collection_id)
                deletes_in = ALL_PARTITIONS if by_key else message.partition_id
                for key in message.deleted_keys(KEY).to_pylist():
                    contents.delete(Deletion(key, message.vchannel, deletes_in, message.ts))
            for key, value in zip(keys, values, strict=True):
                contents.add(Row(key, value, *place))
            text += f" into segment {message.segment_id}: {keys}"
        elif isinstance(message, DeleteMessage):
            keys = message.primary_keys.to_pylist()
            for key in keys:
                contents.delete(Deletion(key, message.vchannel, message.partition_id, message.ts))
            text += f": {keys}"
        elif isinstance(message, DdlMessage):
            if message.kind is MsgKind.DROP_PARTITION:
                contents.dropped.setdefault((message.vchannel, message.partition_id), message.ts)
            if message.kind is MsgKind.DROP_COLLECTION:
                contents.drop_ts = message.ts
            text += f" of collection {message.collection_id}, partition {message.partition_id}"
        note(text, keys)
