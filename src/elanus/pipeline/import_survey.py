"""The survey of an import as a Spark job: which row groups the files have, and which versions of them.

A task surveys some tables. It reads their heads and ends by ranges; what it returns is small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elanus.core.batches import batched
from elanus.core.errors import InvalidParameter
from elanus.core.ids import TaskID
from elanus.core.import_files import LIST_SUFFIX, directory_of, is_pattern, listed, matching
from elanus.core.jobs import JobKind
from elanus.core.schema import CollectionSchema
from elanus.pipeline.import_files import survey
from elanus.pipeline.import_memory import SURVEY_BYTES, bounded_import
from elanus.pipeline.import_plan import FileRows
from elanus.pipeline.port import Job, JobOutput
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectMissing, ObjectStore

_TABLES_MIN = 8
"""A task surveys at least so many: starting it costs as much as reading a few heads."""
_TASKS_PER_SLOT = 4
LIST_BYTES_MAX = 128 << 20
"""A list of files is read as a whole, by the process of the data node."""


@dataclass(frozen=True, slots=True)
class SurveyPlan:
    """One task. Pickles. ``tables`` lack their groups."""

    schema: CollectionSchema
    tables: tuple[FileRows, ...]
    source_url: str


def survey_job(
    task_id: TaskID, tables: Sequence[FileRows], schema: CollectionSchema, source_url: str, slots: int
) -> Job[SurveyPlan, tuple[FileRows, ...]]:
    """Return a job over these tables. Running it raises `InvalidParameter` for files that do not fit."""
    size = max(_TABLES_MIN, -(-len(tables) // (slots * _TASKS_PER_SLOT)))
    plans = tuple(SurveyPlan(schema, part, source_url) for part in batched(tables, size))
    inputs = (f"survey of import {task_id}", f"{len(tables)} files")
    return Job(JobKind.IMPORT, inputs, survey_task, plans, _output)


def survey_task(plan: SurveyPlan) -> tuple[FileRows, ...]:
    """The Spark task, in the Python worker."""
    store, found = open_store(plan.source_url), []
    for table in plan.tables:
        with bounded_import(SURVEY_BYTES, (table,)):
            found += survey(store, (table,), plan.schema)
    return tuple(found)


def _output(outcomes: Sequence[tuple[FileRows, ...]]) -> JobOutput:
    """A survey writes nothing."""
    return JobOutput((), 0, 0)


def named_files(store: ObjectStore, names: Sequence[str]) -> tuple[str, ...]:
    """Return the files that names, patterns, directories and lists of an import mean, each once.

    Raises `InvalidParameter` for a pattern without a file, or a list that is none, and `ImportRefused` for a
    list with a file that no import can read.
    """
    return tuple(dict.fromkeys(file for name in names for file in _files(store, name)))


def _files(store: ObjectStore, name: str) -> Iterator[str]:
    if name.endswith(LIST_SUFFIX):
        yield from listed(name, _content(store, name))
    elif not is_pattern(name):
        yield name
    else:
        yield from matching(name, (info.path for info in store.list(directory_of(name))))


def _content(store: ObjectStore, name: str) -> bytes:
    try:
        size_bytes = store.head(name).size_bytes
        if size_bytes > LIST_BYTES_MAX:
            raise InvalidParameter(
                f"the list of files {name} has {size_bytes} bytes; it may have {LIST_BYTES_MAX}: import the "
                "files in several imports, or by a pattern"
            )
        return bytes(store.get(name))
    except ObjectMissing:
        raise InvalidParameter(f"the list of files {name} is not in the import directory") from None
