"""The committed writes that are remembered by name: by their keys in the metadata, and by their tasks."""

from __future__ import annotations

import hashlib

from elanus.core.ids import CollectionID, TaskID
from elanus.core.writes import WriteRecord
from elanus.datacoord.record_table import RecordTable

_WriteName = tuple[CollectionID, str]
"""A collection, and the name of a write or of a stream of writes."""


class WriteTable(RecordTable[_WriteName, WriteRecord]):
    """The committed writes, and the latest batch of each stream."""

    prefix = "datacoord/write/"
    kind = WriteRecord

    def __init__(self) -> None:
        self._by_name: dict[_WriteName, WriteRecord] = {}
        self._by_task: dict[TaskID, WriteRecord] = {}

    def id_of(self, record: WriteRecord, /) -> _WriteName:
        return record.collection_id, record.write_id

    def key(self, name: _WriteName, /) -> str:
        """Return a key of a bounded length, and without the characters of the name."""
        collection_id, write_id = name
        return f"{self.prefix}{collection_id}/{hashlib.sha256(write_id.encode()).hexdigest()[:32]}"

    def find(self, collection_id: CollectionID, write_id: str, batch: int) -> WriteRecord | None:
        """Return the write of that name, or the latest batch of that stream if it is not below ``batch``."""
        found = self._by_name.get((collection_id, write_id)) if write_id else None
        return None if found is None or found.batch < batch else found

    def of_task(self, task_id: TaskID) -> WriteRecord | None:
        return self._by_task.get(task_id)

    def all(self) -> tuple[WriteRecord, ...]:
        return tuple(self._by_name.values())

    def show(self, record: WriteRecord, /) -> None:
        name = self.id_of(record)
        self.forget(name)
        self._by_name[name] = record
        self._by_task[record.task_id] = record

    def forget(self, name: _WriteName, /) -> None:
        known = self._by_name.pop(name, None)
        if known is not None:
            self._by_task.pop(known.task_id, None)
