"""The imports of `FakeVerbs`: what was started, by its id."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.errors import InvalidParameter
from elanus.core.ids import TaskID
from elanus.core.imports import ImportTask


class FakeImports:
    def __init__(self) -> None:
        super().__init__()
        self.imports: dict[TaskID, ImportTask] = {}
        self.ended: list[tuple[str, int]] = []

    def import_task(self, task_id: int) -> ImportTask:
        if task_id not in self.imports:
            raise InvalidParameter(f"import {task_id} is not known")
        return self.imports[TaskID(task_id)]

    def import_tasks(self, database: str, collection: str, limit: int) -> Sequence[ImportTask]:
        found = [t for t in self.imports.values() if collection in ("", t.collection)]
        return found[-limit:] if limit else found

    def commit_import(self, task_id: int) -> None:
        self.import_task(task_id)
        self.ended.append(("commit", task_id))

    def cancel_import(self, task_id: int) -> None:
        self.import_task(task_id)
        self.ended.append(("abort", task_id))
