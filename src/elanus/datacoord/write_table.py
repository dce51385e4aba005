"""The committed writes that are remembered by name: by their keys in the metadata, and by their tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from elanus.core.ids import CollectionID, TaskID
from elanus.core.writes import WriteRecord

PREFIX = "datacoord/write/"


class WriteTable:
    """In memory; `DataState` persists the records."""

    def __init__(self) -> None:
        self._by_key: dict[str, WriteRecord] = {}
        self._by_task: dict[TaskID, WriteRecord] = {}

    def find(self, collection_id: CollectionID, write_id: str, batch: int) -> WriteRecord | None:
        """Return the write of that name, or the latest batch of that stream if it is not below ``batch``."""
        found = self._by_key.get(key_of(collection_id, write_id)) if write_id else None
        return None if found is None or found.batch < batch else found

    def of_task(self, task_id: TaskID) -> WriteRecord | None:
        return self._by_task.get(task_id)

    def all(self) -> tuple[WriteRecord, ...]:
        return tuple(self._by_key.values())

    def load(self, stored: Iterable[bytes]) -> None:
        for value in stored:
            self.show(msgspec.json.decode(value, type=WriteRecord))

    def show(self, record: WriteRecord) -> None:
        self.forget(record)
        self._by_key[key_of(record.collection_id, record.write_id)] = record
        self._by_task[record.task_id] = record

    def forget(self, record: WriteRecord) -> None:
        """Forget the write of that name; one that is not known changes nothing."""
        known = self._by_key.pop(key_of(record.collection_id, record.write_id), None)
        if known is not None:
            self._by_task.pop(known.task_id, None)


def key_of(collection_id: CollectionID, write_id: str) -> str:
    """Return the key of a write's record: of a bounded length, and without the characters of the name."""
    return f"{PREFIX}{collection_id}/{hashlib.sha256(write_id.encode()).hexdigest()[:32]}"


def encoded(records: Iterable[WriteRecord]) -> Mapping[str, bytes]:
    return {key_of(r.collection_id, r.write_id): msgspec.json.encode(r) for r in records}
