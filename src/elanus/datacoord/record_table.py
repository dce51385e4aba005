"""Tables of datacoord's records in memory: every kind of record has its keys, its encoding and its table.

A kind of record is one subclass of `RecordTable`. `elanus.datacoord.state.DataState` reads and writes the
records of all kinds; it knows no kind's keys or encoding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from elanus.meta.turns import in_turns

Id = TypeVar("Id")
Record = TypeVar("Record")


class RecordTable(ABC, Generic[Id, Record]):
    """The records of one kind, as they are in the metadata. Only `DataState` changes a table.

    ``prefix``: of the records' keys. ``kind``: the type of a record, which is stored as JSON.
    """

    prefix: str
    kind: type[Record]

    @abstractmethod
    def id_of(self, record: Record, /) -> Id: ...

    @abstractmethod
    def show(self, record: Record, /) -> None:
        """Add a record, or replace the earlier one with its id."""

    @abstractmethod
    def forget(self, record_id: Id, /) -> None:
        """Remove a record. An unknown id changes nothing."""

    def key(self, record_id: Id, /) -> str:
        """Return the key in the metadata. It begins with ``prefix``."""
        return f"{self.prefix}{record_id}"

    def load(self, stored: bytes) -> None:
        """Show a record as it is stored."""
        self.show(self.decoded(stored))

    def reload(self, stored: bytes) -> None:
        """Show a record that another process has changed."""
        self.load(stored)

    def decoded(self, stored: bytes) -> Record:
        return msgspec.json.decode(stored, type=self.kind)


@dataclass(frozen=True, slots=True)
class TableChange(Generic[Id, Record]):
    """The part of a change that concerns one table: records to add or replace."""

    table: RecordTable[Id, Record]
    records: Sequence[Record]

    async def encoded(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield keys and values. Other tasks run in between, if there are many."""
        table = self.table
        async for record in in_turns(self.records):
            yield table.key(table.id_of(record)), msgspec.json.encode(record)

    def show(self) -> None:
        for record in self.records:
            self.table.show(record)


class PlainTable(RecordTable[Id, Record]):
    """A table that is looked up by ids only. The records keep the order in which they were first shown."""

    def __init__(self, prefix: str, kind: type[Record], id_of: Callable[[Record], Id]) -> None:
        self.prefix = prefix
        self.kind = kind
        self._id_of = id_of
        self._records: dict[Id, Record] = {}

    def id_of(self, record: Record) -> Id:
        return self._id_of(record)

    def show(self, record: Record) -> None:
        self._records[self._id_of(record)] = record

    def forget(self, record_id: Id) -> None:
        self._records.pop(record_id, None)

    def find(self, record_id: Id) -> Record | None:
        return self._records.get(record_id)

    def all(self) -> Sequence[Record]:
        return tuple(self._records.values())
