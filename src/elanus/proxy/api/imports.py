"""The verbs of bulk imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from elanus.api.connector import WriteTarget
from elanus.core.imports import COMMAS, CsvFormat, Duplicates, ImportTask, WriteMode, WritePlace


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How the rows of an import are written.

    A ``write_id`` names the write, or with a ``batch`` a stream of writes, of the query ``query_id``: one
    that did not fail is not repeated. ``rejects_max``: how many rows that do not fit are left out before the
    import fails. ``duplicates``: which rows of a key are added. ``csv``: the format of CSV files.
    ``timeout_ms``: after how long the import fails; 0: what the server allows. ``auto_commit``: whether it
    commits by itself. ``place``: what the names meant when the write began, None if that is not known.
    """

    write_id: str = ""
    rejects_max: int = 0
    mode: WriteMode = WriteMode.APPEND
    duplicates: Duplicates = Duplicates.KEEP
    csv: CsvFormat = COMMAS
    timeout_ms: int = 0
    batch: int = -1
    query_id: str = ""
    auto_commit: bool = True
    place: WritePlace | None = None


DEFAULT_OPTIONS = ImportOptions()


class ImportVerbs(Protocol):
    def start_import(
        self,
        database: str,
        collection: str,
        partition: str,
        files: Sequence[str],
        options: ImportOptions = DEFAULT_OPTIONS,
    ) -> ImportTask:
        """Start one task for all files, and return it.

        Raises `InvalidParameter` for a ``mode`` or ``duplicates`` that does not fit the collection, and where
        the names mean another place than that of the options.
        """
        ...

    def write_target(self, database: str, collection: str, partition: str, mode: WriteMode) -> WriteTarget:
        """Return where rows written in this way would go. Raises as `start_import` does."""
        ...

    def import_task(self, task_id: int) -> ImportTask:
        """Raises `InvalidParameter` for an unknown task."""
        ...

    def import_tasks(self, database: str, collection: str, limit: int) -> Sequence[ImportTask]:
        """Return the latest ``limit`` tasks (0: all), oldest first; of all collections if none is named."""
        ...

    def commit_import(self, task_id: int) -> None:
        """Commit an import whose files are written. Raises as
        `elanus.api.datacoord.ImportCalls.commit_import` does."""
        ...

    def cancel_import(self, task_id: int) -> None:
        """Raises `InvalidParameter` for a task that has committed."""
        ...
